// Memory of the GPU, host memory that copies can run from behind the host's back, and copies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "core/buffer.hpp"
#include "core/error.hpp"
#include "device/stream.hpp"

namespace paceline::device {

// Device memory of a fixed size, zero-filled.
class Memory {
 public:
  Memory() = default;
  // kOutOfMemory names the bytes wanted and free. `what` names the use.
  static Result<Memory> create(std::size_t bytes, const std::string& what);
  Memory(Memory&& o) noexcept
      : data_(std::exchange(o.data_, nullptr)), bytes_(std::exchange(o.bytes_, 0)) {}
  Memory& operator=(Memory&& o) noexcept {
    std::swap(data_, o.data_);
    std::swap(bytes_, o.bytes_);
    return *this;
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory();

  std::byte* data() const { return data_; }
  std::size_t size_bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// Hands out parts of one allocation, each 256-byte aligned. Without memory it only counts: a place
// function run twice, first on a counting arena, sizes the allocation and then fills it.
class Arena {
 public:
  Arena() = default;
  explicit Arena(const Memory& memory) : base_(memory.data()), bytes_(memory.size_bytes()) {}

  template <typename T>
  T* take(std::int64_t count) {
    const std::size_t at = used_;
    used_ += align_up(static_cast<std::size_t>(count) * sizeof(T));
    if (base_ == nullptr) return nullptr;
    PL_CHECK(used_ <= bytes_, "the arena was sized by the same sequence of takes");
    return reinterpret_cast<T*>(base_ + at);
  }
  bool counting() const { return base_ == nullptr; }
  std::size_t used() const { return used_; }

 private:
  std::byte* base_ = nullptr;
  std::size_t bytes_ = 0;
  std::size_t used_ = 0;
};

// Page-locked host memory of its own, zero-filled.
class PinnedBuffer {
 public:
  static Result<PinnedBuffer> create(std::size_t bytes, const std::string& what);
  PinnedBuffer() = default;
  PinnedBuffer(PinnedBuffer&& o) noexcept
      : data_(std::exchange(o.data_, nullptr)), bytes_(std::exchange(o.bytes_, 0)) {}
  PinnedBuffer& operator=(PinnedBuffer&& o) noexcept {
    std::swap(data_, o.data_);
    std::swap(bytes_, o.bytes_);
    return *this;
  }
  PinnedBuffer(const PinnedBuffer&) = delete;
  PinnedBuffer& operator=(const PinnedBuffer&) = delete;
  ~PinnedBuffer();

  std::byte* data() const { return data_; }
  std::size_t size_bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// In stream order. Copies to and from memory that is not pinned block the caller.
void copy_to_device(const Stream& stream, void* to, const void* from, std::size_t bytes);
void copy_to_host(const Stream& stream, void* to, const void* from, std::size_t bytes);
void copy_on_device(const Stream& stream, void* to, const void* from, std::size_t bytes);
void fill_zero(const Stream& stream, void* at, std::size_t bytes);

}  // namespace paceline::device
