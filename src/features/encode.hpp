// The loops that turn column values into what a batch carries. Each writes `count` entries and
// reads `count` values from `in`; nothing allocates.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <limits>
#include <vector>

#include "features/hash.hpp"
#include "features/schema.hpp"

namespace paceline::features {

// Table rows of ids: out[count][hashes].
template <int kHashes>
void encode_ids(const std::int64_t* in, std::int64_t count, std::int64_t rows, std::int64_t base,
                std::int32_t* out) {
  for (std::int64_t i = 0; i < count; ++i) {
    for (int j = 0; j < kHashes; ++j) out[i * kHashes + j] = table_row(in[i], j, rows, base);
  }
}

inline void encode_ids(const std::int64_t* in, std::int64_t count, const TokenFeature& f,
                       std::int32_t* out) {
  switch (f.hashes) {
    case 1:
      return encode_ids<1>(in, count, f.rows, f.table_base, out);
    case 2:
      return encode_ids<2>(in, count, f.rows, f.table_base, out);
    case 4:
      return encode_ids<4>(in, count, f.rows, f.table_base, out);
    default:
      for (std::int64_t i = 0; i < count; ++i) {
        for (int j = 0; j < f.hashes; ++j) {
          out[i * f.hashes + j] = table_row(in[i], j, f.rows, f.table_base);
        }
      }
  }
}

// Values outside [0, rows) become 0; returns how many were.
inline std::int64_t encode_categories(const std::int64_t* in, std::int64_t count, int rows,
                                      std::int32_t* out) {
  std::int64_t unknown = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const bool known = static_cast<std::uint64_t>(in[i]) < static_cast<std::uint64_t>(rows);
    out[i] = known ? static_cast<std::int32_t>(in[i]) : 0;
    unknown += known ? 0 : 1;
  }
  return unknown;
}

// |a - b| without overflow; differences beyond int64 count as its maximum.
inline std::int64_t distance(std::int64_t a, std::int64_t b) {
  const auto ua = static_cast<std::uint64_t>(a);
  const auto ub = static_cast<std::uint64_t>(b);
  const std::uint64_t d = a > b ? ua - ub : ub - ua;
  constexpr auto kMax = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  return static_cast<std::int64_t>(std::min(d, kMax));
}

// min(1 + floor(log2(1 + x / unit)), buckets - 1), x >= 0: the exponent of a double >= 1 is the
// floor of its logarithm.
inline std::int32_t log2_bucket(double x, double unit, int buckets) {
  const auto bits = std::bit_cast<std::uint64_t>(1.0 + x / unit);
  const auto exponent = static_cast<std::int32_t>(bits >> 52) - 1023;
  return std::min(1 + exponent, buckets - 1);
}

// Buckets of the distances |a(i) - b(i)|, i < count. Distances below 2^52 become doubles by their
// bits, several at once; the results are those of log2_bucket to the bit.
template <typename A, typename B>
void encode_log2_distances(std::int64_t count, double unit, int buckets, std::int32_t* out, A a,
                           B b) {
  constexpr std::int64_t kStep = 256;
  constexpr double kTwo52 = 4503599627370496.0;
  std::array<std::uint64_t, kStep> d;
  for (std::int64_t done = 0; done < count; done += kStep) {
    const std::int64_t n = std::min(kStep, count - done);
    std::uint64_t any = 0;
#pragma omp simd reduction(| : any)
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int64_t x = a(done + i);
      const std::int64_t y = b(done + i);
      const std::uint64_t up = static_cast<std::uint64_t>(x) - static_cast<std::uint64_t>(y);
      d[static_cast<std::size_t>(i)] = x > y ? up : std::uint64_t{0} - up;
      any |= d[static_cast<std::size_t>(i)];
    }
    if ((any >> 52) != 0) {
      for (std::int64_t i = 0; i < n; ++i) {
        const auto far = static_cast<double>(distance(a(done + i), b(done + i)));
        out[done + i] = log2_bucket(far, unit, buckets);
      }
      continue;
    }
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i) {
      const std::uint64_t two52_and_d = d[static_cast<std::size_t>(i)] | 0x4330000000000000U;
      const double x = std::bit_cast<double>(two52_and_d) - kTwo52;
      const auto bits = std::bit_cast<std::uint64_t>(1.0 + x / unit);
      const auto bucket = static_cast<std::int32_t>(bits >> 52) - 1022;
      out[done + i] = bucket < buckets - 1 ? bucket : buckets - 1;
    }
  }
}

// Number of boundaries <= x.
inline std::int32_t boundary_bucket(double x, const std::vector<double>& boundaries) {
  return static_cast<std::int32_t>(std::upper_bound(boundaries.begin(), boundaries.end(), x) -
                                   boundaries.begin());
}

// Buckets of value(i), i < count.
template <typename Value>
void encode_buckets(std::int64_t count, const TokenFeature& f, std::int32_t* out, Value value) {
  if (f.log2_boundaries) {
    const double unit = f.unit;
    const int buckets = f.size;
    for (std::int64_t i = 0; i < count; ++i) {
      out[i] = log2_bucket(std::max(static_cast<double>(value(i)), 0.0), unit, buckets);
    }
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    out[i] = boundary_bucket(static_cast<double>(value(i)), f.boundaries);
  }
}

// Buckets of the distances |a(i) - b(i)|, i < count.
template <typename A, typename B>
void encode_distances(std::int64_t count, const TokenFeature& f, std::int32_t* out, A a, B b) {
  if (f.log2_boundaries) return encode_log2_distances(count, f.unit, f.size, out, a, b);
  encode_buckets(count, f, out, [a, b](std::int64_t i) { return distance(a(i), b(i)); });
}

// The low `size` bits of each mask.
inline void encode_masks(const std::int64_t* in, std::int64_t count, int size, std::uint64_t* out) {
  const std::uint64_t keep = size >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << size) - 1;
  for (std::int64_t i = 0; i < count; ++i) out[i] = static_cast<std::uint64_t>(in[i]) & keep;
}

}  // namespace paceline::features
