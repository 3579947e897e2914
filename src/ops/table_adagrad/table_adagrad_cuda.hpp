// Row-wise AdaGrad on the GPU (formulas: table_adagrad.hpp): lookups sorted and deduplicated, the
// gradients of each row summed, rows updated. Three launches of one step, so that a non-finite
// gradient is known before any row is changed. T, the gradients' type, is BFloat16 or float.
//
// The place of a lookup is fixed by capacities: first_place + entry * per_entry + lookup, kind by
// kind. Lookups that are missing and entries past the batch's count take part in the sort as a row
// past the table and in nothing else. Gradients are read where the backward left them, in dX.
// A row's gradients are added in the order of its places: runs of kTableChunk places, cut at
// multiples of it in the sorted order, then the runs. A pure function of the batch.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/bfloat16.hpp"
#include "device/memory.hpp"
#include "device/stream.hpp"
#include "ops/step_decide/step_decide_cuda.hpp"

namespace paceline::ops {

inline constexpr int kTableChunk = 32;

// One table lookup of a kind's entries.
struct TableLookupCuda {
  const std::int32_t* ids = nullptr;  // device: rows by entry, of this hash: ids[entry * hashes]
  std::int32_t hashes = 1;
  std::int32_t column = 0;  // first column of its gradient in dX
};
// One kind with lookups.
struct TableKindCuda {
  const std::int32_t* count = nullptr;  // device: entries of the batch
  std::int32_t capacity = 0;            // entries
  std::int32_t per_entry = 0;           // lookups, at least 1
  std::int32_t first_place = 0;         // sum of capacity * per_entry of the kinds before
  std::int32_t first_lookup = 0;        // of this kind in TableSourcesCuda::lookups
  const void* dx = nullptr;             // T [capacity, k_padded]; the index does not read it
  std::int64_t k_padded = 0;
};
// Device arrays.
struct TableSourcesCuda {
  const TableKindCuda* kinds = nullptr;
  int kind_count = 0;
  const TableLookupCuda* lookups = nullptr;
};

// The sorted lookups of a batch; device arrays sized for `capacity` places.
struct TableIndexCuda {
  std::int64_t capacity = 0;       // sum of capacity * per_entry, below 2^31
  std::int32_t table_rows = 0;     // below 2^31 - 1
  std::int32_t* rows = nullptr;    // [unique] ascending
  std::int32_t* starts = nullptr;  // [unique + 1] into places
  std::int32_t* places = nullptr;  // [capacity]; of lookups that are not missing, by row, ascending
  std::int32_t* segment = nullptr;  // [capacity]: index in `rows` of the row of places[i]
  std::int32_t* unique = nullptr;   // [1]
  // Scratch of the sort.
  std::uint32_t* keys = nullptr;
  std::uint32_t* sorted_keys = nullptr;
  std::int32_t* unsorted_places = nullptr;
  std::byte* storage = nullptr;
  std::size_t storage_bytes = 0;

  // Most rows that one batch looks up.
  std::int64_t max_unique() const { return capacity < table_rows ? capacity : table_rows; }
};
// Takes the arrays from the arena.
TableIndexCuda place_table_index(device::Arena& arena, std::int64_t capacity,
                                 std::int32_t table_rows);

void table_index_cuda(const device::Stream& stream, const TableSourcesCuda& sources,
                      const TableIndexCuda& index);

// The summed gradients; device arrays.
struct TableSumsCuda {
  int width = 0;
  float* g = nullptr;                  // [max_unique, width]
  std::int32_t* not_finite = nullptr;  // [1]: 1 where a value of g is not finite, else 0
  float* heads = nullptr;              // scratch: [chunks, width] partial sums of rows over chunks
  float* tails = nullptr;
};
TableSumsCuda place_table_sums(device::Arena& arena, const TableIndexCuda& index, int width);

// g[u] = scale * sum of the gradients of row u.
template <typename T>
struct TableReduceCudaArgs {
  TableSourcesCuda sources;
  TableIndexCuda index;
  TableSumsCuda sums;
  float scale = 1.0F;
};
template <typename T>
void table_reduce_cuda(const device::Stream& stream, const TableReduceCudaArgs<T>& args);

// Reads g only, so a table of another type than float is one more instantiation.
template <typename Table>
struct TableApplyCudaArgs {
  TableIndexCuda index;
  TableSumsCuda sums;
  const StepDecision* decision = nullptr;  // device: nothing is done when it says so
  double eps = 1e-10;
  Table* table = nullptr;  // [table_rows, width]
  float* acc = nullptr;    // [table_rows]
};
template <typename Table>
void table_apply_cuda(const device::Stream& stream, const TableApplyCudaArgs<Table>& args);

}  // namespace paceline::ops
