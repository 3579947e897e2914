// Eight-lane fp32 building blocks of the CPU ops.
//
// A row's result must not depend on where it lies, so lanes are explicit: whole vectors, then one
// masked vector, sums in a fixed order, and every product that feeds a sum is an explicit FMA.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace paceline::ops::simd {

// Access to a whole vector, and to the first n < 8 lanes of one (the others read
// as 0); keep(v): v with the other lanes 0.
struct Whole {
  __m256 load(const float* p) const { return _mm256_loadu_ps(p); }
  void store(float* p, __m256 v) const { _mm256_storeu_ps(p, v); }
  __m256 keep(__m256 v) const { return v; }
};
struct Part {
  __m256i mask;
  explicit Part(std::int64_t n)
      : mask(_mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)),
                                _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7))) {}
  __m256 load(const float* p) const { return _mm256_maskload_ps(p, mask); }
  void store(float* p, __m256 v) const { _mm256_maskstore_ps(p, mask, v); }
  __m256 keep(__m256 v) const { return _mm256_and_ps(v, _mm256_castsi256_ps(mask)); }
};

// f(i, lanes) for i = 0, 8, 16, ... below n.
template <typename F>
inline void for_vectors(std::int64_t n, F&& f) {
  std::int64_t i = 0;
  for (; i + 8 <= n; i += 8) f(i, Whole{});
  if (i < n) f(i, Part(n - i));
}

// ((0+4)+(2+6)) + ((1+5)+(3+7)).
inline float sum_lanes(__m256 x) {
  __m128 h = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  h = _mm_add_ps(h, _mm_movehl_ps(h, h));
  return _mm_cvtss_f32(_mm_add_ss(h, _mm_movehdup_ps(h)));
}

// (0+2) + (1+3).
inline double sum_lanes(__m256d x) {
  const __m128d h = _mm_add_pd(_mm256_castpd256_pd128(x), _mm256_extractf128_pd(x, 1));
  return _mm_cvtsd_f64(_mm_add_sd(h, _mm_unpackhi_pd(h, h)));
}

inline __m256d low_pd(__m256 x) { return _mm256_cvtps_pd(_mm256_castps256_ps128(x)); }
inline __m256d high_pd(__m256 x) { return _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1)); }

// Sum of x[i]^2 in two vectors of lanes, added, then over the lanes.
inline float sum_squares(const float* x, std::int64_t n) {
  __m256 even = _mm256_setzero_ps();
  __m256 odd = _mm256_setzero_ps();
  std::int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const __m256 a = _mm256_loadu_ps(x + i);
    const __m256 b = _mm256_loadu_ps(x + i + 8);
    even = _mm256_fmadd_ps(a, a, even);
    odd = _mm256_fmadd_ps(b, b, odd);
  }
  for_vectors(n - i, [&](std::int64_t j, auto lanes) {
    const __m256 a = lanes.load(x + i + j);
    even = _mm256_fmadd_ps(a, a, even);
  });
  return sum_lanes(_mm256_add_ps(even, odd));
}

// e^x within 2 ulp for x in [-87, 88]; x outside is read as the nearer end, NaN stays NaN.
// e^x = 2^n e^r with n = round(x / ln 2), |r| <= 0.347, e^r by its series to r^7 (relative error
// below 6e-9).
inline __m256 exp_ps(__m256 x) {
  // min and max give their second operand when one is NaN.
  x = _mm256_min_ps(_mm256_set1_ps(88.0F), _mm256_max_ps(_mm256_set1_ps(-87.0F), x));
  // Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits.
  const __m256 shift = _mm256_set1_ps(12582912.0F);
  const __m256 shifted = _mm256_fmadd_ps(x, _mm256_set1_ps(1.44269504088896341F), shift);
  const __m256 n = _mm256_sub_ps(shifted, shift);
  // ln 2 in two parts, the first with few bits, so that n * part is exact.
  __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0.693145751953125F), x);
  r = _mm256_fnmadd_ps(n, _mm256_set1_ps(1.42860682030941723e-6F), r);
  __m256 p = _mm256_set1_ps(1.0F / 5040.0F);
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0F / 720.0F));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0F / 120.0F));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0F / 24.0F));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0F / 6.0F));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0.5F));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0F));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0F));
  const __m256i bits =
      _mm256_slli_epi32(_mm256_add_epi32(_mm256_castps_si256(shifted), _mm256_set1_epi32(127)), 23);
  return _mm256_mul_ps(p, _mm256_castsi256_ps(bits));
}

// log(1 + e) within 3 ulp for e in [0, 1]: 2 artanh(t), t = e / (2 + e) <= 1/3, by its series to
// t^15 (relative error below 1e-8).
inline __m256 log1p_unit_ps(__m256 e) {
  const __m256 two = _mm256_set1_ps(2.0F);
  const __m256 t = _mm256_div_ps(e, _mm256_add_ps(two, e));
  const __m256 z = _mm256_mul_ps(t, t);
  __m256 p = _mm256_set1_ps(1.0F / 15.0F);
  p = _mm256_fmadd_ps(p, z, _mm256_set1_ps(1.0F / 13.0F));
  p = _mm256_fmadd_ps(p, z, _mm256_set1_ps(1.0F / 11.0F));
  p = _mm256_fmadd_ps(p, z, _mm256_set1_ps(1.0F / 9.0F));
  p = _mm256_fmadd_ps(p, z, _mm256_set1_ps(1.0F / 7.0F));
  p = _mm256_fmadd_ps(p, z, _mm256_set1_ps(1.0F / 5.0F));
  p = _mm256_fmadd_ps(p, z, _mm256_set1_ps(1.0F / 3.0F));
  const __m256 tz = _mm256_mul_ps(t, z);
  return _mm256_mul_ps(two, _mm256_fmadd_ps(p, tz, t));
}

}  // namespace paceline::ops::simd
