#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "core/error.hpp"
#include "ops/split.hpp"
#include "ops/table_adagrad/table_adagrad.hpp"

namespace paceline::ops {
namespace {

constexpr int kDigitBits = 11;
constexpr std::uint64_t kDigits = std::uint64_t{1} << kDigitBits;
constexpr std::int64_t kRows = 64;     // unique rows of a chunk of the update
constexpr std::int64_t kPlaces = 256;  // places of a chunk of the check
constexpr int kRowShift = 32;          // a sort key is row << 32 | place

// Stable counting sort of `from` into `to` by the digit at `shift`.
void sort_digit(std::int64_t n, int shift, const std::uint64_t* from, std::uint64_t* to) {
  std::array<std::int32_t, kDigits> at{};
  for (std::int64_t i = 0; i < n; ++i) ++at[from[i] >> shift & (kDigits - 1)];
  std::int32_t sum = 0;
  for (auto& count : at) {
    const std::int32_t next = sum + count;
    count = sum;
    sum = next;
  }
  for (std::int64_t i = 0; i < n; ++i) {
    to[at[from[i] >> shift & (kDigits - 1)]++] = from[i];
  }
}

// g [width] = sum of the rows at `places`, in this order.
void sum_rows(std::int64_t n, const std::int32_t* places, const float* d_rows, std::int64_t width,
              float* g) {
  std::copy_n(d_rows + places[0] * width, width, g);
  for (std::int64_t p = 1; p < n; ++p) {
    const float* row = d_rows + places[p] * width;
    simd::for_vectors(width, [&](std::int64_t i, auto lanes) {
      lanes.store(g + i, _mm256_add_ps(lanes.load(g + i), lanes.load(row + i)));
    });
  }
}

}  // namespace

TableRowIndex::TableRowIndex(std::int64_t max_lookups) {
  PL_CHECK(max_lookups >= 0 && max_lookups < INT32_MAX, "lookups are counted in 32 bits");
  const auto n = static_cast<std::size_t>(max_lookups);
  rows.resize(n);
  starts.resize(n + 1);
  places.resize(n);
  sort_scratch.resize(2 * n);
}

void table_dedup_cpu(Context& ctx, std::int64_t n, const std::int32_t* lookups,
                     TableRowIndex& index) {
  static_cast<void>(ctx);  // some 10^4 keys: one thread is done before others would wake
  PL_CHECK(n <= static_cast<std::int64_t>(index.rows.size()), "the index has room for the lookups");
  std::uint64_t* keys = index.sort_scratch.data();
  std::uint64_t* other = keys + index.rows.size();
  std::int64_t found = 0;
  std::uint32_t largest = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    if (lookups[i] < 0) continue;
    const auto row = static_cast<std::uint32_t>(lookups[i]);
    largest = std::max(largest, row);
    keys[found++] = std::uint64_t{row} << kRowShift | static_cast<std::uint64_t>(i);
  }
  const int bits = static_cast<int>(std::bit_width(largest));
  for (int shift = 0; shift < bits; shift += kDigitBits) {
    sort_digit(found, kRowShift + shift, keys, other);
    std::swap(keys, other);
  }
  std::int32_t unique = 0;
  std::int64_t previous = -1;
  for (std::int64_t i = 0; i < found; ++i) {
    const auto row = static_cast<std::int32_t>(keys[i] >> kRowShift);
    index.places[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(keys[i] & 0xFFFFFFFFU);
    if (row != previous) {
      index.rows[static_cast<std::size_t>(unique)] = row;
      index.starts[static_cast<std::size_t>(unique++)] = static_cast<std::int32_t>(i);
      previous = row;
    }
  }
  index.starts[static_cast<std::size_t>(unique)] = static_cast<std::int32_t>(found);
  index.unique = unique;
}

void table_adagrad_cpu(Context& ctx, const TableAdagradArgs& args) {
  const TableRowIndex& index = *args.index;
  const std::int64_t width = args.width;
  const auto scale = static_cast<float>(args.grad_scale);
  for_chunks(ctx, index.unique, kRows, [&](std::int64_t begin, std::int64_t end, int worker) {
    auto* g = reinterpret_cast<float*>(
        ctx.scratch(worker, static_cast<std::size_t>(width) * sizeof(float)));
    for (std::int64_t u = begin; u < end; ++u) {
      const auto at = static_cast<std::size_t>(u);
      const std::int32_t start = index.starts[at];
      sum_rows(index.starts[at + 1] - start, index.places.data() + start, args.d_rows, width, g);
      if (scale != 1.0F) {
        simd::for_vectors(width, [&](std::int64_t i, auto lanes) {
          lanes.store(g + i, _mm256_mul_ps(lanes.load(g + i), _mm256_set1_ps(scale)));
        });
      }
      float& acc = args.acc[index.rows[at]];
      acc += simd::sum_squares(g, width) / static_cast<float>(width);
      const auto step =
          static_cast<float>(args.lr / (std::sqrt(static_cast<double>(acc)) + args.eps));
      float* row = args.table + index.rows[at] * width;
      simd::for_vectors(width, [&](std::int64_t i, auto lanes) {
        lanes.store(row + i,
                    _mm256_fnmadd_ps(_mm256_set1_ps(step), lanes.load(g + i), lanes.load(row + i)));
      });
    }
  });
}

bool table_grad_finite_cpu(Context& ctx, const TableAdagradArgs& args) {
  const TableRowIndex& index = *args.index;
  const std::int64_t width = args.width;
  const std::int64_t n = index.starts[static_cast<std::size_t>(index.unique)];
  const std::int64_t chunks = ceil_div(n, kPlaces);
  auto* finite =
      reinterpret_cast<std::uint8_t*>(ctx.shared_scratch(static_cast<std::size_t>(chunks)));
  for_chunks(ctx, n, kPlaces, [&](std::int64_t begin, std::int64_t end, int) {
    // 0 * x is NaN when x is not finite, and a NaN stays in the sum.
    __m256 sum = _mm256_setzero_ps();
    for (std::int64_t p = begin; p < end; ++p) {
      const float* row = args.d_rows + index.places[static_cast<std::size_t>(p)] * width;
      simd::for_vectors(width, [&](std::int64_t i, auto lanes) {
        sum = _mm256_fmadd_ps(lanes.load(row + i), _mm256_setzero_ps(), sum);
      });
    }
    finite[begin / kPlaces] = _mm256_movemask_ps(_mm256_cmp_ps(sum, sum, _CMP_UNORD_Q)) == 0;
  });
  return std::all_of(finite, finite + chunks, [](std::uint8_t f) { return f != 0; });
}

}  // namespace paceline::ops
