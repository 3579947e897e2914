#include "train/scorer.hpp"

#include "model/ranker.hpp"
#include "train/engine_cuda.hpp"

namespace paceline::train {
namespace {

class CpuScorer final : public Scorer {
 public:
  explicit CpuScorer(const ScorerOptions& o)
      : ctx_(o.ctx),
        weights_{o.weights.dense(), o.weights.table()},
        ranker_(o.model, o.schema, o.limits, ops::cpu_ops(), false) {}

  std::span<const float> score(const features::Batch& batch) override {
    return ranker_.forward(ctx_, weights_, batch);
  }
  int outputs() const override { return ranker_.outputs(); }

 private:
  ops::Context& ctx_;
  model::Weights weights_;
  model::Ranker ranker_;
};

}  // namespace

Result<std::unique_ptr<Scorer>> make_scorer(const ScorerOptions& options) {
  if (options.device.cuda) return make_cuda_scorer(options);
  return std::unique_ptr<Scorer>(std::make_unique<CpuScorer>(options));
}

}  // namespace paceline::train
