// The numeric policy of the op tests, in one place.
//
// An op is compared with its fp64 reference; the same reference run in fp32 says how much error is
// natural for the data. References are templates over the number type for this reason.
// Tests only.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "core/rng.hpp"
#include "ops/context.hpp"

namespace paceline::ops::testing {

inline constexpr int kThreadCounts[] = {1, 2, 3};

// Fixed unless PL_TEST_SEED is set.
inline std::uint64_t test_seed() {
  const char* env = std::getenv("PL_TEST_SEED");
  return env == nullptr ? 20240711U : std::strtoull(env, nullptr, 10);
}

// n normal values times `scale`; `id` tells the arrays of a test apart.
inline std::vector<float> normal_values(std::int64_t n, std::uint64_t id, double scale = 1.0) {
  const CounterRng rng(test_seed(), RngStream::kTest);
  std::vector<float> out(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = static_cast<float>(scale * rng.normal(i, id));
  }
  return out;
}

inline std::uint64_t random_below(std::uint64_t n, std::uint64_t i, std::uint64_t id) {
  return CounterRng(test_seed(), RngStream::kTest).below(n, i, id);
}

template <typename To, typename From>
std::vector<To> to(const std::vector<From>& v) {
  std::vector<To> out(v.size());
  std::transform(v.begin(), v.end(), out.begin(), [](From x) { return static_cast<To>(x); });
  return out;
}

// An output array with guard elements on both sides; they start as a fixed bit pattern, so does
// the array itself (a NaN) unless it is given contents. intact(): no guard was written.
template <typename T>
class Guarded {
 public:
  explicit Guarded(std::int64_t n) : values_(static_cast<std::size_t>(n + 2 * kGuard), pattern()) {}
  explicit Guarded(const std::vector<T>& contents)
      : Guarded(static_cast<std::int64_t>(contents.size())) {
    std::copy(contents.begin(), contents.end(), values_.begin() + kGuard);
  }

  T* data() { return values_.data() + kGuard; }
  const T* data() const { return values_.data() + kGuard; }
  std::span<T> span() { return {data(), values_.size() - 2 * kGuard}; }
  std::span<const T> span() const { return {data(), values_.size() - 2 * kGuard}; }
  std::vector<T> vector() const { return {data(), data() + span().size()}; }
  bool intact() const {
    const T p = pattern();
    const auto same = [&p](const T& x) { return std::memcmp(&x, &p, sizeof(T)) == 0; };
    return std::all_of(values_.begin(), values_.begin() + kGuard, same) &&
           std::all_of(values_.end() - kGuard, values_.end(), same);
  }

 private:
  static constexpr std::int64_t kGuard = 64;
  static T pattern() {
    T p;
    std::memset(&p, 0xFD, sizeof(T));
    if constexpr (sizeof(T) == 4) {
      const std::uint32_t bits = 0x7FC0FDFDU;
      std::memcpy(&p, &bits, sizeof(T));
    }
    return p;
  }
  std::vector<T> values_;
};

struct Tolerance {
  double k = 2.0;           // how many times the error of the naive fp32 reference
  double noise_ulps = 4.0;  // plus this many fp32 roundings of the largest reference value
  double relative_l2 = 1e-5;
  double absolute = 0.0;  // plus this, for values that cancel to nearly nothing
};

// Every value finite; each within k * max|naive - ref| + noise of the reference; and the L2 error
// within relative_l2 of the reference's norm + k times the naive one's. An aggregate alone hides
// single bad elements.
inline ::testing::AssertionResult near_reference(std::span<const float> y,
                                                 std::span<const double> ref,
                                                 std::span<const float> naive,
                                                 const Tolerance& tol = {}) {
  if (y.size() != ref.size() || naive.size() != ref.size()) {
    return ::testing::AssertionFailure()
           << "sizes differ: " << y.size() << ", " << ref.size() << ", " << naive.size();
  }
  double natural = 0.0, natural2 = 0.0, largest = 0.0, worst = -1.0, error2 = 0.0, norm2 = 0.0;
  std::size_t at = 0;
  for (std::size_t i = 0; i < y.size(); ++i) {
    if (!std::isfinite(y[i])) {
      return ::testing::AssertionFailure() << "element " << i << " is " << y[i];
    }
    const double off = std::abs(static_cast<double>(naive[i]) - ref[i]);
    natural = std::max(natural, off);
    natural2 += off * off;
    largest = std::max(largest, std::abs(ref[i]));
    const double error = std::abs(static_cast<double>(y[i]) - ref[i]);
    error2 += error * error;
    norm2 += ref[i] * ref[i];
    if (error > worst) {
      worst = error;
      at = i;
    }
  }
  const double noise =
      tol.noise_ulps * std::numeric_limits<float>::epsilon() * largest + tol.absolute;
  const double limit = tol.k * natural + noise;
  if (worst > limit) {
    return ::testing::AssertionFailure()
           << "element " << at << ": " << y[at] << ", reference " << ref[at] << ", error " << worst
           << " > " << limit << " (naive fp32 " << natural << ", noise " << noise << ")";
  }
  const double l2_noise = tol.absolute * std::sqrt(static_cast<double>(y.size()));
  if (std::sqrt(error2) >
      tol.relative_l2 * std::sqrt(norm2) + tol.k * std::sqrt(natural2) + l2_noise) {
    return ::testing::AssertionFailure()
           << "relative L2 error " << std::sqrt(error2 / norm2) << " > " << tol.relative_l2 << " + "
           << tol.k << " * naive fp32 " << std::sqrt(natural2 / norm2) << ", worst element " << at
           << " of " << y.size();
  }
  return ::testing::AssertionSuccess();
}

// Bit by bit, naming the first place that differs.
template <typename T>
::testing::AssertionResult same_bits(std::span<const T> a, std::span<const T> b) {
  if (a.size() != b.size()) {
    return ::testing::AssertionFailure() << "sizes differ: " << a.size() << ", " << b.size();
  }
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::memcmp(&a[i], &b[i], sizeof(T)) != 0) {
      return ::testing::AssertionFailure()
             << "element " << i << " of " << a.size() << ": " << a[i] << " and " << b[i];
    }
  }
  return ::testing::AssertionSuccess();
}
template <typename T>
::testing::AssertionResult same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return same_bits(std::span<const T>(a), std::span<const T>(b));
}

// Compares grad with central differences of f (a scalar function of x, fp64) at each x[i]. f is
// called with a changed copy. step is relative to max(1, |x|).
template <typename F>
::testing::AssertionResult gradient_matches(F&& f, std::vector<double> x,
                                            const std::vector<double>& grad, double step = 1e-5,
                                            double tolerance = 1e-7) {
  if (x.size() != grad.size()) return ::testing::AssertionFailure() << "sizes differ";
  double largest = 1.0;
  for (const double g : grad) largest = std::max(largest, std::abs(g));
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double saved = x[i];
    const double h = step * std::max(1.0, std::abs(saved));
    x[i] = saved + h;
    const double up = f(x);
    x[i] = saved - h;
    const double down = f(x);
    x[i] = saved;
    const double slope = (up - down) / (2.0 * h);
    if (!(std::abs(slope - grad[i]) <= tolerance * largest)) {
      return ::testing::AssertionFailure()
             << "gradient " << i << " is " << grad[i] << ", central difference " << slope;
    }
  }
  return ::testing::AssertionSuccess();
}

// Weighted sum: turns an array-valued function into the scalar whose gradient is checked.
inline double inner(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// Calls run(ctx) with a pool of each thread count and returns what each returned.
template <typename F>
auto at_each_thread_count(F&& run) {
  std::vector<decltype(run(std::declval<Context&>()))> results;
  for (const int threads : kThreadCounts) {
    pipeline::TaskPool pool(threads);
    Context ctx(pool);
    results.push_back(run(ctx));
  }
  return results;
}

}  // namespace paceline::ops::testing
