#include <algorithm>
#include <array>
#include <cmath>

#include "core/error.hpp"
#include "ops/loss/loss.hpp"
#include "ops/split.hpp"

namespace paceline::ops {
namespace {

constexpr std::int64_t kCandidates = 256;  // of a chunk
constexpr double kTweedieFloor = 1e-6;

// One column of a chunk, dense.
template <typename T>
using Column = std::array<T, kCandidates>;

// Logits become their gradients (times `scale`); returns the sum of the losses. positive: all bits
// set where the label is one.
double cross_entropy(std::int64_t n, const Column<std::int32_t>& positive, float scale,
                     Column<float>& z_to_grad) {
  const __m256 one = _mm256_set1_ps(1.0F);
  const __m256 zero = _mm256_setzero_ps();
  const __m256 sign_bit = _mm256_set1_ps(-0.0F);
  __m256d low = _mm256_setzero_pd();
  __m256d high = _mm256_setzero_pd();
  simd::for_vectors(n, [&](std::int64_t i, auto lanes) {
    float* at = z_to_grad.data() + i;
    const __m256 z = lanes.load(at);
    const __m256 label = lanes.load(reinterpret_cast<const float*>(positive.data()) + i);
    const __m256 e = simd::exp_ps(_mm256_or_ps(z, sign_bit));
    const __m256 larger = _mm256_div_ps(one, _mm256_add_ps(one, e));  // of sigmoid(z), sigmoid(-z)
    const __m256 smaller = _mm256_mul_ps(e, larger);
    // -z of a positive is the logit of the wrong answer: loss max(w, 0) + log1p(e).
    const __m256 flip = _mm256_and_ps(label, sign_bit);
    const __m256 wrong = _mm256_xor_ps(z, flip);
    const __m256 loss = _mm256_add_ps(_mm256_max_ps(zero, wrong), simd::log1p_unit_ps(e));
    const __m256 grad = _mm256_blendv_ps(larger, smaller, wrong);  // sigmoid(w)
    lanes.store(at, _mm256_xor_ps(_mm256_mul_ps(grad, _mm256_set1_ps(scale)), flip));
    // Lanes beyond n would add log 2.
    const __m256 counted = lanes.keep(loss);
    low = _mm256_add_pd(low, simd::low_pd(counted));
    high = _mm256_add_pd(high, simd::high_pd(counted));
  });
  return simd::sum_lanes(_mm256_add_pd(low, high));
}

struct Term {
  double loss, slope;  // and its derivative by the logit
};

// std::clamp that keeps NaN.
double clip(double t, double cap) { return t < 0.0 ? 0.0 : (t > cap ? cap : t); }

Term sigmoid_mae(double z, double target, double cap) {
  const double s = 1.0 / (1.0 + std::exp(-z));
  const double off = s - clip(target, cap) / cap;
  const double sign = off > 0.0 ? 1.0 : (off < 0.0 ? -1.0 : 0.0);
  return {std::abs(off), sign * s * (1.0 - s)};
}

Term tweedie(double z, double target, double cap) {
  const double t = clip(target, cap);
  const double soft = std::max(z, 0.0) + std::log1p(std::exp(-std::abs(z)));
  const double bend = std::tanh(soft / cap);
  const double raw = cap * bend;
  const double mu = raw < kTweedieFloor ? kTweedieFloor : raw;
  const double root = std::sqrt(mu);
  const double gap = root - std::sqrt(t);
  const double by_z = (1.0 - bend * bend) / (1.0 + std::exp(-z));
  const double slope = raw < kTweedieFloor ? 0.0 : 2.0 * (mu - t) / (mu * root) * by_z;
  return {4.0 * gap * gap / root, slope};
}

double regression(const RegressionHead& head, std::int64_t begin, std::int64_t n, double scale,
                  Column<float>& z_to_grad) {
  double sum = 0.0;
  for (std::int64_t i = 0; i < n; ++i) {
    float& at = z_to_grad[static_cast<std::size_t>(i)];
    const double z = at;
    const double target = head.target[begin + i];
    const Term term = head.loss == RegressionLoss::kSigmoidMae ? sigmoid_mae(z, target, head.cap)
                                                               : tweedie(z, target, head.cap);
    sum += term.loss;
    at = static_cast<float>(scale * term.slope);
  }
  return sum;
}

// The sum of column `output` over candidates [begin, begin + n), its gradient written.
double column_loss(const LossArgs& args, std::int64_t begin, std::int64_t n, int output,
                   std::int64_t outputs) {
  Column<float> z;
  const float* logits = args.logits + begin * outputs + output;
  for (std::int64_t i = 0; i < n; ++i) z[static_cast<std::size_t>(i)] = logits[i * outputs];
  const auto count = static_cast<double>(args.candidates);
  double sum = 0.0;
  if (output < args.actions) {
    const auto a = static_cast<std::size_t>(output);
    Column<std::int32_t> positive;
    for (std::int64_t i = 0; i < n; ++i) {
      const std::uint64_t bit = args.labels[begin + i] >> args.bits[a] & 1U;
      positive[static_cast<std::size_t>(i)] = -static_cast<std::int32_t>(bit);
    }
    sum = cross_entropy(n, positive, static_cast<float>(args.weights[a] / count), z);
  } else {
    const RegressionHead& head = args.heads[static_cast<std::size_t>(output - args.actions)];
    sum = regression(head, begin, n, head.weight / count, z);
  }
  if (args.d_logits != nullptr) {
    float* d = args.d_logits + begin * outputs + output;
    for (std::int64_t i = 0; i < n; ++i) d[i * outputs] = z[static_cast<std::size_t>(i)];
  }
  return sum;
}

float weight_of(const LossArgs& args, int output) {
  return output < args.actions ? args.weights[static_cast<std::size_t>(output)]
                               : args.heads[static_cast<std::size_t>(output - args.actions)].weight;
}

}  // namespace

double loss_cpu(Context& ctx, const LossArgs& args) {
  const int outputs = args.actions + static_cast<int>(args.heads.size());
  PL_CHECK(args.bits.size() == static_cast<std::size_t>(args.actions) &&
               args.weights.size() == args.bits.size(),
           "every action has a bit and a weight");
  const std::int64_t chunks = ceil_div(args.candidates, kCandidates);
  auto* partial = reinterpret_cast<double*>(
      ctx.shared_scratch(static_cast<std::size_t>(chunks * outputs) * sizeof(double)));
  for_chunks(ctx, args.candidates, kCandidates, [&](std::int64_t begin, std::int64_t end, int) {
    for (int o = 0; o < outputs; ++o) {
      double& sum = partial[begin / kCandidates * outputs + o];
      sum = 0.0;
      if (weight_of(args, o) != 0.0F) {
        sum = column_loss(args, begin, end - begin, o, outputs);
      } else if (args.d_logits != nullptr) {
        for (std::int64_t c = begin; c < end; ++c) args.d_logits[c * outputs + o] = 0.0F;
      }
    }
  });
  double total = 0.0;
  for (int o = 0; o < outputs; ++o) {
    double sum = 0.0;
    for (std::int64_t c = 0; c < chunks; ++c) sum += partial[c * outputs + o];
    const double share =
        chunks == 0 ? 0.0 : weight_of(args, o) * sum / static_cast<double>(args.candidates);
    if (args.by_output != nullptr) args.by_output[o] = share;
    total += share;
  }
  return total;
}

}  // namespace paceline::ops
