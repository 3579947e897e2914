// Counter-based random numbers: a pure function of (key, counter), the same on host and device,
// with no state to save or to share between threads.
//
// Philox4x32-10 of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3"
// (SC 2011); its published test vectors are in rng_test.cpp.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

#include "core/pipeline_state.hpp"

namespace paceline {

struct Philox {
  using Counter = std::array<std::uint32_t, 4>;
  using Key = std::array<std::uint32_t, 2>;

  static constexpr Counter generate(Counter c, Key k) {
    for (int round = 0; round < 10; ++round) {
      const std::uint64_t p0 = std::uint64_t{0xD2511F53U} * c[0];
      const std::uint64_t p1 = std::uint64_t{0xCD9E8D57U} * c[2];
      c = {static_cast<std::uint32_t>(p1 >> 32) ^ c[1] ^ k[0], static_cast<std::uint32_t>(p1),
           static_cast<std::uint32_t>(p0 >> 32) ^ c[3] ^ k[1], static_cast<std::uint32_t>(p0)};
      k = {k[0] + 0x9E3779B9U, k[1] + 0xBB67AE85U};
    }
    return c;
  }
};

// What a stream of random numbers is for. Part of the key, so that uses never share numbers.
enum class RngStream : std::uint32_t {
  kInit = 1,
  kBlocks = 2,
  kRows = 3,
  kBootstrap = 4,
  kSynth = 5,
  kTest = 6,
  kBench = 7
};

// Random numbers addressed by (seed, stream, a, b).
class CounterRng {
 public:
  constexpr CounterRng(std::uint64_t seed, RngStream stream)
      : key_{static_cast<std::uint32_t>(seed) ^ (static_cast<std::uint32_t>(stream) * 0x85EBCA6BU),
             static_cast<std::uint32_t>(seed >> 32)} {}

  constexpr Philox::Counter words(std::uint64_t a, std::uint64_t b = 0) const {
    return Philox::generate({static_cast<std::uint32_t>(a), static_cast<std::uint32_t>(a >> 32),
                             static_cast<std::uint32_t>(b), static_cast<std::uint32_t>(b >> 32)},
                            key_);
  }

  constexpr std::uint64_t bits(std::uint64_t a, std::uint64_t b = 0) const {
    const auto w = words(a, b);
    return (std::uint64_t{w[1]} << 32) | w[0];
  }

  // Uniform in [0, 1) with 53 random bits.
  constexpr double uniform(std::uint64_t a, std::uint64_t b = 0) const {
    return static_cast<double>(bits(a, b) >> 11) * 0x1.0p-53;
  }

  // Uniform in [0, n), n >= 1, by multiply-and-shift (bias below n / 2^64).
  constexpr std::uint64_t below(std::uint64_t n, std::uint64_t a, std::uint64_t b = 0) const {
    __extension__ using Wide = unsigned __int128;
    return static_cast<std::uint64_t>((Wide{bits(a, b)} * n) >> 64);
  }

  // Standard normal (Box and Muller, 1958), the cosine branch.
  double normal(std::uint64_t a, std::uint64_t b = 0) const {
    const auto w = words(a, b);
    const double u =
        (static_cast<double>((std::uint64_t{w[1]} << 32 | w[0]) >> 11) + 1.0) * 0x1.0p-53;
    const double v = static_cast<double>((std::uint64_t{w[3]} << 32 | w[2]) >> 11) * 0x1.0p-53;
    return std::sqrt(-2.0 * std::log(u)) * std::cos(6.283185307179586476925286766559 * v);
  }

 private:
  Philox::Key key_;
};

}  // namespace paceline
