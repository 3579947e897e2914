// Definition and repetition levels of a page: the hybrid of runs and bit-packed groups that Parquet
// stores them in, turned into bitmaps without a level of its own in between. Private to this room.
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "core/error.hpp"

namespace paceline::data {

// As stored: `count` levels of `bit_width` bits (0 to 7).
struct PackedLevels {
  std::span<const std::uint8_t> bytes;
  int bit_width = 0;
  std::int64_t count = 0;
  bool only_groups = false;  // bit-packed throughout, without headers (an old encoding)
};

// Words that hold n bits.
constexpr std::int64_t bit_words(std::int64_t n) { return (n + 63) / 64; }

// Sets bit i of `bits` where level i is `wanted`; bits beyond the last are 0. `bits` is resized.
// Errors: kCorruptData when the bytes hold fewer levels.
Result<void> bits_where(const PackedLevels& levels, int wanted, std::vector<std::uint64_t>& bits);

// Writes the levels themselves; `out` is resized. Errors as above.
Result<void> unpack_levels(const PackedLevels& levels, std::vector<std::uint8_t>& out);

inline std::int64_t count_bits(std::span<const std::uint64_t> bits) {
  std::int64_t n = 0;
  for (const auto word : bits) n += std::popcount(word);
  return n;
}

}  // namespace paceline::data
