// A stream of random words that is a pure function of (seed, what it is for, index): the words of a
// row or of a user are the same whoever draws them, and when.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/rng.hpp"

namespace paceline::data::synth {

enum class Use : std::uint64_t { kRow, kUser, kAuthor, kPost, kPopularity, kAnchor };

class Words {
 public:
  // `index` below 2^56.
  Words(std::uint64_t seed, Use use, std::uint64_t index)
      : rng_(seed, RngStream::kSynth), stream_(static_cast<std::uint64_t>(use) << 56 | index) {}

  std::uint32_t next() {
    if (used_ == 4) {
      words_ = rng_.words(counter_++, stream_);
      used_ = 0;
    }
    return words_[used_++];
  }
  // In (0, 1), 32 bits.
  double open_uniform() { return (static_cast<double>(next()) + 0.5) * 0x1.0p-32; }
  // In [0, n), n < 2^32; the bias is below n / 2^32.
  std::uint32_t below(std::uint32_t n) {
    return static_cast<std::uint32_t>((std::uint64_t{next()} * n) >> 32);
  }
  // True with probability p, to 2^-32.
  bool chance(double p) { return static_cast<double>(next()) < p * 0x1.0p32; }
  double exponential() { return -std::log(open_uniform()); }
  double normal() {
    const double radius = std::sqrt(-2.0 * std::log(open_uniform()));
    return radius * std::cos(6.283185307179586 * open_uniform());
  }
  // Beta(2, 2), whose distribution function is 3 x^2 - 2 x^3.
  double beta22() { return 0.5 - std::sin(std::asin(1.0 - 2.0 * open_uniform()) / 3.0); }

 private:
  CounterRng rng_;
  std::uint64_t stream_;
  std::uint64_t counter_ = 0;
  Philox::Counter words_{};
  unsigned used_ = 4;
};

}  // namespace paceline::data::synth
