#include "model/activations_cuda.hpp"

#include <algorithm>
#include <utility>

#include "ops/loss/loss_cuda.hpp"
#include "ops/rms_norm/rms_norm_cuda.hpp"

namespace paceline::model {
namespace {

template <typename T>
struct Placing {
  device::Arena& arena;
  const ModelConfig& config;
  const SizesCuda& sizes;
  bool training;
  std::int64_t q = config.query_width(), k = config.key_width(), width = config.width;

  // What belongs to the rows that go on through a block.
  void rows_of(BlockCuda<T>& b, std::int64_t rows) {
    b.q = arena.take<T>(rows * q);
    b.q_rms = arena.take<float>(rows);
    b.o = arena.take<T>(rows * q);
    b.lse = arena.take<float>(rows * config.query_heads);
    b.h_mid = arena.take<T>(rows * width);
    b.mlp_norm = arena.take<T>(rows * width);
    b.mlp_rms = arena.take<float>(rows);
    b.mlp_up = arena.take<T>(rows * config.ffn);
    b.mlp_act = arena.take<T>(rows * config.ffn);
    b.h_out = arena.take<T>(rows * width);
  }
  void tokens_of(BlockCuda<T>& b, T* h) {
    const std::int64_t tokens = sizes.capacity.tokens;
    b.h = h;
    b.norm = arena.take<T>(tokens * width);
    b.norm_rms = arena.take<float>(tokens);
    b.k = arena.take<T>(tokens * k);
    b.k_rms = arena.take<float>(tokens);
  }
  BlockCuda<T> inner(T* h) {
    BlockCuda<T> b;
    const std::int64_t tokens = sizes.capacity.tokens;
    tokens_of(b, h);
    b.q_stride = b.kv_stride = q + 2 * k;
    b.q_raw = arena.take<T>(tokens * b.q_stride);
    b.k_raw = b.q_raw + q;
    b.v = b.k_raw + k;
    rows_of(b, tokens);
    return b;
  }
  BlockCuda<T> last(T* h) {
    BlockCuda<T> b;
    const std::int64_t candidates = sizes.capacity.candidates;
    tokens_of(b, h);
    b.query_in = arena.take<T>(candidates * width);
    b.q_stride = q;
    b.q_raw = arena.take<T>(candidates * q);
    b.kv_stride = 2 * k;
    b.k_raw = arena.take<T>(sizes.capacity.tokens * b.kv_stride);
    b.v = b.k_raw + k;
    rows_of(b, candidates);
    return b;
  }
  GradCuda<T> grad() {
    GradCuda<T> g;
    const std::int64_t tokens = sizes.capacity.tokens, candidates = sizes.capacity.candidates;
    g.dh = arena.take<T>(tokens * width);
    g.dh_candidates = arena.take<T>(candidates * width);
    g.wide = arena.take<T>(tokens * std::max<std::int64_t>(config.ffn, q + 2 * k));
    g.rows = arena.take<T>(tokens * std::max(width, q));
    g.dq = arena.take<T>(tokens * q);
    g.dk = arena.take<T>(tokens * k);
    g.dq_raw = arena.take<T>(candidates * q);
    g.query_in = arena.take<T>(candidates * width);
    g.delta = arena.take<float>(tokens * config.query_heads);
    g.partials = arena.take<float>(ops::kNormPartials * std::max(width, q));
    g.kind_rows = arena.take<T>(sizes.kind_rows * width);
    return g;
  }
};

}  // namespace

template <typename T>
ActivationsCuda<T> place_activations(device::Arena& arena, const ModelConfig& config,
                                     const SizesCuda& sizes, bool training) {
  Placing<T> placing{arena, config, sizes, training};
  const std::int64_t width = config.width, candidates = sizes.capacity.candidates;
  ActivationsCuda<T> a;
  T* h = arena.take<T>(sizes.capacity.tokens * width);
  for (int layer = 0; layer + 1 < config.layers; ++layer) {
    if (training || layer == 0) {
      a.blocks.push_back(placing.inner(h));
    } else {
      // Two streams of h in turn; all else is shared.
      BlockCuda<T> b = a.blocks.back();
      std::swap(b.h, b.h_out);
      a.blocks.push_back(b);
    }
    h = a.blocks.back().h_out;
  }
  a.blocks.push_back(placing.last(h));
  for (std::size_t k = 0; k < sizes.entries.size(); ++k) {
    KindCuda<T>& kind = a.kinds.emplace_back();
    const std::int64_t columns = sizes.k_padded[k];
    kind.x = arena.take<T>(sizes.entries[k] * columns);
    kind.weight = arena.take<T>(width * columns);
    if (!training) continue;
    kind.d_weight = arena.take<float>(width * columns);
    if (sizes.lookups[k] > 0) kind.dx = arena.take<T>(sizes.entries[k] * columns);
  }
  a.kind_rows = arena.take<T>(sizes.kind_rows * width);
  a.source = arena.take<std::int32_t>(sizes.capacity.tokens);
  a.token_of = arena.take<std::int32_t>(sizes.kind_rows);
  a.candidate_position = arena.take<std::int32_t>(candidates);
  a.final_norm = arena.take<T>(candidates * width);
  a.final_rms = arena.take<float>(candidates);
  a.head = arena.take<float>(candidates * sizes.head_stride);
  a.d_head = arena.take<T>(candidates * sizes.head_stride);
  a.loss_partials = arena.take<double>(ops::kLossPartials);
  a.loss = arena.take<double>(1);
  if (training) a.grad = placing.grad();
  return a;
}

template ActivationsCuda<float> place_activations<float>(device::Arena&, const ModelConfig&,
                                                         const SizesCuda&, bool);
template ActivationsCuda<device::BFloat16> place_activations<device::BFloat16>(device::Arena&,
                                                                               const ModelConfig&,
                                                                               const SizesCuda&,
                                                                               bool);

}  // namespace paceline::model
