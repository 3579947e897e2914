// Tests only: skipped where there is no GPU; PACELINE_NEEDS_GPU=1 makes that a failure instead.
// DeviceArray moves test data.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "device/gpu.hpp"
#include "device/memory.hpp"

namespace paceline::device::testing {

class GpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto gpu = find_gpu();
    if (gpu) return;
    const char* needed = std::getenv("PACELINE_NEEDS_GPU");
    if (needed != nullptr && std::string(needed) == "1") FAIL() << gpu.error().text();
    GTEST_SKIP() << gpu.error().text();
  }
};

// For EXPECT_DEATH: the statement runs in a program of its own, since what is forked from one that
// uses the GPU cannot.
class GpuDeathTest : public GpuTest {
 protected:
  void SetUp() override {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    GpuTest::SetUp();
  }
};

// An array on the GPU with `kGuard` bytes of a pattern on both sides.
template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(const std::vector<T>& contents)
      : count_(contents.size()), memory_(allocate(count_)) {
    std::vector<std::byte> all(memory_.size_bytes(), kPattern);
    if (count_ > 0) std::memcpy(all.data() + kGuard, contents.data(), count_ * sizeof(T));
    const Stream stream("test");
    copy_to_device(stream, memory_.data(), all.data(), all.size());
    stream.synchronize();
  }
  explicit DeviceArray(std::size_t count) : DeviceArray(std::vector<T>(count)) {}

  T* data() const { return reinterpret_cast<T*>(memory_.data() + kGuard); }
  std::size_t size() const { return count_; }
  // The contents; fails the test when a guard was written.
  std::vector<T> read() const {
    std::vector<std::byte> all(memory_.size_bytes());
    const Stream stream("test");
    copy_to_host(stream, all.data(), memory_.data(), all.size());
    stream.synchronize();
    const std::size_t end = kGuard + count_ * sizeof(T);
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (i >= kGuard && i < end) continue;
      if (all[i] != kPattern) {
        ADD_FAILURE() << "byte " << i << " outside of " << count_ * sizeof(T) << " was written";
        break;
      }
    }
    std::vector<T> out(count_);
    if (count_ > 0) std::memcpy(out.data(), all.data() + kGuard, count_ * sizeof(T));
    return out;
  }

 private:
  static constexpr std::size_t kGuard = 1024;
  static constexpr std::byte kPattern{0xFD};
  static Memory allocate(std::size_t count) {
    auto memory = Memory::create(count * sizeof(T) + 2 * kGuard, "a test's array");
    PL_CHECK(memory.ok(), memory.error().text());
    return std::move(*memory);
  }

  std::size_t count_;
  Memory memory_;
};

}  // namespace paceline::device::testing
