#include "model/ranker.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "core/error.hpp"
#include "model/ranker_impl.hpp"

namespace paceline::model {
namespace {

constexpr double kHeadBaseWidth = 512.0;

double sigmoid(double z) { return 1.0 / (1.0 + std::exp(-z)); }

double softplus(double z) { return std::max(z, 0.0) + std::log1p(std::exp(-std::abs(z))); }

constexpr double kTweedieFloor = 1e-6;

}  // namespace

std::vector<BlockOffsets> block_offsets(const ParameterLayout& layout, int layers) {
  std::vector<BlockOffsets> offsets;
  for (int layer = 0; layer < layers; ++layer) {
    const auto at = [&](const char* name) {
      return layout.find(fmt::format("blocks.{}.{}", layer, name)).offset;
    };
    offsets.push_back({at("attention.norm.scale"), at("attention.qkv.weight"),
                       at("attention.q_norm.scale"), at("attention.k_norm.scale"),
                       at("attention.out.weight"), at("mlp.norm.scale"), at("mlp.up.weight"),
                       at("mlp.down.weight")});
  }
  return offsets;
}

std::vector<std::int64_t> token_weight_offsets(const ParameterLayout& layout,
                                               const features::Schema& schema, int table_width) {
  std::vector<std::int64_t> offsets;
  for (const auto& kind : schema.kinds()) {
    const bool empty = kind.token_width(table_width) == 0;
    offsets.push_back(empty ? -1 : layout.find(fmt::format("tokens.{}.weight", kind.name)).offset);
  }
  return offsets;
}

double action_scale(int width) { return 2.0 * std::sqrt(kHeadBaseWidth / width); }

ops::TokenInput input_of(const features::TokenFeature& feature) {
  ops::TokenInput input;
  input.width = feature.size;
  switch (feature.kind) {
    case features::Kind::kId:
      input.column = ops::TokenColumn::kTableRows;
      input.width = feature.hashes;
      break;
    case features::Kind::kCategory:
    case features::Kind::kBucket:
      input.column = ops::TokenColumn::kOneHot;
      break;
    case features::Kind::kNumber:
      input.column = ops::TokenColumn::kNumber;
      break;
    case features::Kind::kMultiHot:
      input.column = ops::TokenColumn::kMask;
      break;
  }
  return input;
}

ops::RegressionHead head_of(const features::Target& target) {
  const auto loss = target.loss == features::TargetLoss::kTweedie
                        ? ops::RegressionLoss::kTweedie
                        : ops::RegressionLoss::kSigmoidMae;
  return {loss, static_cast<float>(target.cap), static_cast<float>(target.weight), nullptr};
}

Ranker::Impl::Impl(const ModelConfig& c, const features::Schema& s,
                   const features::BatchLimits& limits, const ops::OpTable& op_table, bool train)
    : config(c),
      schema(s),
      ops(op_table),
      training(train),
      actions(static_cast<int>(s.actions().size())),
      targets(static_cast<int>(s.targets().size())),
      eps(static_cast<float>(c.norm_eps)),
      capacity(s, limits),
      layout(c, s),
      offsets(block_offsets(layout, c.layers)),
      token_weights(token_weight_offsets(layout, s, c.table_width)),
      final_norm_scale(layout.find("final_norm.scale").offset),
      head_weight(layout.find("head.weight").offset),
      rope(ops::rope_table(capacity.positions, c.head_dim, c.rope_base)),
      act(c, s, capacity, train) {
  for (const auto& kind : s.kinds()) {
    auto& kind_inputs = inputs.emplace_back();
    for (const auto& f : kind.features) kind_inputs.push_back(input_of(f));
    lookups_per_entry.push_back(ops::lookups_per_entry(kind_inputs));
  }
  for (const auto& action : s.actions()) {
    loss_bits.push_back(action.bit);
    loss_weights.push_back(action.train ? static_cast<float>(action.weight) : 0.0F);
  }
  for (const auto& target : s.targets()) loss_heads.push_back(head_of(target));
}

void Ranker::Impl::check(const Weights& weights, const features::Batch& batch) const {
  PL_CHECK(static_cast<std::int64_t>(weights.dense.size()) == layout.size(),
           "the dense weights follow the layout");
  PL_CHECK(
      static_cast<std::int64_t>(weights.table.size()) == schema.table_rows() * config.table_width,
      "the table has the schema's rows");
  PL_CHECK(batch.examples() <= capacity.examples && batch.tokens() <= capacity.tokens &&
               batch.history_tokens() <= capacity.history &&
               batch.candidate_tokens() <= capacity.candidates,
           "the batch is within the limits of the ranker");
}

Ranker::Ranker(const ModelConfig& config, const features::Schema& schema,
               const features::BatchLimits& limits, const ops::OpTable& ops, bool training)
    : impl_(std::make_unique<Impl>(config, schema, limits, ops, training)) {}
Ranker::~Ranker() = default;

std::span<const float> Ranker::forward(ops::Context& ctx, const Weights& weights,
                                       const features::Batch& batch) {
  auto& m = *impl_;
  m.check(weights, batch);
  m.tokens = batch.tokens();
  m.candidates = batch.candidate_tokens();
  if (m.training) m.collect_lookups(batch);
  if (m.candidates == 0) return {};
  const Impl::Params params{weights.dense.data(), weights.table.data(), nullptr, nullptr};
  m.index_tokens(batch);
  m.build_tokens(ctx, params, batch);
  for (int layer = 0; layer < m.config.layers; ++layer) m.block_forward(ctx, params, layer, batch);
  m.head_forward(ctx, params);
  return {m.act.logits, static_cast<std::size_t>(m.candidates * m.outputs())};
}

double Ranker::loss(ops::Context& ctx, const features::Batch& batch, std::span<double> by_output) {
  PL_CHECK(batch.tokens() == impl_->tokens && batch.candidate_tokens() == impl_->candidates,
           "loss() follows forward() on the same batch");
  PL_CHECK(by_output.empty() || by_output.size() == static_cast<std::size_t>(outputs()),
           "by_output has one value per output");
  return impl_->loss(ctx, batch, by_output);
}

void Ranker::backward(ops::Context& ctx, const Weights& weights, const features::Batch& batch,
                      Gradients gradients) {
  auto& m = *impl_;
  PL_CHECK(m.training, "backward() needs a ranker made for training");
  m.check(weights, batch);
  PL_CHECK(batch.tokens() == m.tokens && batch.candidate_tokens() == m.candidates,
           "backward() follows forward() and loss() on the same batch");
  PL_CHECK(gradients.dense.size() == weights.dense.size(), "one gradient per dense weight");
  const auto row_values = static_cast<std::size_t>(m.lookup_count * m.config.table_width);
  PL_CHECK(gradients.table_rows.size() >= row_values, "one gradient row per lookup");
  std::fill(gradients.dense.begin(), gradients.dense.end(), 0.0F);
  if (m.candidates == 0) {
    std::fill_n(gradients.table_rows.begin(), row_values, 0.0F);
    return;
  }
  const Impl::Params params{weights.dense.data(), weights.table.data(), gradients.dense.data(),
                            gradients.table_rows.data()};
  m.head_grad(ctx, params);
  for (int layer = m.config.layers - 1; layer >= 0; --layer) {
    m.block_grad(ctx, params, layer, batch);
  }
  m.tokens_grad(ctx, params, batch);
}

std::span<const std::int32_t> Ranker::lookups() const {
  return {impl_->act.lookups, static_cast<std::size_t>(impl_->lookup_count)};
}

int Ranker::outputs() const { return impl_->outputs(); }
std::int64_t Ranker::max_lookups() const { return impl_->capacity.lookups; }
const ParameterLayout& Ranker::layout() const { return impl_->layout; }

std::size_t Ranker::memory_bytes() const {
  return impl_->act.bytes() +
         (impl_->rope.cos.capacity() + impl_->rope.sin.capacity()) * sizeof(float);
}

float activate(const features::Schema& schema, int output, float logit) {
  const double z = logit;
  const auto actions = static_cast<int>(schema.actions().size());
  if (output < actions) return static_cast<float>(sigmoid(z));
  const auto& target = schema.targets()[static_cast<std::size_t>(output - actions)];
  if (target.loss == features::TargetLoss::kSigmoidMae) {
    return static_cast<float>(target.cap * sigmoid(z));
  }
  return static_cast<float>(
      std::max(target.cap * std::tanh(softplus(z) / target.cap), kTweedieFloor));
}

}  // namespace paceline::model
