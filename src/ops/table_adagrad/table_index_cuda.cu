// Lookups sorted by row and deduplicated: a stable radix sort, then a sum over row starts.
#include <cuda_runtime.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/transform_iterator.h>

#include <algorithm>
#include <bit>
#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_scan.cuh>

#include "core/error.hpp"
#include "ops/table_adagrad/table_places.cuh"

namespace paceline::ops {
namespace {

constexpr int kThreads = 256;

// 1 at the first place of each row of the table.
struct StartsRow {
  const std::uint32_t* keys;
  std::uint32_t table_rows;
  __host__ __device__ std::int32_t operator()(std::int32_t i) const {
    return keys[i] < table_rows && (i == 0 || keys[i - 1] != keys[i]) ? 1 : 0;
  }
};

__global__ void __launch_bounds__(kThreads)
    keys_kernel(TableSourcesCuda sources, const __grid_constant__ TableIndexCuda index) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= index.capacity) return;
  const TablePlace place(sources, static_cast<std::int32_t>(i));
  const auto missing = static_cast<std::uint32_t>(index.table_rows);
  std::uint32_t key = missing;
  if (place.entry < *place.kind->count) {
    // -1 is past the table too, as an unsigned number.
    key = min(static_cast<std::uint32_t>(place.lookup->ids[place.entry * place.lookup->hashes]),
              missing);
  }
  index.keys[i] = key;
  index.unsorted_places[i] = static_cast<std::int32_t>(i);
}

__global__ void __launch_bounds__(kThreads)
    rows_kernel(const __grid_constant__ TableIndexCuda index) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= index.capacity) return;
  const auto missing = static_cast<std::uint32_t>(index.table_rows);
  const std::uint32_t key = index.sorted_keys[i];
  const std::int32_t segment = index.segment[i] - 1;
  index.segment[i] = segment;
  if (key == missing) {
    if (i == 0) index.starts[0] = *index.unique = 0;
    return;
  }
  if (i == 0 || index.sorted_keys[i - 1] != key) {
    index.rows[segment] = static_cast<std::int32_t>(key);
    index.starts[segment] = static_cast<std::int32_t>(i);
  }
  if (i + 1 == index.capacity || index.sorted_keys[i + 1] == missing) {
    index.starts[segment + 1] = static_cast<std::int32_t>(i) + 1;
    *index.unique = segment + 1;
  }
}

cudaError_t sort(void* storage, std::size_t& bytes, const TableIndexCuda& index,
                 cudaStream_t stream) {
  const auto bits = std::bit_width(static_cast<std::uint32_t>(index.table_rows));
  return cub::DeviceRadixSort::SortPairs(
      storage, bytes, index.keys, index.sorted_keys, index.unsorted_places, index.places,
      static_cast<std::int32_t>(index.capacity), 0, static_cast<int>(bits), stream);
}
cudaError_t count_rows(void* storage, std::size_t& bytes, const TableIndexCuda& index,
                       cudaStream_t stream) {
  const auto starts = thrust::make_transform_iterator(
      thrust::counting_iterator<std::int32_t>(0),
      StartsRow{index.sorted_keys, static_cast<std::uint32_t>(index.table_rows)});
  return cub::DeviceScan::InclusiveSum(storage, bytes, starts, index.segment,
                                       static_cast<std::int32_t>(index.capacity), stream);
}

}  // namespace

TableIndexCuda place_table_index(device::Arena& arena, std::int64_t capacity,
                                 std::int32_t table_rows) {
  PL_CHECK(capacity >= 0 && capacity < INT32_MAX, "lookups are counted in 31 bits");
  PL_CHECK(table_rows >= 1 && table_rows < INT32_MAX, "rows of the table are counted in 31 bits");
  TableIndexCuda index;
  index.capacity = capacity;
  index.table_rows = table_rows;
  index.rows = arena.take<std::int32_t>(index.max_unique());
  index.starts = arena.take<std::int32_t>(index.max_unique() + 1);
  index.places = arena.take<std::int32_t>(capacity);
  index.segment = arena.take<std::int32_t>(capacity);
  index.unique = arena.take<std::int32_t>(1);
  index.keys = arena.take<std::uint32_t>(capacity);
  index.sorted_keys = arena.take<std::uint32_t>(capacity);
  index.unsorted_places = arena.take<std::int32_t>(capacity);
  std::size_t sort_bytes = 0, scan_bytes = 0;
  device::check(sort(nullptr, sort_bytes, index, nullptr), "the size of a sort's storage");
  device::check(count_rows(nullptr, scan_bytes, index, nullptr), "the size of a scan's storage");
  index.storage_bytes = std::max(sort_bytes, scan_bytes);
  index.storage = arena.take<std::byte>(static_cast<std::int64_t>(index.storage_bytes));
  return index;
}

void table_index_cuda(const device::Stream& stream, const TableSourcesCuda& sources,
                      const TableIndexCuda& index) {
  if (index.capacity == 0) {
    device::fill_zero(stream, index.unique, sizeof(*index.unique));
    device::fill_zero(stream, index.starts, sizeof(*index.starts));
    return;
  }
  const auto raw = static_cast<cudaStream_t>(stream.handle());
  const auto blocks = static_cast<unsigned>((index.capacity + kThreads - 1) / kThreads);
  keys_kernel<<<blocks, kThreads, 0, raw>>>(sources, index);
  device::launched("table_keys", stream);
  std::size_t bytes = index.storage_bytes;
  device::check(sort(index.storage, bytes, index, raw), "the sort of table lookups");
  device::launched("table_sort", stream);
  bytes = index.storage_bytes;
  device::check(count_rows(index.storage, bytes, index, raw), "the scan of table rows");
  device::launched("table_scan", stream);
  rows_kernel<<<blocks, kThreads, 0, raw>>>(index);
  device::launched("table_rows", stream);
}

}  // namespace paceline::ops
