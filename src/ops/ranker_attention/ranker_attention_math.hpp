// Eight-lane fp32 functions of the CPU attention: exp2, tanh, soft caps, sums in a fixed order.
//
// Every product that feeds a sum is an explicit FMA, so that a compiler's choice to contract can
// never give the same row different bits in two places. NaN goes in and comes out.
#pragma once

#include <immintrin.h>

#include "ops/ranker_attention/ranker_attention.hpp"

namespace paceline::ops::attention {

inline constexpr float kLog2E = 1.44269504088896340736F;
inline constexpr float kLn2 = 0.693147180559945309417F;

// 2^x for x <= 127 (larger x is read as 127), within 1 ulp; exactly 0 below -126 (no subnormals),
// exactly 1 at 0. 2^x = 2^n 2^f with n = round(x), 2^f by a minimax polynomial (2e-9 relative).
inline __m256 exp2_ps(__m256 x) {
  const __m256 lowest = _mm256_set1_ps(-126.0F);
  const __m256 vanish = _mm256_cmp_ps(x, lowest, _CMP_LT_OQ);
  // min and max give their second operand when one is NaN.
  const __m256 c = _mm256_min_ps(_mm256_set1_ps(127.0F), _mm256_max_ps(lowest, x));
  // Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits.
  const __m256 shift = _mm256_set1_ps(12582912.0F);
  const __m256 shifted = _mm256_add_ps(c, shift);
  const __m256 f = _mm256_sub_ps(c, _mm256_sub_ps(shifted, shift));
  __m256 p = _mm256_set1_ps(0.00015353362F);
  p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(0.0013398875F));
  p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(0.00961843692F));
  p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(0.0555033237F));
  p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(0.240226477F));
  p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(0.693147182F));
  p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(1.0F));
  const __m256i exponent = _mm256_slli_epi32(_mm256_castps_si256(shifted), 23);
  const __m256 r = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), exponent));
  return _mm256_andnot_ps(vanish, r);
}

// tanh within 3 ulp: an odd polynomial up to |x| = 0.625, 1 - 2 / (e^2|x| + 1) beyond.
inline __m256 tanh_ps(__m256 x) {
  const __m256 sign_bit = _mm256_set1_ps(-0.0F);
  const __m256 one = _mm256_set1_ps(1.0F);
  const __m256 a = _mm256_andnot_ps(sign_bit, x);
  const __m256 z = _mm256_mul_ps(x, x);
  __m256 p = _mm256_set1_ps(-0.00570498547F);
  p = _mm256_fmadd_ps(p, z, _mm256_set1_ps(0.0206390861F));
  p = _mm256_fmadd_ps(p, z, _mm256_set1_ps(-0.0537397154F));
  p = _mm256_fmadd_ps(p, z, _mm256_set1_ps(0.133314416F));
  p = _mm256_fmadd_ps(p, z, _mm256_set1_ps(-0.333332807F));
  const __m256 near = _mm256_fmadd_ps(_mm256_mul_ps(p, z), x, x);
  const __m256 e = exp2_ps(_mm256_mul_ps(a, _mm256_set1_ps(2.0F * kLog2E)));
  const __m256 tail = _mm256_div_ps(_mm256_set1_ps(2.0F), _mm256_add_ps(e, one));
  const __m256 far = _mm256_or_ps(_mm256_sub_ps(one, tail), _mm256_and_ps(sign_bit, x));
  return _mm256_blendv_ps(near, far, _mm256_cmp_ps(a, _mm256_set1_ps(0.625F), _CMP_GT_OQ));
}

// ((0+4)+(2+6)) + ((1+5)+(3+7)).
inline float sum_lanes(__m256 x) {
  __m128 h = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  h = _mm_add_ps(h, _mm_movehl_ps(h, h));
  return _mm_cvtss_f32(_mm_add_ss(h, _mm_movehdup_ps(h)));
}

inline float max_lanes(__m256 x) {
  __m128 h = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  h = _mm_max_ps(h, _mm_movehl_ps(h, h));
  return _mm_cvtss_f32(_mm_max_ss(h, _mm_movehdup_ps(h)));
}

// Sum of x[d] y[d] in eight lanes, then over the lanes; dim is a multiple of 8.
inline float dot(const float* x, const float* y, int dim) {
  __m256 acc = _mm256_setzero_ps();
  for (int d = 0; d < dim; d += 8)
    acc = _mm256_fmadd_ps(_mm256_loadu_ps(x + d), _mm256_loadu_ps(y + d), acc);
  return sum_lanes(acc);
}

// y[d] = fma(a, x[d], y[d]); dim is a multiple of 8.
inline void add_scaled(float a, const float* x, int dim, float* y) {
  const __m256 av = _mm256_set1_ps(a);
  for (int d = 0; d < dim; d += 8)
    _mm256_storeu_ps(y + d, _mm256_fmadd_ps(av, _mm256_loadu_ps(x + d), _mm256_loadu_ps(y + d)));
}

// All ones in the first n lanes, n in [0, 8].
inline __m256 first_lanes(int n) {
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(n), lane));
}

// The logit of a raw product q . k, in log2 units (times log2 e), so that softmax is exp2.
template <SoftCap kCap>
struct Logit {
  __m256 in;   // product -> logit in units of the cap (kNone: in log2 units at once)
  __m256 out;  // units of the cap -> log2 units

  explicit Logit(const AttentionShape& s) {
    if constexpr (kCap == SoftCap::kNone) {
      in = out = _mm256_set1_ps(s.scale * kLog2E);
    } else {
      in = _mm256_set1_ps(s.scale / s.cap);
      out = _mm256_set1_ps(s.cap * kLog2E);
    }
  }

  __m256 operator()(__m256 product) const {
    __m256 slope;
    return with_slope(product, slope);
  }

  // slope: derivative of the capped by the uncapped logit.
  __m256 with_slope(__m256 product, __m256& slope) const {
    const __m256 one = _mm256_set1_ps(1.0F);
    const __m256 x = _mm256_mul_ps(product, in);
    if constexpr (kCap == SoftCap::kTanh) {
      const __m256 t = tanh_ps(x);
      slope = _mm256_fnmadd_ps(t, t, one);
      return _mm256_mul_ps(t, out);
    } else if constexpr (kCap == SoftCap::kSoftSign) {
      const __m256 a = _mm256_andnot_ps(_mm256_set1_ps(-0.0F), x);
      const __m256 r = _mm256_div_ps(one, _mm256_add_ps(one, a));
      slope = _mm256_mul_ps(r, r);
      return _mm256_mul_ps(_mm256_mul_ps(x, r), out);
    } else {
      slope = one;
      return x;
    }
  }
};

// Calls f with a Logit of the shape's cap.
template <typename F>
void with_logit(const AttentionShape& s, F&& f) {
  switch (s.cap_kind) {
    case SoftCap::kNone:
      return f(Logit<SoftCap::kNone>(s));
    case SoftCap::kTanh:
      return f(Logit<SoftCap::kTanh>(s));
    case SoftCap::kSoftSign:
      return f(Logit<SoftCap::kSoftSign>(s));
  }
}

}  // namespace paceline::ops::attention
