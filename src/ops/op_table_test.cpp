#include "ops/op_table.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstring>

namespace paceline::ops {
namespace {

TEST(OpTableTest, HasEveryEntry) {
  // All members are function pointers.
  using Entry = void (*)();
  constexpr std::size_t kEntries = sizeof(OpTable) / sizeof(Entry);
  std::array<Entry, kEntries> entries;
  std::memcpy(entries.data(), static_cast<const void*>(&cpu_ops()), sizeof(OpTable));
  for (std::size_t i = 0; i < kEntries; ++i) EXPECT_NE(entries[i], nullptr) << "entry " << i;
}

}  // namespace
}  // namespace paceline::ops
