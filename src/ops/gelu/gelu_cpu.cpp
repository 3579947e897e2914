// With u = sqrt(2 / pi) (x + 0.044715 x^3): (1 + tanh u) / 2 = 1 / (1 + e^-2u) = s, so y = x s and
// y' = s + x (1 - s) s 2u', where 1 - s = e^-2u s loses no digits for large x.
#include "ops/gelu/gelu.hpp"

#include "ops/split.hpp"

namespace paceline::ops {
namespace {

constexpr float kTwoRoot2OverPi = 1.59576912160573071F;  // 2 sqrt(2 / pi)
constexpr float kCubic = 0.044715F;

// Beyond +-16 the gate is shut or open to the last bit; NaN stays NaN.
struct Gate {
  __m256 x, e, s, slope;  // x within +-16, e^-2u, s, 2u'
  explicit Gate(__m256 v)
      : x(_mm256_min_ps(_mm256_set1_ps(16.0F), _mm256_max_ps(_mm256_set1_ps(-16.0F), v))) {
    const __m256 x2 = _mm256_mul_ps(x, x);
    const __m256 one = _mm256_set1_ps(1.0F);
    const __m256 bend = _mm256_fmadd_ps(_mm256_set1_ps(kCubic), x2, one);
    const __m256 minus_u2 = _mm256_mul_ps(_mm256_set1_ps(-kTwoRoot2OverPi), _mm256_mul_ps(x, bend));
    e = simd::exp_ps(minus_u2);
    s = _mm256_div_ps(one, _mm256_add_ps(one, e));
    slope = _mm256_mul_ps(_mm256_set1_ps(kTwoRoot2OverPi),
                          _mm256_fmadd_ps(_mm256_set1_ps(3.0F * kCubic), x2, one));
  }
};

}  // namespace

void gelu_cpu(Context& ctx, std::int64_t n, const float* x, float* y) {
  for_chunks(ctx, n, kChunkElements, [&](std::int64_t begin, std::int64_t end, int) {
    simd::for_vectors(end - begin, [&](std::int64_t i, auto lanes) {
      const __m256 v = lanes.load(x + begin + i);
      lanes.store(y + begin + i, _mm256_mul_ps(v, Gate(v).s));
    });
  });
}

void gelu_grad_cpu(Context& ctx, std::int64_t n, const float* x, const float* dy, float* dx) {
  for_chunks(ctx, n, kChunkElements, [&](std::int64_t begin, std::int64_t end, int) {
    simd::for_vectors(end - begin, [&](std::int64_t i, auto lanes) {
      const Gate gate(lanes.load(x + begin + i));
      const __m256 rest = _mm256_mul_ps(gate.e, gate.s);  // 1 - s
      const __m256 curve = _mm256_mul_ps(_mm256_mul_ps(gate.x, rest), gate.slope);
      const __m256 slope = _mm256_fmadd_ps(curve, gate.s, gate.s);
      lanes.store(dx + begin + i, _mm256_mul_ps(lanes.load(dy + begin + i), slope));
    });
  });
}

}  // namespace paceline::ops
