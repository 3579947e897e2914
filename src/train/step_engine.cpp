#include "train/step_engine.hpp"

#include <utility>

#include "model/ranker.hpp"
#include "train/engine_cuda.hpp"
#include "train/train_config.hpp"

namespace paceline::train {
namespace {

class CpuEngine final : public StepEngine {
 public:
  explicit CpuEngine(const StepEngineOptions& o)
      : ctx_(o.ctx),
        state_(o.state),
        hooks_(o.hooks),
        table_width_(static_cast<std::size_t>(o.config.model.table_width)),
        ranker_(o.config.model, o.config.schema, o.config.limits, ops::cpu_ops(), true),
        dense_grad_(static_cast<std::size_t>(o.layout.size()) * sizeof(float)),
        table_grad_(static_cast<std::size_t>(ranker_.max_lookups()) * table_width_ * sizeof(float)),
        optimizer_(o.config.optimizer, o.layout, ops::cpu_ops(), ranker_.max_lookups()) {}

  Result<void> submit(const features::Batch& batch, double factor) override {
    ranker_.forward(ctx_, view(), batch);
    result_.loss = ranker_.loss(ctx_, batch, {});
    const auto lookups = ranker_.lookups();
    const auto table_grads = table_grad_.as<float>().subspan(0, lookups.size() * table_width_);
    ranker_.backward(ctx_, view(), batch, {dense_grad_.as<float>(), table_grads});
    PL_TRY_VOID(hooks_.before_table_update());
    hooks_.touch(lookups);
    result_.outcome = optimizer_.step(ctx_, state_, {dense_grad_.as<float>(), table_grads, lookups},
                                      result_.loss, factor);
    return {};
  }
  StepResult take() override { return result_; }
  int lag() const override { return 0; }
  Result<void> to_host() override { return {}; }

  Result<std::vector<device::KernelTime>> profile(const features::Batch& batch,
                                                  double factor) override {
    PL_TRY_VOID(submit(batch, factor));
    return std::vector<device::KernelTime>();
  }

  std::span<const float> score(const features::Batch& batch) override {
    return ranker_.forward(ctx_, view(), batch);
  }
  int outputs() const override { return ranker_.outputs(); }
  std::size_t host_bytes() const override {
    return ranker_.memory_bytes() + dense_grad_.size_bytes() + table_grad_.size_bytes();
  }
  std::size_t device_bytes() const override { return 0; }
  ops::LinearAlgorithms algorithms() const override { return {}; }

 private:
  model::Weights view() const {
    const ModelState& state = state_;
    return {state.dense(), state.table()};
  }

  ops::Context& ctx_;
  ModelState& state_;
  SaveHooks hooks_;
  std::size_t table_width_;
  model::Ranker ranker_;
  HostBuffer dense_grad_, table_grad_;
  Optimizer optimizer_;
  StepResult result_;
};

}  // namespace

Result<std::unique_ptr<StepEngine>> make_step_engine(const StepEngineOptions& options) {
  if (options.device.cuda) return make_cuda_engine(options);
  return std::unique_ptr<StepEngine>(std::make_unique<CpuEngine>(options));
}

std::string engine_name(const DeviceChoice& device) {
  return device.cuda ? cuda_engine_name(device) : device.name;
}

}  // namespace paceline::train
