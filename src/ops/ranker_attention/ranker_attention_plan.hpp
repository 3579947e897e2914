// How a call of the CPU attention is cut into chunks: a pure function of its shapes.
//
// A chunk is a range of queries of one (example, key head), with all heads of the group. Long
// ranges are split; in the backward pass each part then sums its own key and value gradients, which
// are added in order of the parts. Chunks are claimed dearest first, so that no long example is
// started last.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "core/error.hpp"
#include "ops/ranker_attention/ranker_attention.hpp"
#include "ops/ranker_attention/ranker_attention_tiles.hpp"

namespace paceline::ops::attention {

// Queries x heads of a chunk, about: below it the packing of keys is repeated too often (measured
// 2 % at 1024 of head_dim 64), above it one long example leaves threads idle.
inline constexpr std::int64_t kChunkRows = 1024;

// One example's rows, as counted from the start of the packed arrays.
struct Example {
  std::int64_t first_row = 0;
  int keys = 0;  // N: its rows but the candidates
  int candidates = 0;
  std::int64_t first_query = 0;  // where its queries start in q, o, lse
  int queries = 0;
  int row_of_query = 0;  // row in the example of its query 0
};

inline Example example_of(const AttentionShape& s, std::int32_t b) {
  Example e;
  e.first_row = s.cu_rows[b];
  e.candidates = s.cu_candidates[b + 1] - s.cu_candidates[b];
  const int rows = s.cu_rows[b + 1] - s.cu_rows[b];
  PL_CHECK(e.candidates >= 0 && e.candidates <= rows, "candidates are rows of their example");
  e.keys = rows - e.candidates;
  e.first_query = s.candidates_only ? s.cu_candidates[b] : e.first_row;
  e.queries = s.candidates_only ? e.candidates : rows;
  e.row_of_query = s.candidates_only ? e.keys : 0;
  return e;
}

// Keys that query i of the example reads among the first `keys` rows.
inline int keys_read(const AttentionShape& s, const Example& e, int query) {
  const int row = query + e.row_of_query;
  return s.causal && row < e.keys ? row + 1 : e.keys;
}

struct Chunk {
  std::int64_t cost = 0;
  std::int64_t partial = 0;  // floats before its partial sums; used when parts > 1
  std::int32_t example = 0;
  std::int32_t key_head = 0;
  std::int32_t begin = 0;  // queries [begin, end) of the example
  std::int32_t end = 0;
  std::int32_t part = 0;
  std::int32_t parts = 1;
};

struct Plan {
  std::int64_t chunks = 0;
  std::int64_t partial_floats = 0;  // of all parts together
  int max_keys = 0;
};

// Floats of the key and value gradients of one part: two panel arrays.
inline std::int64_t partial_size(const AttentionShape& s, int keys) {
  return std::int64_t{2} * keys * pad_dim(s.head_dim);
}

inline void check_shape(const AttentionShape& s) {
  PL_CHECK(s.head_dim > 0 && s.head_dim % 8 == 0, "head_dim is a multiple of 8");
  PL_CHECK(s.key_heads > 0 && s.query_heads > 0 && s.query_heads % s.key_heads == 0,
           "query_heads is a multiple of key_heads");
  PL_CHECK(s.cap_kind == SoftCap::kNone || s.cap > 0.0F, "a soft cap is positive");
}

// Calls f(Chunk) for all chunks in order of example, key head and part.
template <typename F>
Plan for_chunks(const AttentionShape& s, F&& f) {
  const int group = s.query_heads / s.key_heads;
  Plan plan;
  for (std::int32_t b = 0; b < s.examples; ++b) {
    const Example e = example_of(s, b);
    if (e.keys + e.candidates == 0) continue;
    plan.max_keys = std::max(plan.max_keys, e.keys);
    const std::int64_t rows = std::int64_t{e.queries} * group;
    const auto wanted =
        static_cast<int>(std::max<std::int64_t>(1, (rows + kChunkRows - 1) / kChunkRows));
    // Even parts of whole strips.
    const int step =
        std::max(1, ((e.queries + wanted - 1) / wanted + kStrip - 1) / kStrip * kStrip);
    const int parts = std::max(1, (e.queries + step - 1) / step);
    for (int g = 0; g < s.key_heads; ++g) {
      for (int part = 0; part < parts; ++part) {
        Chunk c;
        c.example = b;
        c.key_head = g;
        c.begin = part * step;
        c.end = std::min(e.queries, c.begin + step);
        c.part = part;
        c.parts = parts;
        c.partial = plan.partial_floats;
        c.cost = (std::int64_t{c.end - c.begin} * group + kStrip) * (e.keys + 1);
        if (parts > 1) plan.partial_floats += partial_size(s, e.keys);
        f(c);
        ++plan.chunks;
      }
    }
  }
  return plan;
}

inline Plan measure(const AttentionShape& s) {
  return for_chunks(s, [](const Chunk&) {});
}

// Fills chunks (measure(s).chunks of them), dearest first.
inline void make_chunks(const AttentionShape& s, std::span<Chunk> chunks) {
  std::size_t n = 0;
  for_chunks(s, [&](const Chunk& c) { chunks[n++] = c; });
  std::sort(chunks.begin(), chunks.end(), [](const Chunk& x, const Chunk& y) {
    if (x.cost != y.cost) return x.cost > y.cost;
    if (x.example != y.example) return x.example < y.example;
    if (x.key_head != y.key_head) return x.key_head < y.key_head;
    return x.part < y.part;
  });
}

// Hands out pieces of one scratch buffer; with a null base it only counts.
class Carver {
 public:
  explicit Carver(std::byte* base) : base_(base) {}

  template <typename T>
  T* take(std::int64_t n) {
    T* p = base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + used_);
    used_ += align_up(static_cast<std::size_t>(n) * sizeof(T), kCacheLine);
    return p;
  }
  std::size_t used() const { return used_; }

 private:
  std::byte* base_;
  std::size_t used_ = 0;
};

}  // namespace paceline::ops::attention
