// Host memory of a fixed size, 256-byte aligned (a cache-line and vector multiple, and what one
// host-to-device copy of a packed batch wants). Never grows: the size is fixed at creation.
#pragma once

#include <cstddef>
#include <cstring>
#include <new>
#include <span>
#include <utility>

namespace paceline {

inline constexpr std::size_t kBufferAlign = 256;
inline constexpr std::size_t kCacheLine = 64;

constexpr std::size_t align_up(std::size_t n, std::size_t to = kBufferAlign) {
  return (n + to - 1) / to * to;
}

class HostBuffer {
 public:
  HostBuffer() = default;
  // Zero-filled. Throws std::bad_alloc, which workers and main turn into Code::kOutOfMemory.
  explicit HostBuffer(std::size_t bytes) : bytes_(bytes) {
    if (bytes_ == 0) return;
    data_ =
        static_cast<std::byte*>(::operator new (align_up(bytes_), std::align_val_t{kBufferAlign}));
    std::memset(data_, 0, align_up(bytes_));
  }
  HostBuffer(HostBuffer&& o) noexcept
      : data_(std::exchange(o.data_, nullptr)), bytes_(std::exchange(o.bytes_, 0)) {}
  HostBuffer& operator=(HostBuffer&& o) noexcept {
    std::swap(data_, o.data_);
    std::swap(bytes_, o.bytes_);
    return *this;
  }
  HostBuffer(const HostBuffer&) = delete;
  HostBuffer& operator=(const HostBuffer&) = delete;
  ~HostBuffer() {
    if (data_ != nullptr) ::operator delete (data_, std::align_val_t{kBufferAlign});
  }

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  std::size_t size_bytes() const { return bytes_; }

  // The buffer seen as elements of T.
  template <typename T>
  std::span<T> as() {
    return {reinterpret_cast<T*>(data_), bytes_ / sizeof(T)};
  }
  template <typename T>
  std::span<const T> as() const {
    return {reinterpret_cast<const T*>(data_), bytes_ / sizeof(T)};
  }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace paceline
