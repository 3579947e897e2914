// The one hash of ids into table rows, the same on host and device.
//
// hash_id(id, j) is output j of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom
// number generators", OOPSLA 2014) seeded with the id; table_row maps it to [0, rows) by
// multiply-and-shift (Lemire, 2019). Id 0 is missing and has no row (-1).
//
// Test vectors: hash_id(1234567, 0) = 6457827717110365317, hash_id(1234567, 1) =
// 3203168211198807973.
#pragma once

#include <cstdint>

#include "core/pipeline_state.hpp"

namespace paceline::features {

inline constexpr std::int32_t kMissingRow = -1;

PL_HOST_DEVICE constexpr std::uint64_t hash_id(std::int64_t id, int j) {
  std::uint64_t z =
      static_cast<std::uint64_t>(id) + 0x9E3779B97F4A7C15U * (static_cast<std::uint64_t>(j) + 1U);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
  return z ^ (z >> 31);
}

// rows in [1, 2^31); the sum base + rows must stay below 2^31 (the schema checks it).
PL_HOST_DEVICE constexpr std::int32_t table_row(std::int64_t id, int j, std::int64_t rows,
                                                std::int64_t base) {
  if (id == 0) return kMissingRow;
  const std::uint64_t high = hash_id(id, j) >> 32;
  return static_cast<std::int32_t>(
      base + static_cast<std::int64_t>((high * static_cast<std::uint64_t>(rows)) >> 32));
}

}  // namespace paceline::features
