#include "core/bytes.hpp"

#include <gtest/gtest.h>

namespace paceline {
namespace {

TEST(Bytes, ReadsAmountsWithUnits) {
  EXPECT_EQ(parse_bytes("0"), 0);
  EXPECT_EQ(parse_bytes("1536"), 1536);
  EXPECT_EQ(parse_bytes("64 MiB"), 64 << 20);
  EXPECT_EQ(parse_bytes("1.5GiB"), 3LL << 29);
  EXPECT_EQ(parse_bytes("2 TB"), 2'000'000'000'000);
  EXPECT_EQ(parse_bytes("10 kB"), 10'000);
}

TEST(Bytes, RefusesWhatIsNoAmount) {
  for (const char* text :
       {"", "MiB", "-1", "1 mib", "1 GiB more", "nan", "inf", "1e30", "12 GiBs"}) {
    EXPECT_FALSE(parse_bytes(text)) << text;
  }
}

TEST(Bytes, TextIsShortAndReadsBack) {
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(1023), "1023 B");
  EXPECT_EQ(bytes_text(1536), "1.50 KiB");
  EXPECT_EQ(bytes_text(64LL << 20), "64.0 MiB");
  EXPECT_EQ(bytes_text(1023LL << 20), "1.00 GiB");
  EXPECT_EQ(bytes_text(5LL << 40), "5.00 TiB");
  EXPECT_EQ(parse_bytes(bytes_text(200LL << 30)), 200LL << 30);
}

TEST(Bytes, TheMachineHasMemory) { EXPECT_GT(machine_memory_bytes(), 64LL << 20); }

}  // namespace
}  // namespace paceline
