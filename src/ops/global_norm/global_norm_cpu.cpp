#include <cmath>

#include "ops/global_norm/global_norm.hpp"
#include "ops/split.hpp"

namespace paceline::ops {

double global_norm_cpu(Context& ctx, std::int64_t n, const float* g) {
  const std::int64_t chunks = ceil_div(n, kChunkElements);
  auto* partial = reinterpret_cast<double*>(
      ctx.shared_scratch(static_cast<std::size_t>(chunks) * sizeof(double)));
  for_chunks(ctx, n, kChunkElements, [&](std::int64_t begin, std::int64_t end, int) {
    __m256d low = _mm256_setzero_pd();
    __m256d high = _mm256_setzero_pd();
    simd::for_vectors(end - begin, [&](std::int64_t i, auto lanes) {
      const __m256 v = lanes.load(g + begin + i);
      const __m256d a = simd::low_pd(v);
      const __m256d b = simd::high_pd(v);
      low = _mm256_fmadd_pd(a, a, low);
      high = _mm256_fmadd_pd(b, b, high);
    });
    partial[begin / kChunkElements] = simd::sum_lanes(_mm256_add_pd(low, high));
  });
  double sum = 0.0;
  for (std::int64_t c = 0; c < chunks; ++c) sum += partial[c];
  return std::sqrt(sum);
}

}  // namespace paceline::ops
