#include <cmath>

#include "ops/adamw/adamw.hpp"
#include "ops/split.hpp"

namespace paceline::ops {

void adamw_cpu(Context& ctx, const AdamWArgs& args) {
  const auto t = static_cast<double>(args.t);
  const auto all = [](double v) { return _mm256_set1_ps(static_cast<float>(v)); };
  const __m256 beta1 = all(args.beta1);
  const __m256 beta2 = all(args.beta2);
  const __m256 rest1 = all(1.0 - args.beta1);
  const __m256 rest2 = all(1.0 - args.beta2);
  const __m256 scale = all(args.grad_scale);
  const __m256 eps = all(args.eps);
  const __m256 step = all(args.lr / (1.0 - std::pow(args.beta1, t)));
  const __m256 spread = all(1.0 / std::sqrt(1.0 - std::pow(args.beta2, t)));
  const __m256 decay = all(args.lr * args.weight_decay);
  for_chunks(ctx, args.n, kChunkElements, [&](std::int64_t begin, std::int64_t end, int) {
    simd::for_vectors(end - begin, [&](std::int64_t j, auto lanes) {
      const std::int64_t i = begin + j;
      const __m256 g = _mm256_mul_ps(lanes.load(args.grad + i), scale);
      const __m256 m = _mm256_fmadd_ps(beta1, lanes.load(args.m + i), _mm256_mul_ps(rest1, g));
      const __m256 v =
          _mm256_fmadd_ps(beta2, lanes.load(args.v + i), _mm256_mul_ps(rest2, _mm256_mul_ps(g, g)));
      lanes.store(args.m + i, m);
      lanes.store(args.v + i, v);
      const __m256 root = _mm256_fmadd_ps(_mm256_sqrt_ps(v), spread, eps);
      const __m256 change = _mm256_div_ps(_mm256_mul_ps(step, m), root);
      const __m256 p = lanes.load(args.p + i);
      lanes.store(args.p + i, _mm256_sub_ps(p, _mm256_fmadd_ps(decay, p, change)));
    });
  });
}

}  // namespace paceline::ops
