// Forward of the ranker attention on the CPU.
//
// A chunk packs its keys transposed and its values as panels, then takes its queries in tiles:
// scores of a block of keys, online softmax by row, values added. A candidate starts from its own
// key (maximum its own logit, sum 1, output its own value); the history is merged into that.
#include <array>
#include <cmath>
#include <limits>

#include "ops/ranker_attention/ranker_attention.hpp"
#include "ops/ranker_attention/ranker_attention_math.hpp"
#include "ops/ranker_attention/ranker_attention_plan.hpp"
#include "ops/ranker_attention/ranker_attention_tiles.hpp"

namespace paceline::ops {
namespace {

using namespace attention;  // NOLINT: the private half of this op

struct Scratch {
  float* keys_t;  // transposed panels of all keys
  float* values;  // panels of all values
  float* q;       // panels of a tile's queries
  float* o;       // panels of a tile's outputs, not yet divided by the softmax sum
  float* tile;
  std::size_t bytes;

  Scratch(std::byte* base, int keys, int head_dim) {
    Carver carve(base);
    const std::int64_t dim = pad_dim(head_dim);
    keys_t = carve.take<float>(pad_dim(keys) * dim);
    values = carve.take<float>(keys * dim);
    q = carve.take<float>(kBlockRows * dim);
    o = carve.take<float>(kBlockRows * dim);
    tile = carve.take<float>(kBlockRows * kTileStride);
    bytes = carve.used();
  }
};

// Running softmax of the rows of a tile, in log2 units.
struct Softmax {
  std::array<float, kBlockRows> max;
  std::array<float, kBlockRows> sum;
  std::array<float, kBlockRows> alpha;  // what the block before is to be multiplied by
};

// Turns n logits of a row into weights 2^(logit - max), zeros up to width; returns nothing but the
// row's new maximum, sum and alpha. One copy, so that every row goes through the same instructions.
template <SoftCap kCap>
[[gnu::noinline]] void softmax_row(const Logit<kCap>& logit, int n, int width, float* s, float& max,
                                   float& sum, float& alpha) {
  const __m256 none = _mm256_set1_ps(-std::numeric_limits<float>::infinity());
  const int whole = n / 8 * 8;
  const __m256 edge = first_lanes(n - whole);
  __m256 top = _mm256_set1_ps(max);
  for (int j = 0; j < whole; j += 8) {
    const __m256 x = logit(_mm256_load_ps(s + j));
    if constexpr (kCap != SoftCap::kNone) _mm256_store_ps(s + j, x);
    top = _mm256_max_ps(top, x);
  }
  if (whole < n) {
    const __m256 x = logit(_mm256_load_ps(s + whole));
    if constexpr (kCap != SoftCap::kNone) _mm256_store_ps(s + whole, x);
    top = _mm256_max_ps(top, _mm256_blendv_ps(none, x, edge));
  }
  const float new_max = max_lanes(top);
  const __m256 m = _mm256_set1_ps(new_max);
  const auto weight = [&](const float* p) {
    const __m256 x = _mm256_load_ps(p);
    if constexpr (kCap == SoftCap::kNone) return exp2_ps(_mm256_fmsub_ps(x, logit.in, m));
    return exp2_ps(_mm256_sub_ps(x, m));
  };
  __m256 total = _mm256_setzero_ps();
  for (int j = 0; j < whole; j += 8) {
    const __m256 p = weight(s + j);
    _mm256_store_ps(s + j, p);
    total = _mm256_add_ps(total, p);
  }
  int j = whole;
  if (whole < n) {
    const __m256 p = _mm256_and_ps(weight(s + whole), edge);
    _mm256_store_ps(s + whole, p);
    total = _mm256_add_ps(total, p);
    j += 8;
  }
  for (; j < width; j += 8) _mm256_store_ps(s + j, _mm256_setzero_ps());
  alpha = _mm256_cvtss_f32(exp2_ps(_mm256_set1_ps(max - new_max)));
  sum = std::fma(sum, alpha, sum_lanes(total));
  max = new_max;
}

template <SoftCap kCap>
class Forward {
 public:
  Forward(const AttentionArgs& args, const Chunk& chunk, const Logit<kCap>& logit,
          const Scratch& scratch)
      : a_(args),
        s_(args.shape),
        logit_(logit),
        scratch_(scratch),
        e_(example_of(s_, chunk.example)),
        group_(s_.query_heads / s_.key_heads),
        key_head_(chunk.key_head),
        panels_(pad_dim(s_.head_dim) / kPanel),
        k_(args.k + e_.first_row * args.k_stride + key_head_ * s_.head_dim),
        v_(args.v + e_.first_row * args.v_stride + key_head_ * s_.head_dim) {}

  void run(int begin, int end) {
    pack_transposed(k_, a_.k_stride, e_.keys, s_.head_dim, scratch_.keys_t);
    for (int j = 0; j < e_.keys; ++j)
      pack_row(v_ + j * a_.v_stride, s_.head_dim, scratch_.values + j * kPanel, value_stride());
    const int last = end * group_;
    for (int r = begin * group_; r < last; r += kBlockRows)
      block(r, std::min(kBlockRows, last - r));
  }

 private:
  // Tile rows are (query, head of the group), head fastest.
  int query(int r) const { return r / group_; }
  int head(int r) const { return key_head_ * group_ + r % group_; }
  std::int64_t value_stride() const { return std::int64_t{e_.keys} * kPanel; }

  void block(int first, int rows) {
    for (int r = 0; r < rows; ++r) start_row(first + r, r);
    const int step = key_block_size(e_.keys);
    for (int k0 = 0; k0 < e_.keys; k0 += step)
      key_block(first, rows, k0, std::min(step, e_.keys - k0));
    for (int r = 0; r < rows; ++r) finish_row(first + r, r);
  }

  void start_row(int row, int r) {
    const int dim = s_.head_dim;
    const int i = query(row);
    const float* q = a_.q + (e_.first_query + i) * a_.q_stride + head(row) * dim;
    float* o = scratch_.o + r * kPanel;
    pack_row(q, dim, scratch_.q + r * kPanel, kBlockStride);
    const int own = i + e_.row_of_query;
    if (own >= e_.keys) {
      const float s = dot(q, k_ + own * a_.k_stride, dim);
      softmax_.max[static_cast<std::size_t>(r)] = _mm256_cvtss_f32(logit_(_mm256_set1_ps(s)));
      softmax_.sum[static_cast<std::size_t>(r)] = 1.0F;
      pack_row(v_ + own * a_.v_stride, dim, o, kBlockStride);
    } else {
      softmax_.max[static_cast<std::size_t>(r)] = -std::numeric_limits<float>::infinity();
      softmax_.sum[static_cast<std::size_t>(r)] = 0.0F;
      for (int c = 0; c < panels_; ++c) {
        _mm256_store_ps(o + c * kBlockStride, _mm256_setzero_ps());
        _mm256_store_ps(o + c * kBlockStride + 8, _mm256_setzero_ps());
      }
    }
  }

  void key_block(int first, int rows, int k0, int keys) {
    std::array<int, kBlockRows> read;
    std::array<int, kBlockRows / kStrip> strip{};
    int width = 0;
    for (int r = 0; r < rows; ++r) {
      const int n = std::clamp(keys_read(s_, e_, query(first + r)) - k0, 0, keys);
      read[static_cast<std::size_t>(r)] = n;
      auto& most = strip[static_cast<std::size_t>(r / kStrip)];
      most = std::max(most, n);
      width = std::max(width, n);
    }
    if (width == 0) return;
    const std::int64_t dim = panels_ * kPanel;
    tile_scores(scratch_.q, kBlockStride, panels_, rows, strip.data(), scratch_.keys_t + k0 * dim,
                width, scratch_.tile);
    for (int r = 0; r < rows; ++r) {
      const auto u = static_cast<std::size_t>(r);
      softmax_row(logit_, read[u], strip[u / kStrip], scratch_.tile + r * kTileStride,
                  softmax_.max[u], softmax_.sum[u], softmax_.alpha[u]);
    }
    rows_times_keys<true>(scratch_.tile, rows, strip.data(), scratch_.values + k0 * kPanel,
                          value_stride(), panels_, softmax_.alpha.data(), scratch_.o, kBlockStride);
  }

  void finish_row(int row, int r) {
    const auto u = static_cast<std::size_t>(r);
    const std::int64_t t = e_.first_query + query(row);
    const int h = head(row);
    unpack_row(scratch_.o + r * kPanel, kBlockStride, s_.head_dim, 1.0F / softmax_.sum[u],
               a_.o + t * a_.o_stride + h * s_.head_dim);
    a_.lse[t * s_.query_heads + h] = std::fma(softmax_.max[u], kLn2, std::log(softmax_.sum[u]));
  }

  static constexpr std::int64_t kBlockStride = kBlockRows * kPanel;

  const AttentionArgs& a_;
  const AttentionShape& s_;
  const Logit<kCap>& logit_;
  const Scratch& scratch_;
  const Example e_;
  const int group_;
  const int key_head_;
  const int panels_;
  const float* const k_;
  const float* const v_;
  Softmax softmax_;
};

}  // namespace

void ranker_attention_cpu(Context& ctx, const AttentionArgs& args) {
  const AttentionShape& s = args.shape;
  check_shape(s);
  const Plan plan = measure(s);
  if (plan.chunks == 0) return;
  Carver carve(ctx.shared_scratch(static_cast<std::size_t>(plan.chunks) * sizeof(Chunk)));
  const std::span<Chunk> chunks(carve.take<Chunk>(plan.chunks),
                                static_cast<std::size_t>(plan.chunks));
  make_chunks(s, chunks);
  const std::size_t bytes = Scratch(nullptr, plan.max_keys, s.head_dim).bytes;
  for (int w = 0; w < ctx.pool().threads(); ++w) ctx.scratch(w, bytes);
  with_logit(s, [&](const auto& logit) {
    ctx.pool().run(plan.chunks, [&](std::int64_t i, int worker) {
      const Chunk& c = chunks[static_cast<std::size_t>(i)];
      const Scratch scratch(ctx.scratch(worker, bytes), plan.max_keys, s.head_dim);
      Forward(args, c, logit, scratch).run(c.begin, c.end);
    });
  });
}

}  // namespace paceline::ops
