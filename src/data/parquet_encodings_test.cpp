#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "data/source.hpp"
#include "data/testing/small_rows.hpp"

namespace paceline::data {
namespace {

using namespace testing;  // NOLINT: this room's test support

class ParquetEncodingsTest : public SmallRowsTest {
 protected:
  // Lists of every length around the bounds of groups, runs and words, some of them empty.
  ParquetEncodingsTest() {
    const CounterRng rng(1, RngStream::kTest);
    std::vector<std::int64_t> n, users, ones, bits, values, masks;
    std::vector<std::int32_t> small;
    for (std::int64_t r = 0; r < 400; ++r) {
      const auto row = static_cast<std::uint64_t>(r);
      n.push_back(r < 140 ? r : static_cast<std::int64_t>(rng.below(r < 300 ? 3 : 40, row)));
      users.push_back(static_cast<std::int64_t>(rng.below(1U << 30, row, 1)) - 1000);
      ones.push_back(1);
      bits.push_back(r % 8);
      for (std::int64_t i = 0; i < n.back(); ++i) {
        const auto k = static_cast<std::uint64_t>(i);
        values.push_back(
            static_cast<std::int64_t>(rng.below(r % 2 == 0 ? 5 : 1U << 31, row, k + 2)));
        numbers_.push_back(static_cast<float>(values.back() % 1000) / 8.0F);
      }
    }
    fields_["user_id"] = array_of<Int>(users);
    fields_["h"] = lists_of<Int>(n, values);
    fields_["v"] = lists_of<arrow::FloatBuilder>(n, numbers_);
    fields_["c"] = lists_of<Int>(ones, users);
    fields_["candidate_actions"] = lists_of<Int>(ones, bits);
    offsets_ = {0};
    for (const auto length : n) offsets_.push_back(offsets_.back() + length);
    users_ = users;
    values_ = values;
    bits_ = bits;
  }

  void expect_read(const std::shared_ptr<parquet::WriterProperties>& properties,
                   const std::string& what) {
    SCOPED_TRACE(what);
    const auto block = read_file(write_with(fields_, properties));
    EXPECT_EQ(block.history_offsets, offsets_);
    EXPECT_EQ(column(block, "user_id").ints, users_);
    EXPECT_EQ(column(block, "h").ints, values_);
    EXPECT_EQ(column(block, "v").floats, numbers_);
    EXPECT_EQ(column(block, "c").ints, users_);
    EXPECT_EQ(column(block, "candidate_actions").ints, bits_);
  }

  Fields fields_;
  std::vector<std::int64_t> offsets_, users_, values_, bits_;
  std::vector<float> numbers_;
};

using Builder = parquet::WriterProperties::Builder;
using parquet::Compression;
using parquet::Encoding;
using parquet::ParquetDataPageVersion;

TEST_F(ParquetEncodingsTest, EveryCodecAndPageVersion) {
  for (const auto version : {ParquetDataPageVersion::V1, ParquetDataPageVersion::V2}) {
    for (const auto codec :
         {Compression::UNCOMPRESSED, Compression::SNAPPY, Compression::GZIP, Compression::BROTLI,
          Compression::ZSTD, Compression::LZ4, Compression::LZ4_HADOOP}) {
      Builder builder;
      builder.data_page_version(version)->compression(codec)->enable_page_checksum();
      builder.data_pagesize(3000);
      expect_read(builder.build(), "codec " + std::to_string(codec) + ", page version " +
                                       std::to_string(static_cast<int>(version)));
    }
  }
}

TEST_F(ParquetEncodingsTest, EveryEncodingAndPageSize) {
  for (const int page : {1, 100, 3000, 1 << 20}) {
    for (const auto encoding :
         {Encoding::PLAIN, Encoding::DELTA_BINARY_PACKED, Encoding::BYTE_STREAM_SPLIT}) {
      Builder builder;
      builder.disable_dictionary()->data_pagesize(page)->encoding(encoding);
      builder.write_batch_size(page == 1 ? 1 : 64);
      if (encoding == Encoding::DELTA_BINARY_PACKED) {
        builder.encoding("v.list.element", Encoding::PLAIN);
      }
      expect_read(builder.build(), "encoding " + parquet::EncodingToString(encoding) +
                                       ", pages of " + std::to_string(page));
    }
    Builder dictionary;
    dictionary.data_pagesize(page)->write_batch_size(64);
    expect_read(dictionary.build(), "dictionaries, pages of " + std::to_string(page));
    // A dictionary that grows too large: plain pages follow those that use it.
    Builder half;
    half.data_pagesize(page)->write_batch_size(64)->dictionary_pagesize_limit(500);
    expect_read(half.build(), "half a dictionary, pages of " + std::to_string(page));
  }
}

}  // namespace
}  // namespace paceline::data
