// Backward of the ranker attention on the CPU.
//
// With D = sum(do * o) by row, p = exp(logit - lse) recomputed tile by tile:
//   dp = do . v, ds = scale * slope * p * (dp - D), dq = ds k, dk = ds^T q, dv = p^T do.
// A chunk keeps the gradients of its keys and values as panels. Where a (example, key head) has
// several chunks, each sums its own and a second loop adds them in order of the parts. A
// candidate's own key is read by one query only (of each head of the group), so its term is done
// row by row.
#include <array>

#include "ops/ranker_attention/ranker_attention.hpp"
#include "ops/ranker_attention/ranker_attention_math.hpp"
#include "ops/ranker_attention/ranker_attention_plan.hpp"
#include "ops/ranker_attention/ranker_attention_tiles.hpp"

namespace paceline::ops {
namespace {

using namespace attention;  // NOLINT: the private half of this op

constexpr int kKeyStrips = kBlockKeys / kStrip;

struct Scratch {
  float* keys_t;    // transposed panels of all keys
  float* values_t;  // transposed panels of all values
  float* keys;      // panels of all keys
  float* sums;      // panels of the key gradients, then of the value gradients
  float* q;         // panels of a tile's queries
  float* d_o;       // panels of a tile's output gradients
  float* dq;        // panels of a tile's query gradients
  float* p;         // tile: logits, then weights
  float* ds;        // tile: weight gradients, then logit gradients
  std::size_t bytes;

  Scratch(std::byte* base, int key_count, const AttentionShape& s) {
    Carver carve(base);
    const std::int64_t dim = pad_dim(s.head_dim);
    keys_t = carve.take<float>(pad_dim(key_count) * dim);
    values_t = carve.take<float>(pad_dim(key_count) * dim);
    keys = carve.take<float>(key_count * dim);
    sums = carve.take<float>(partial_size(s, key_count));
    q = carve.take<float>(kBlockRows * dim);
    d_o = carve.take<float>(kBlockRows * dim);
    dq = carve.take<float>(kBlockRows * dim);
    p = carve.take<float>(kBlockRows * kTileStride);
    ds = carve.take<float>(kBlockRows * kTileStride);
    bytes = carve.used();
  }
};

// logit gradient over scale and slope: p (dp - D).
inline __m256 logit_gradient(__m256 p, __m256 dp, __m256 delta, __m256 scale_slope) {
  return _mm256_mul_ps(_mm256_mul_ps(p, scale_slope), _mm256_sub_ps(dp, delta));
}

// Turns n products of a row into weights and n weight gradients into logit gradients, zeros up to
// width. lse2: log2 of the softmax sum. One copy, as in the forward.
template <SoftCap kCap>
[[gnu::noinline]] void gradient_row(const Logit<kCap>& logit, float scale, int n, int width,
                                    float lse2, float delta, float* p, float* ds) {
  const __m256 shift = _mm256_set1_ps(lse2);
  const __m256 d = _mm256_set1_ps(delta);
  const __m256 sc = _mm256_set1_ps(scale);
  const auto eight = [&](int j, __m256 lanes) {
    const __m256 x = _mm256_load_ps(p + j);
    __m256 w;
    __m256 factor = sc;
    if constexpr (kCap == SoftCap::kNone) {
      w = exp2_ps(_mm256_fmsub_ps(x, logit.in, shift));
    } else {
      __m256 slope;
      w = exp2_ps(_mm256_sub_ps(logit.with_slope(x, slope), shift));
      factor = _mm256_mul_ps(sc, slope);
    }
    const __m256 g = logit_gradient(w, _mm256_load_ps(ds + j), d, factor);
    _mm256_store_ps(p + j, _mm256_and_ps(w, lanes));
    _mm256_store_ps(ds + j, _mm256_and_ps(g, lanes));
  };
  const __m256 all = first_lanes(8);
  int j = 0;
  for (; j + 8 <= n; j += 8) eight(j, all);
  if (j < n) {
    eight(j, first_lanes(n - j));
    j += 8;
  }
  for (; j < width; j += 8) {
    _mm256_store_ps(p + j, _mm256_setzero_ps());
    _mm256_store_ps(ds + j, _mm256_setzero_ps());
  }
}

template <SoftCap kCap>
class Backward {
 public:
  Backward(const AttentionGradArgs& args, const Chunk& chunk, const Logit<kCap>& logit,
           const Scratch& scratch, float* sums)
      : a_(args),
        s_(args.shape),
        logit_(logit),
        scratch_(scratch),
        e_(example_of(s_, chunk.example)),
        group_(s_.query_heads / s_.key_heads),
        key_head_(chunk.key_head),
        panels_(pad_dim(s_.head_dim) / kPanel),
        k_(args.k + e_.first_row * args.k_stride + key_head_ * s_.head_dim),
        v_(args.v + e_.first_row * args.v_stride + key_head_ * s_.head_dim),
        dk_(args.dk + e_.first_row * args.dk_stride + key_head_ * s_.head_dim),
        dv_(args.dv + e_.first_row * args.dv_stride + key_head_ * s_.head_dim),
        sum_k_(sums),
        sum_v_(sums + e_.keys * std::int64_t{panels_} * kPanel) {}

  // Leaves the sums over queries [begin, end) in the buffer given.
  void run(int begin, int end) {
    std::fill(sum_k_, sum_k_ + partial_size(s_, e_.keys), 0.0F);
    if (begin < end) {
      pack_transposed(k_, a_.k_stride, e_.keys, s_.head_dim, scratch_.keys_t);
      pack_transposed(v_, a_.v_stride, e_.keys, s_.head_dim, scratch_.values_t);
      for (int j = 0; j < e_.keys; ++j)
        pack_row(k_ + j * a_.k_stride, s_.head_dim, scratch_.keys + j * kPanel, key_stride());
    }
    const int last = end * group_;
    for (int r = begin * group_; r < last; r += kBlockRows)
      block(r, std::min(kBlockRows, last - r));
  }

 private:
  int query(int r) const { return r / group_; }
  int head(int r) const { return key_head_ * group_ + r % group_; }
  std::int64_t key_stride() const { return std::int64_t{e_.keys} * kPanel; }

  void block(int first, int rows) {
    for (int r = 0; r < rows; ++r) start_row(first + r, r);
    const std::int64_t dim = panels_ * kPanel;
    std::fill(scratch_.dq, scratch_.dq + kBlockRows * dim, 0.0F);
    const int step = key_block_size(e_.keys);
    for (int k0 = 0; k0 < e_.keys; k0 += step)
      key_block(first, rows, k0, std::min(step, e_.keys - k0));
    for (int r = 0; r < rows; ++r) finish_row(first + r, r);
  }

  void start_row(int row, int r) {
    const int dim = s_.head_dim;
    const std::int64_t t = e_.first_query + query(row);
    const int h = head(row);
    const float* d_o = a_.d_o + t * a_.do_stride + h * dim;
    pack_row(a_.q + t * a_.q_stride + h * dim, dim, scratch_.q + r * kPanel, kBlockStride);
    pack_row(d_o, dim, scratch_.d_o + r * kPanel, kBlockStride);
    const auto u = static_cast<std::size_t>(r);
    delta_[u] = dot(d_o, a_.o + t * a_.o_stride + h * dim, dim);
    lse2_[u] = a_.lse[t * s_.query_heads + h] * kLog2E;
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
    // Later rows read no fewer keys, so the first reader of a strip of keys starts its sums.
    std::array<int, kKeyStrips> reader;
    for (int j = 0, r = 0; j < width; j += kStrip) {
      while (read[static_cast<std::size_t>(r)] <= j) ++r;
      reader[static_cast<std::size_t>(j / kStrip)] = r;
    }
    const std::int64_t at_t = k0 * std::int64_t{panels_} * kPanel;
    const std::int64_t at = k0 * std::int64_t{kPanel};
    tile_scores(scratch_.q, kBlockStride, panels_, rows, strip.data(), scratch_.keys_t + at_t,
                width, scratch_.p);
    tile_scores(scratch_.d_o, kBlockStride, panels_, rows, strip.data(), scratch_.values_t + at_t,
                width, scratch_.ds);
    for (int r = 0; r < rows; ++r) {
      const auto u = static_cast<std::size_t>(r);
      gradient_row(logit_, s_.scale, read[u], width, lse2_[u], delta_[u],
                   scratch_.p + r * kTileStride, scratch_.ds + r * kTileStride);
    }
    keys_times_rows(scratch_.p, rows, reader.data(), width, scratch_.d_o, kBlockStride, panels_,
                    sum_v_ + at, key_stride());
    keys_times_rows(scratch_.ds, rows, reader.data(), width, scratch_.q, kBlockStride, panels_,
                    sum_k_ + at, key_stride());
    rows_times_keys<false>(scratch_.ds, rows, strip.data(), scratch_.keys + at, key_stride(),
                           panels_, nullptr, scratch_.dq, kBlockStride);
  }

  void finish_row(int row, int r) {
    const int dim = s_.head_dim;
    const int i = query(row);
    const int h = head(row);
    const std::int64_t t = e_.first_query + i;
    float* dq = a_.dq + t * a_.dq_stride + h * dim;
    unpack_row(scratch_.dq + r * kPanel, kBlockStride, dim, 1.0F, dq);
    const int own = i + e_.row_of_query;
    if (own < e_.keys) return;
    const auto u = static_cast<std::size_t>(r);
    const float* q = a_.q + t * a_.q_stride + h * dim;
    const float* d_o = a_.d_o + t * a_.do_stride + h * dim;
    const float* k = k_ + own * a_.k_stride;
    const float* v = v_ + own * a_.v_stride;
    __m256 slope;
    const __m256 x = logit_.with_slope(_mm256_set1_ps(dot(q, k, dim)), slope);
    const __m256 p = exp2_ps(_mm256_sub_ps(x, _mm256_set1_ps(lse2_[u])));
    const float ds = _mm256_cvtss_f32(
        logit_gradient(p, _mm256_set1_ps(dot(d_o, v, dim)), _mm256_set1_ps(delta_[u]),
                       _mm256_mul_ps(slope, _mm256_set1_ps(s_.scale))));
    add_scaled(ds, k, dim, dq);
    float* dk = dk_ + own * a_.dk_stride;
    float* dv = dv_ + own * a_.dv_stride;
    if (h % group_ == 0) {
      std::fill(dk, dk + dim, 0.0F);
      std::fill(dv, dv + dim, 0.0F);
    }
    add_scaled(ds, q, dim, dk);
    add_scaled(_mm256_cvtss_f32(p), d_o, dim, dv);
  }

  static constexpr std::int64_t kBlockStride = kBlockRows * kPanel;

  const AttentionGradArgs& a_;
  const AttentionShape& s_;
  const Logit<kCap>& logit_;
  const Scratch& scratch_;
  const Example e_;
  const int group_;
  const int key_head_;
  const int panels_;
  const float* const k_;
  const float* const v_;
  float* const dk_;
  float* const dv_;
  float* const sum_k_;
  float* const sum_v_;
  std::array<float, kBlockRows> delta_;
  std::array<float, kBlockRows> lse2_;
};

// Writes the gradients of one (example, key head) from the panels of its first part.
void write_sums(const AttentionGradArgs& a, const Chunk& c, const float* sums) {
  const AttentionShape& s = a.shape;
  const Example e = example_of(s, c.example);
  const std::int64_t stride = std::int64_t{e.keys} * kPanel;
  const float* sum_v = sums + partial_size(s, e.keys) / 2;
  for (int j = 0; j < e.keys; ++j) {
    const std::int64_t t = e.first_row + j;
    unpack_row(sums + j * kPanel, stride, s.head_dim, 1.0F,
               a.dk + t * a.dk_stride + c.key_head * s.head_dim);
    unpack_row(sum_v + j * kPanel, stride, s.head_dim, 1.0F,
               a.dv + t * a.dv_stride + c.key_head * s.head_dim);
  }
}

// Adds the parts of one (example, key head), which lie behind each other, in order.
void add_parts(const AttentionShape& s, const Chunk& c, float* first) {
  const std::int64_t n = partial_size(s, example_of(s, c.example).keys);
  for (int part = 1; part < c.parts; ++part) {
    const float* x = first + part * n;
    for (std::int64_t i = 0; i < n; ++i) first[i] += x[i];
  }
}

}  // namespace

void ranker_attention_grad_cpu(Context& ctx, const AttentionGradArgs& args) {
  const AttentionShape& s = args.shape;
  check_shape(s);
  const Plan plan = measure(s);
  if (plan.chunks == 0) return;
  const std::size_t list_bytes = align_up(static_cast<std::size_t>(plan.chunks) * sizeof(Chunk));
  Carver carve(ctx.shared_scratch(list_bytes +
                                  static_cast<std::size_t>(plan.partial_floats) * sizeof(float)));
  const std::span<Chunk> chunks(carve.take<Chunk>(plan.chunks),
                                static_cast<std::size_t>(plan.chunks));
  float* partials = carve.take<float>(plan.partial_floats);
  make_chunks(s, chunks);
  const std::size_t bytes = Scratch(nullptr, plan.max_keys, s).bytes;
  for (int w = 0; w < ctx.pool().threads(); ++w) ctx.scratch(w, bytes);
  with_logit(s, [&](const auto& logit) {
    ctx.pool().run(plan.chunks, [&](std::int64_t i, int worker) {
      const Chunk& c = chunks[static_cast<std::size_t>(i)];
      const Scratch scratch(ctx.scratch(worker, bytes), plan.max_keys, s);
      float* sums = c.parts > 1 ? partials + c.partial : scratch.sums;
      Backward(args, c, logit, scratch, sums).run(c.begin, c.end);
      if (c.parts == 1) write_sums(args, c, sums);
    });
  });
  if (plan.partial_floats == 0) return;
  ctx.pool().run(plan.chunks, [&](std::int64_t i, int) {
    const Chunk& c = chunks[static_cast<std::size_t>(i)];
    if (c.parts == 1 || c.part != 0) return;
    add_parts(s, c, partials + c.partial);
    write_sums(args, c, partials + c.partial);
  });
}

}  // namespace paceline::ops
