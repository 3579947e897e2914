// How element-wise and row-wise ops split their work: chunks fixed by shapes alone.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/context.hpp"
#include "ops/simd.hpp"

namespace paceline::ops {

// Elements of a chunk: 32 KiB of fp32, about what a first-level cache holds.
inline constexpr std::int64_t kChunkElements = 8192;

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// Rows of a chunk of `elements` elements, at least one.
constexpr std::int64_t rows_per_chunk(std::int64_t width, std::int64_t elements = kChunkElements) {
  return std::max<std::int64_t>(1, elements / std::max<std::int64_t>(1, width));
}

// f(begin, end, worker) over [0, n) in chunks of `step`.
template <typename F>
void for_chunks(Context& ctx, std::int64_t n, std::int64_t step, F&& f) {
  ctx.pool().run(ceil_div(n, step), [&](std::int64_t chunk, int worker) {
    const std::int64_t begin = chunk * step;
    f(begin, std::min(n, begin + step), worker);
  });
}

// out[i] = (accumulate ? out[i] : 0) + partial[0][i] + partial[1][i] + ..., in this order;
// partial [parts, n] dense.
inline void add_partials(Context& ctx, std::int64_t parts, std::int64_t n, const float* partial,
                         float* out, bool accumulate) {
  for_chunks(ctx, n, kChunkElements, [&](std::int64_t begin, std::int64_t end, int) {
    simd::for_vectors(end - begin, [&](std::int64_t j, auto lanes) {
      const std::int64_t i = begin + j;
      __m256 sum = accumulate ? lanes.load(out + i) : _mm256_setzero_ps();
      for (std::int64_t p = 0; p < parts; ++p) {
        sum = _mm256_add_ps(sum, lanes.load(partial + p * n + i));
      }
      lanes.store(out + i, sum);
    });
  });
}

}  // namespace paceline::ops
