// Tokens of a batch: which row each entry is, which table rows it looks up, building and gradients.
#include <algorithm>
#include <cmath>

#include "model/ranker_impl.hpp"

namespace paceline::model {

void Ranker::Impl::index_tokens(const features::Batch& batch) {
  const int prefix = schema.prefix_tokens();
  const auto cu = batch.cu_tokens();
  const auto history = batch.history_len();
  const auto candidate = batch.candidate_len();
  std::int32_t* to_history = act.token_index[static_cast<std::size_t>(schema.history_kind())];
  std::int32_t* to_candidate = act.token_index[static_cast<std::size_t>(schema.candidate_kind())];
  for (std::size_t b = 0; b < static_cast<std::size_t>(batch.examples()); ++b) {
    std::int32_t token = cu[b];
    for (std::size_t p = 0; p < static_cast<std::size_t>(prefix); ++p) {
      act.token_index[p][b] = token++;
    }
    for (std::int32_t i = 0; i < history[b]; ++i) *to_history++ = token++;
    for (std::int32_t i = 0; i < candidate[b]; ++i) *to_candidate++ = token++;
  }
  const auto positions = batch.positions();
  const std::int32_t* at = act.token_index[static_cast<std::size_t>(schema.candidate_kind())];
  for (std::int64_t c = 0; c < candidates; ++c) {
    act.candidate_positions[c] = positions[static_cast<std::size_t>(at[c])];
  }
}

void Ranker::Impl::collect_lookups(const features::Batch& batch) {
  lookup_count = 0;
  for (int k = 0; k < static_cast<int>(schema.kinds().size()); ++k) {
    const std::int64_t per_entry = lookups_per_entry[static_cast<std::size_t>(k)];
    const std::int64_t entries = batch.entries(k);
    std::int64_t column = 0;
    const auto& kind = schema.kinds()[static_cast<std::size_t>(k)];
    for (std::size_t f = 0; f < kind.features.size(); ++f) {
      if (kind.features[f].kind != features::Kind::kId) continue;
      const std::int64_t hashes = kind.features[f].hashes;
      const std::int32_t* rows = batch.feature_int(k, static_cast<int>(f)).data();
      std::int32_t* out = act.lookups + lookup_count + column;
      for (std::int64_t e = 0; e < entries; ++e) {
        std::copy_n(rows + e * hashes, hashes, out + e * per_entry);
      }
      column += hashes;
    }
    lookup_count += entries * per_entry;
  }
}

ops::TokenBuildArgs Ranker::Impl::token_args(int kind, const Params& params,
                                             const features::Batch& batch) {
  const auto k = static_cast<std::size_t>(kind);
  const auto& features = schema.kinds()[k].features;
  for (std::size_t i = 0; i < features.size(); ++i) {
    const int f = static_cast<int>(i);
    switch (inputs[k][i].column) {
      case ops::TokenColumn::kTableRows:
      case ops::TokenColumn::kOneHot:
        inputs[k][i].ints = batch.feature_int(kind, f).data();
        break;
      case ops::TokenColumn::kNumber:
        inputs[k][i].floats = batch.feature_float(kind, f).data();
        break;
      case ops::TokenColumn::kMask:
        inputs[k][i].masks = batch.feature_mask(kind, f).data();
        break;
    }
  }
  ops::TokenBuildArgs args;
  args.entries = batch.entries(kind);
  args.inputs = inputs[k];
  args.table = params.table;
  args.table_width = config.table_width;
  args.width = schema.kinds()[k].token_width(config.table_width);
  args.model = config.width;
  args.multiplier = std::sqrt(static_cast<float>(config.width));
  args.w = params.at(token_weights[k]);
  args.token_index = act.token_index[k];
  args.h = act.blocks.front().h;
  return args;
}

void Ranker::Impl::build_tokens(ops::Context& ctx, const Params& params,
                                const features::Batch& batch) {
  for (int kind = 0; kind < static_cast<int>(schema.kinds().size()); ++kind) {
    const auto k = static_cast<std::size_t>(kind);
    if (token_weights[k] < 0) {
      // A token without features is zero; it still takes its place as a key.
      for (std::int32_t e = 0; e < batch.entries(kind); ++e) {
        std::fill_n(act.blocks.front().h + std::int64_t{act.token_index[k][e]} * config.width,
                    config.width, 0.0F);
      }
    } else if (batch.entries(kind) > 0) {
      ops.token_build(ctx, token_args(kind, params, batch));
    }
  }
}

void Ranker::Impl::tokens_grad(ops::Context& ctx, const Params& params,
                               const features::Batch& batch) {
  float* d_rows = params.d_table_rows;
  for (int kind = 0; kind < static_cast<int>(schema.kinds().size()); ++kind) {
    const auto k = static_cast<std::size_t>(kind);
    if (token_weights[k] < 0 || batch.entries(kind) == 0) continue;
    ops::TokenBuildGradArgs args;
    args.forward = token_args(kind, params, batch);
    args.forward.h = nullptr;
    args.dh = act.grad.dh;
    args.dw = params.grad(token_weights[k]);
    args.d_rows = d_rows;
    ops.token_build_grad(ctx, args);
    d_rows += batch.entries(kind) * lookups_per_entry[k] * config.table_width;
  }
}

}  // namespace paceline::model
