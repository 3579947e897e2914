#include "core/buffer.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>

namespace paceline {
namespace {

TEST(AlignUp, RoundsToTheNextMultiple) {
  EXPECT_EQ(align_up(0), 0U);
  EXPECT_EQ(align_up(1), 256U);
  EXPECT_EQ(align_up(256), 256U);
  EXPECT_EQ(align_up(257), 512U);
  EXPECT_EQ(align_up(65, kCacheLine), 128U);
}

TEST(HostBuffer, IsAlignedAndZero) {
  for (const std::size_t bytes : {1U, 255U, 256U, 1000U, 70'000U}) {
    HostBuffer buffer(bytes);
    EXPECT_EQ(buffer.size_bytes(), bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % kBufferAlign, 0U);
    const auto all = buffer.as<const std::byte>();
    EXPECT_TRUE(std::all_of(all.begin(), all.end(), [](auto b) { return b == std::byte{0}; }));
  }
}

TEST(HostBuffer, NothingIsAllowed) {
  const HostBuffer none, zero(0);
  EXPECT_EQ(none.data(), nullptr);
  EXPECT_EQ(zero.data(), nullptr);
  EXPECT_TRUE(zero.as<float>().empty());
}

TEST(HostBuffer, MovesItsMemory) {
  HostBuffer a(64);
  a.as<int>()[3] = 7;
  const std::byte* const memory = a.data();
  HostBuffer b(std::move(a));
  EXPECT_EQ(b.data(), memory);
  HostBuffer c(8);
  c = std::move(b);
  EXPECT_EQ(c.data(), memory);
  EXPECT_EQ(c.as<int>()[3], 7);
  EXPECT_EQ(c.as<int>().size(), 16U);
  EXPECT_EQ(c.as<double>().size(), 8U);
}

}  // namespace
}  // namespace paceline
