#include "device/memory.hpp"

#include <cuda_runtime.h>
#include <fmt/format.h>

#include "core/bytes.hpp"

namespace paceline::device {
namespace {

cudaStream_t raw(const Stream& s) { return static_cast<cudaStream_t>(s.handle()); }

}  // namespace

Result<Memory> Memory::create(std::size_t bytes, const std::string& what) {
  Memory memory;
  if (bytes == 0) return memory;
  void* data = nullptr;
  if (const auto status = cudaMalloc(&data, bytes); status != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    if (status != cudaErrorMemoryAllocation) check(status, "cudaMalloc");
    std::size_t free = 0, total = 0;
    check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    return Error(Code::kOutOfMemory, fmt::format("{} needs {} of GPU memory; free are {} of {}",
                                                 what, bytes_text(static_cast<std::int64_t>(bytes)),
                                                 bytes_text(static_cast<std::int64_t>(free)),
                                                 bytes_text(static_cast<std::int64_t>(total))));
  }
  memory.data_ = static_cast<std::byte*>(data);
  memory.bytes_ = bytes;
  check(cudaMemset(data, 0, bytes), "cudaMemset");
  check(cudaDeviceSynchronize(), "cudaMemset");
  return memory;
}
Memory::~Memory() {
  if (data_ != nullptr) static_cast<void>(cudaFree(data_));
}

Result<PinnedBuffer> PinnedBuffer::create(std::size_t bytes, const std::string& what) {
  PinnedBuffer buffer;
  if (bytes == 0) return buffer;
  void* data = nullptr;
  if (const auto status = cudaHostAlloc(&data, bytes, cudaHostAllocDefault);
      status != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    return Error(Code::kOutOfMemory, fmt::format("{} needs {} of pinned host memory: {}", what,
                                                 bytes_text(static_cast<std::int64_t>(bytes)),
                                                 cudaGetErrorString(status)));
  }
  buffer.data_ = static_cast<std::byte*>(data);
  buffer.bytes_ = bytes;
  std::memset(data, 0, bytes);
  return buffer;
}
PinnedBuffer::~PinnedBuffer() {
  if (data_ != nullptr) static_cast<void>(cudaFreeHost(data_));
}

void copy_to_device(const Stream& stream, void* to, const void* from, std::size_t bytes) {
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, raw(stream)), "a copy to the GPU");
}
void copy_to_host(const Stream& stream, void* to, const void* from, std::size_t bytes) {
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, raw(stream)),
        "a copy from the GPU");
}
void copy_on_device(const Stream& stream, void* to, const void* from, std::size_t bytes) {
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, raw(stream)),
        "a copy on the GPU");
}
void fill_zero(const Stream& stream, void* at, std::size_t bytes) {
  check(cudaMemsetAsync(at, 0, bytes, raw(stream)), "cudaMemsetAsync");
}

}  // namespace paceline::device
