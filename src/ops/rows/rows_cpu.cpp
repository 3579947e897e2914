#include <cstring>

#include "ops/rows/rows.hpp"
#include "ops/split.hpp"

namespace paceline::ops {

void gather_rows_cpu(Context& ctx, std::int64_t n, int width, const std::int32_t* index,
                     const float* in, float* out) {
  const std::int64_t w = width;
  for_chunks(ctx, n, rows_per_chunk(w), [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      std::memcpy(out + i * w, in + index[i] * w, static_cast<std::size_t>(w) * sizeof(float));
    }
  });
}

void scatter_add_rows_cpu(Context& ctx, std::int64_t n, int width, const std::int32_t* index,
                          const float* in, float* out) {
  const std::int64_t w = width;
  for_chunks(ctx, n, rows_per_chunk(w), [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      float* to = out + index[i] * w;
      simd::for_vectors(w, [&](std::int64_t c, auto lanes) {
        lanes.store(to + c, _mm256_add_ps(lanes.load(to + c), lanes.load(in + i * w + c)));
      });
    }
  });
}

}  // namespace paceline::ops
