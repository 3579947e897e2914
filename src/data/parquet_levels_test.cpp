#include "data/parquet_levels.hpp"

#include <gtest/gtest.h>
#include <parquet/column_writer.h>

#include <algorithm>

#include "core/rng.hpp"

namespace paceline::data {
namespace {

// The levels as Parquet's own writer packs them.
std::vector<std::uint8_t> packed(const std::vector<std::int16_t>& levels, std::int16_t most) {
  const int n = static_cast<int>(levels.size());
  const int room = parquet::LevelEncoder::MaxBufferSize(parquet::Encoding::RLE, most, n) + 64;
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(room));
  parquet::LevelEncoder encoder;
  encoder.Init(parquet::Encoding::RLE, most, n, bytes.data(), room);
  EXPECT_EQ(encoder.Encode(n, levels.data()), n);
  bytes.resize(static_cast<std::size_t>(encoder.len()));
  return bytes;
}

int width_of(std::int16_t most) {
  return static_cast<int>(std::bit_width(static_cast<unsigned>(most)));
}

// Runs of random lengths, long and short.
std::vector<std::int16_t> random_levels(std::uint64_t seed, std::int64_t n, std::int16_t most) {
  const CounterRng rng(seed, RngStream::kTest);
  std::vector<std::int16_t> levels;
  for (std::uint64_t k = 0; std::ssize(levels) < n; ++k) {
    const auto run = 1 + rng.below(rng.below(2, k, 2) == 0 ? 3 : 100, k);
    const auto level = rng.below(static_cast<std::uint64_t>(most) + 1, k, 1);
    levels.insert(levels.end(), run, static_cast<std::int16_t>(level));
  }
  levels.resize(static_cast<std::size_t>(n));
  return levels;
}

TEST(ParquetLevels, AreThoseThatWereWritten) {
  for (const std::int16_t most : std::initializer_list<std::int16_t>{1, 2, 3, 5, 7}) {
    for (const std::int64_t n : {1, 7, 8, 63, 64, 65, 1000, 5003}) {
      const auto levels = random_levels(static_cast<std::uint64_t>(n + most), n, most);
      const auto bytes = packed(levels, most);
      const PackedLevels stored{bytes, width_of(most), n};
      std::vector<std::uint8_t> unpacked;
      ASSERT_TRUE(unpack_levels(stored, unpacked));
      EXPECT_TRUE(std::equal(levels.begin(), levels.end(), unpacked.begin(), unpacked.end()));
      for (int wanted = 0; wanted <= most; ++wanted) {
        std::vector<std::uint64_t> bits;
        ASSERT_TRUE(bits_where(stored, wanted, bits));
        EXPECT_EQ(count_bits(bits), std::count(levels.begin(), levels.end(), wanted));
        for (std::int64_t i = 0; i < n; ++i) {
          const auto k = static_cast<std::size_t>(i);
          ASSERT_EQ(bits[k / 64] >> (k % 64) & 1, levels[k] == wanted ? 1U : 0U)
              << most << " " << i;
        }
      }
    }
  }
}

TEST(ParquetLevels, CutOffAnywhereAreAnErrorOrTheSame) {
  const auto levels = random_levels(7, 300, 3);
  const auto bytes = packed(levels, 3);
  for (std::size_t cut = 0; cut < bytes.size(); ++cut) {
    // In memory of just that size, so that a step too far is seen.
    const std::vector<std::uint8_t> part(bytes.begin(),
                                         bytes.begin() + static_cast<std::ptrdiff_t>(cut));
    std::vector<std::uint64_t> bits;
    std::vector<std::uint8_t> unpacked;
    const PackedLevels stored{part, 2, 300};
    EXPECT_EQ(bits_where(stored, 3, bits).ok(), unpack_levels(stored, unpacked).ok());
    if (cut + 4 < bytes.size()) {
      const auto read = bits_where(stored, 3, bits);
      ASSERT_FALSE(read) << cut;
      EXPECT_EQ(read.error().code(), Code::kCorruptData);
    }
  }
}

TEST(ParquetLevels, HostileBytesEnd) {
  // A run and a group count far beyond what is declared, and a header without an end.
  const std::vector<std::uint8_t> run{0xFE, 0xFF, 0xFF, 0xFF, 0x0F, 0x01};
  const std::vector<std::uint8_t> groups{0xFF, 0xFF, 0xFF, 0xFF, 0x0F, 0x01};
  const std::vector<std::uint8_t> endless(64, 0xFF);
  std::vector<std::uint64_t> bits;
  EXPECT_TRUE(bits_where({run, 1, 100}, 1, bits));
  EXPECT_EQ(count_bits(bits), 100);
  EXPECT_FALSE(bits_where({groups, 1, 100}, 1, bits));
  EXPECT_FALSE(bits_where({endless, 1, 100}, 1, bits));
  EXPECT_FALSE(bits_where({{}, 1, 1}, 1, bits));
  EXPECT_TRUE(bits_where({{}, 1, 0}, 1, bits));
  EXPECT_TRUE(bits_where({{}, 0, 70}, 0, bits));
  EXPECT_EQ(count_bits(bits), 70);
}

TEST(ParquetLevels, GroupsWithoutHeaders) {
  const std::vector<std::uint8_t> bytes{0b11100100, 0b00000001};
  std::vector<std::uint8_t> levels;
  ASSERT_TRUE(unpack_levels({bytes, 2, 5, true}, levels));
  EXPECT_EQ(levels, (std::vector<std::uint8_t>{0, 1, 2, 3, 1}));
  EXPECT_FALSE(unpack_levels({bytes, 2, 9, true}, levels));
}

}  // namespace
}  // namespace paceline::data
