#include <algorithm>
#include <cmath>

#include "ops/rms_norm/rms_norm.hpp"
#include "ops/split.hpp"

namespace paceline::ops {
namespace {

// Elements whose scale gradients are one partial sum.
constexpr std::int64_t kPartialElements = 16384;

}  // namespace

void rms_norm_cpu(Context& ctx, const RmsNormArgs& args) {
  const std::int64_t width = args.width;
  for_chunks(ctx, args.rows, rows_per_chunk(width), [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t row = begin; row < end; ++row) {
      const float* x = args.x + row * width;
      float* y = args.y + row * width;
      const float mean = simd::sum_squares(x, width) / static_cast<float>(width);
      const float inv = 1.0F / std::sqrt(mean + args.eps);
      args.inv_rms[row] = inv;
      const __m256 r = _mm256_set1_ps(inv);
      simd::for_vectors(width, [&](std::int64_t i, auto lanes) {
        const __m256 n = _mm256_mul_ps(lanes.load(x + i), r);
        lanes.store(y + i, _mm256_mul_ps(n, lanes.load(args.scale + i)));
      });
    }
  });
}

// With g = dy * scale and r = inv_rms: dx = r g - x r^3 mean(g x), dscale = sum of dy x r.
void rms_norm_grad_cpu(Context& ctx, const RmsNormGradArgs& args) {
  const std::int64_t width = args.width;
  const std::int64_t step = rows_per_chunk(width, kPartialElements);
  const std::int64_t chunks = ceil_div(args.rows, step);
  auto* partial = reinterpret_cast<float*>(
      ctx.shared_scratch(static_cast<std::size_t>(chunks * width) * sizeof(float)));
  for_chunks(ctx, args.rows, step, [&](std::int64_t begin, std::int64_t end, int) {
    float* dscale = partial + begin / step * width;
    std::fill_n(dscale, width, 0.0F);
    for (std::int64_t row = begin; row < end; ++row) {
      const float* x = args.x + row * width;
      const float* dy = args.dy + row * width;
      float* dx = args.dx + row * width;
      const float inv = args.inv_rms[row];
      const __m256 r = _mm256_set1_ps(inv);
      __m256 dot = _mm256_setzero_ps();
      simd::for_vectors(width, [&](std::int64_t i, auto lanes) {
        const __m256 dyx = _mm256_mul_ps(lanes.load(dy + i), lanes.load(x + i));
        dot = _mm256_fmadd_ps(dyx, lanes.load(args.scale + i), dot);
        lanes.store(dscale + i, _mm256_fmadd_ps(dyx, r, lanes.load(dscale + i)));
      });
      const float mean = simd::sum_lanes(dot) / static_cast<float>(width);
      const __m256 back = _mm256_set1_ps(inv * inv * inv * mean);
      simd::for_vectors(width, [&](std::int64_t i, auto lanes) {
        const __m256 g = _mm256_mul_ps(lanes.load(dy + i), lanes.load(args.scale + i));
        const __m256 base = args.accumulate ? lanes.load(dx + i) : _mm256_setzero_ps();
        const __m256 direct = _mm256_fmadd_ps(g, r, base);
        lanes.store(dx + i, _mm256_fnmadd_ps(lanes.load(x + i), back, direct));
      });
    }
  });
  add_partials(ctx, chunks, width, partial, args.dscale, true);
}

}  // namespace paceline::ops
