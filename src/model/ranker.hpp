// The ranker: forward, loss and backward of one packed batch as a sequence of ops.
//
// token = sqrt(width) * sum of projected features (one gather and one GEMM per token kind);
// pre-RMSNorm blocks: h += O(attention(norm_rope(q), norm_rope(k), v)), h +=
// down(gelu(up(norm(h)))); final RMSNorm on candidates, one output per action, times 2 sqrt(512 /
// width), and one per target. In the last block history rows stop after their keys and values:
// queries, MLP and head are computed for candidate rows only. That changes no number.
//
// Owns its activations, sized once for the batch limits: no allocation later. One call at a time.
// Deterministic at any thread count; the logits of an example are the same bits alone, in a batch
// and at any place in it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "features/batch.hpp"
#include "features/schema.hpp"
#include "model/model_config.hpp"
#include "model/parameters.hpp"
#include "ops/context.hpp"
#include "ops/op_table.hpp"

namespace paceline::model {

// Views on the weights; owned by whoever trains or serves.
struct Weights {
  std::span<const float> dense;  // ParameterLayout::size()
  std::span<const float> table;  // [Schema::table_rows(), table_width]
};

struct Gradients {
  std::span<float> dense;       // overwritten (zeroed first)
  std::span<float> table_rows;  // [at least lookups().size(), table_width]: one row per lookup,
                                // overwritten; zeros where the lookup is missing
};

class Ranker {
 public:
  // Schema and ops must outlive the ranker. With training = false no backward state is allocated.
  Ranker(const ModelConfig& config, const features::Schema& schema,
         const features::BatchLimits& limits, const ops::OpTable& ops, bool training);
  ~Ranker();

  // Logits [candidate_tokens, outputs()], valid until the next call. Outputs: actions, then
  // targets. Any batch within the limits, an empty one and one without candidates included.
  std::span<const float> forward(ops::Context& ctx, const Weights& weights,
                                 const features::Batch& batch);

  // Loss of the logits of the last forward (ops/loss/loss.hpp), of the same batch. by_output
  // [outputs()] may be empty.
  double loss(ops::Context& ctx, const features::Batch& batch, std::span<double> by_output);

  // Gradients of that loss. Call after loss() on the same batch; a ranker made for training.
  void backward(ops::Context& ctx, const Weights& weights, const features::Batch& batch,
                Gradients gradients);

  // Table rows looked up by the batch of the last forward, in the order of Gradients::table_rows:
  // token kinds in order, in each (entry, feature, hash); -1 is missing. Empty without training.
  std::span<const std::int32_t> lookups() const;

  int outputs() const;
  std::int64_t max_lookups() const;
  const ParameterLayout& layout() const;
  std::size_t memory_bytes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Probability or predicted value of output o from its logit (sigmoid for actions; regression heads
// by their loss).
float activate(const features::Schema& schema, int output, float logit);

}  // namespace paceline::model
