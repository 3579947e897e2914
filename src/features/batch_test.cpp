#include "features/batch.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "features/encode.hpp"

namespace paceline::features {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kConfig = R"(
[[features]]
name = "user"
scope = "user"
kind = "id"
column = "user_id"
rows = 50
hashes = 3
[[features]]
name = "item"
scope = "event"
kind = "id"
history_column = "history_item"
candidate_column = "candidate_item"
rows = 100
hashes = 2
[[features]]
name = "age"
scope = "history"
kind = "bucket"
history_column = "history_time"
minus = "request_time"
boundaries = [5, 50]
[[features]]
name = "surface"
scope = "history"
kind = "category"
history_column = "history_surface"
rows = 3
[[features]]
name = "price"
scope = "candidate"
kind = "number"
candidate_column = "candidate_price"
[[features]]
name = "flags"
scope = "candidate"
kind = "multi_hot"
candidate_column = "candidate_flags"
size = 4
[[actions]]
name = "seen"
bit = 0
[[actions]]
name = "like"
bit = 1
[[targets]]
name = "dwell"
candidate_column = "candidate_dwell"
)";

Schema schema_of(const std::string& text = kConfig) {
  auto config = Config::parse(text, "test.toml");
  PL_CHECK(config.ok(), "a config");
  auto schema = Schema::from_config(*config);
  PL_CHECK(schema.ok(), schema.error().text());
  return std::move(*schema);
}

ColumnValues& column(const Schema& s, RowBlock& block, const std::string& name) {
  for (std::size_t c = 0; c < s.columns().size(); ++c) {
    if (s.columns()[c].name == name) return block.columns[c];
  }
  PL_CHECK(false, name);
  return block.columns[0];
}

// Two rows: three history events and two candidates; no history and one candidate.
RowBlock block_of(const Schema& s) {
  RowBlock b;
  b.rows = 2;
  b.first_row = 1000;
  b.history_offsets = {0, 3, 3};
  b.candidate_offsets = {0, 2, 3};
  b.columns.resize(s.columns().size());
  column(s, b, "user_id").ints = {7, -7};
  column(s, b, "request_time").ints = {100, 200};
  column(s, b, "history_item").ints = {11, 0, 13};
  column(s, b, "history_time").ints = {40, 95, 98};
  column(s, b, "history_surface").ints = {2, 3, -1};
  column(s, b, "candidate_item").ints = {21, 22, 23};
  column(s, b, "candidate_price").floats = {1.5F, 2.5F, 3.5F};
  column(s, b, "candidate_flags").ints = {0xFF, 2, 0};
  column(s, b, "candidate_actions").ints = {3, 1 | 4, 2};
  column(s, b, "candidate_dwell").floats = {10, 20, 30};
  return b;
}

TEST(BatchCutter, WritesEveryArray) {
  const Schema s = schema_of();
  const RowBlock rows = block_of(s);
  const BatchLayout layout(s, {.examples = 4, .tokens = 0, .history_len = 8, .candidates = 8});
  BatchCutter cutter(s, layout);
  Batch b(layout);
  cutter.begin(b);
  EXPECT_EQ(cutter.tokens_of(rows, 0), 6);
  ASSERT_TRUE(cutter.append(rows, 0));
  ASSERT_TRUE(cutter.append(rows, 1));

  EXPECT_EQ(b.examples(), 2);
  EXPECT_EQ(b.tokens(), 8);
  EXPECT_EQ(b.history_tokens(), 3);
  EXPECT_EQ(b.candidate_tokens(), 3);
  EXPECT_THAT(b.cu_tokens(), ElementsAre(0, 6, 8));
  EXPECT_THAT(b.cu_history(), ElementsAre(0, 3, 3));
  EXPECT_THAT(b.cu_candidates(), ElementsAre(0, 2, 3));
  EXPECT_THAT(b.history_len(), ElementsAre(3, 0));
  EXPECT_THAT(b.candidate_len(), ElementsAre(2, 1));
  EXPECT_THAT(b.positions(), ElementsAre(0, 1, 2, 3, 4, 4, 0, 1));
  EXPECT_THAT(b.user_id(), ElementsAre(7, -7));
  EXPECT_THAT(b.dataset_row(), ElementsAre(1000, 1001));
  EXPECT_THAT(b.actions(), ElementsAre(3U, 1U, 2U));
  EXPECT_THAT(b.target(0), ElementsAre(10, 20, 30));

  const int history = s.history_kind();
  const int candidate = s.candidate_kind();
  EXPECT_THAT(b.feature_int(0, 0), ElementsAre(table_row(7, 0, 50, 0), table_row(7, 1, 50, 0),
                                               table_row(7, 2, 50, 0), table_row(-7, 0, 50, 0),
                                               table_row(-7, 1, 50, 0), table_row(-7, 2, 50, 0)));
  EXPECT_THAT(b.feature_int(history, 0),
              ElementsAre(table_row(11, 0, 100, 50), table_row(11, 1, 100, 50), -1, -1,
                          table_row(13, 0, 100, 50), table_row(13, 1, 100, 50)));
  EXPECT_THAT(b.feature_int(history, 1), ElementsAre(2, 1, 0));  // 60, 5 and 2 seconds
  EXPECT_THAT(b.feature_int(history, 2), ElementsAre(2, 0, 0));
  EXPECT_EQ(b.feature_int(candidate, 0)[0], table_row(21, 0, 100, 50));
  EXPECT_THAT(b.feature_float(candidate, 1), ElementsAre(1.5F, 2.5F, 3.5F));
  EXPECT_THAT(b.feature_mask(candidate, 2), ElementsAre(0xFU, 2U, 0U));

  EXPECT_EQ(b.cuts().unknown_actions, 1);
  EXPECT_EQ(b.cuts().unknown_categories, 2);
  EXPECT_EQ(b.cuts().request_before_history, 0);
}

TEST(BatchCutter, KeepsTheNewestEventsAndTheFirstCandidates) {
  const Schema s = schema_of();
  RowBlock rows = block_of(s);
  const BatchLayout layout(s, {.examples = 4, .tokens = 0, .history_len = 2, .candidates = 1});
  BatchCutter cutter(s, layout);
  Batch b(layout);
  cutter.begin(b);
  ASSERT_TRUE(cutter.append(rows, 0));
  EXPECT_THAT(b.feature_int(s.history_kind(), 1), ElementsAre(1, 0));
  EXPECT_THAT(b.feature_float(s.candidate_kind(), 1), ElementsAre(1.5F));
  EXPECT_EQ(b.cuts().history_events_cut, 1);
  EXPECT_EQ(b.cuts().candidates_cut, 1);
  column(s, rows, "request_time").ints[0] = 97;
  cutter.begin(b);
  ASSERT_TRUE(cutter.append(rows, 0));
  EXPECT_EQ(b.cuts().request_before_history, 1);
}

TEST(BatchCutter, EndsAtEachLimit) {
  const Schema s = schema_of();
  const RowBlock rows = block_of(s);
  const BatchLayout two(s, {.examples = 2, .tokens = 0, .history_len = 8, .candidates = 8});
  Batch b(two);
  BatchCutter cutter(s, two);
  cutter.begin(b);
  EXPECT_TRUE(cutter.append(rows, 1));
  EXPECT_TRUE(cutter.append(rows, 1));
  EXPECT_FALSE(cutter.append(rows, 1));
  EXPECT_EQ(b.examples(), 2);

  const BatchLayout seven(s, {.examples = 9, .tokens = 7, .history_len = 8, .candidates = 8});
  Batch c(seven);
  BatchCutter packed(s, seven);
  packed.begin(c);
  EXPECT_TRUE(packed.append(rows, 0));
  EXPECT_FALSE(packed.append(rows, 1));
  EXPECT_EQ(c.tokens(), 6);
  packed.begin(c);
  EXPECT_TRUE(packed.append(rows, 1));
  EXPECT_EQ(c.tokens(), 2);
}

TEST(BatchCutter, WithoutLabels) {
  const Schema full = schema_of();
  const Schema s = full.without_labels();
  const RowBlock rows = block_of(full);
  const BatchLayout layout(s, {.examples = 4, .tokens = 0, .history_len = 8, .candidates = 8});
  BatchCutter cutter(s, layout);
  Batch b(layout);
  cutter.begin(b);
  ASSERT_TRUE(cutter.append(rows, 0));
  EXPECT_THAT(b.actions(), ElementsAre(0U, 0U));
  EXPECT_THAT(b.target(0), ElementsAre(0.0F, 0.0F));
}

TEST(BatchLayout, ArraysAreAlignedAndApart) {
  const Schema s = schema_of();
  const BatchLayout l(s, {.examples = 5, .tokens = 0, .history_len = 7, .candidates = 3});
  std::vector<BatchLayout::Array> arrays{l.cu_tokens,     l.cu_history, l.cu_candidates,
                                         l.history_len,   l.positions,  l.actions,
                                         l.candidate_len, l.user_id,    l.dataset_row};
  for (int k = 0; k < static_cast<int>(s.kinds().size()); ++k) {
    for (const auto& f : l.features(k)) arrays.push_back(f.array);
  }
  for (const auto& t : l.targets) arrays.push_back(t);
  std::sort(arrays.begin(), arrays.end(),
            [](const auto& x, const auto& y) { return x.offset < y.offset; });
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    EXPECT_EQ(arrays[i].offset % kBufferAlign, 0U);
    const auto next = i + 1 < arrays.size() ? arrays[i + 1].offset : l.total_bytes();
    EXPECT_LE(arrays[i].offset + arrays[i].bytes, next);
  }
  EXPECT_EQ(l.limits().tokens, 5 * 11);
  EXPECT_EQ(l.positions.bytes, 4U * 55U);
}

TEST(BatchLimits, FromConfig) {
  const Schema s = schema_of();
  const auto limits = [&](const std::string& text) -> Result<BatchLimits> {
    auto config = Config::parse(text, "test.toml");
    PL_CHECK(config.ok(), "a config");
    return BatchLimits::from_config(*config, s);
  };
  const auto all = limits("[batch]\nexamples = 10\nhistory_len = 20\ncandidates = 5\n");
  ASSERT_TRUE(all) << all.error().text();
  EXPECT_EQ(all->tokens, 10 * 26);
  EXPECT_EQ(limits("[batch]\ntokens = 100\n")->tokens, 100);
  const auto text = [&](const std::string& config) { return limits(config).error().text(); };
  EXPECT_THAT(text("[batch]\nexamples = 0\n"), HasSubstr("batch.examples"));
  EXPECT_THAT(text("[batch]\ntokens = 1\n"), HasSubstr("batch.tokens"));
  EXPECT_THAT(text("[batch]\ncandidates = 0\n"), HasSubstr("batch.candidates"));
  EXPECT_THAT(text("[batch]\nexamples = 1000000\nhistory_len = 1000000\n"), HasSubstr("31 bits"));
}

TEST(Encode, Log2BucketsOfItsFormula) {
  for (const double unit : {1.0, 60.0, 0.25}) {
    for (const double x : {0.0, 0.5, 1.0, 59.0, 60.0, 61.0, 179.0, 180.0, 3600.0, 1e9, 9e18}) {
      const int expected = std::min(1 + static_cast<int>(std::floor(std::log2(1 + x / unit))), 31);
      EXPECT_EQ(log2_bucket(x, unit, 32), expected) << x << " / " << unit;
    }
  }
}

TEST(Encode, DistanceNeverOverflows) {
  constexpr auto kMin = std::numeric_limits<std::int64_t>::min();
  constexpr auto kMax = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(distance(3, 5), 2);
  EXPECT_EQ(distance(5, 3), 2);
  EXPECT_EQ(distance(-1, 1), 2);
  EXPECT_EQ(distance(kMin, kMax), kMax);
  EXPECT_EQ(distance(kMax, kMin), kMax);
}

// Several at once give the bits of one at a time: around powers of two, where a bucket ends, and
// where distances no longer fit the mantissa or the type.
TEST(Encode, DistancesInBulkAreThoseOneByOne) {
  constexpr std::int64_t kMin = std::numeric_limits<std::int64_t>::min();
  constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
  std::vector<std::int64_t> near, far{0, kMin, kMax, -1, 1, kMin + 1, kMax - 1};
  for (int bit = 0; bit < 63; ++bit) {
    for (const std::int64_t d : {-1, 0, 1}) {
      const std::int64_t x = (std::int64_t{1} << bit) + d;
      (bit < 50 ? near : far).push_back(x);
      (bit < 50 ? near : far).push_back(-x);
    }
  }
  // Long enough that some steps hold near values only, some the first that are not, some all.
  std::vector<std::int64_t> values;
  for (int k = 0; k < 4; ++k) values.insert(values.end(), near.begin(), near.end());
  for (int bit = 50; bit < 60; ++bit) {
    for (std::int64_t k = 0; k < 256; ++k) values.push_back((std::int64_t{1} << bit) - 128 + k);
  }
  values.insert(values.end(), far.begin(), far.end());
  values.insert(values.end(), near.begin(), near.end());
  const auto n = static_cast<std::int64_t>(values.size());
  const auto value = [&](std::int64_t i) { return values[static_cast<std::size_t>(i)]; };
  const auto check = [&](const TokenFeature& f, auto other) {
    std::vector<std::int32_t> out(values.size(), -7);
    encode_distances(n, f, out.data(), value, other);
    for (std::int64_t i = 0; i < n; ++i) {
      const auto d = static_cast<double>(distance(value(i), other(i)));
      const auto expected =
          f.log2_boundaries ? log2_bucket(d, f.unit, f.size) : boundary_bucket(d, f.boundaries);
      ASSERT_EQ(out[static_cast<std::size_t>(i)], expected) << value(i) << " and " << other(i);
    }
  };
  TokenFeature f;
  f.kind = Kind::kBucket;
  f.boundaries = {1, 100, 1e9};
  for (const double unit : {1.0, 60.0, 0.3}) {
    f.unit = unit;
    for (const int size : {2, 32, 200}) {
      f.size = size;
      for (const bool log2 : {true, false}) {
        f.log2_boundaries = log2;
        check(f, [](std::int64_t) { return std::int64_t{0}; });
        check(f, [](std::int64_t) { return std::int64_t{1'780'000'000}; });
        check(f, [&](std::int64_t i) { return value(n - 1 - i); });
      }
    }
  }
}

TEST(Encode, BoundaryBelongsToTheBucketAbove) {
  const std::vector<double> b{0.0, 1.0, 10.0};
  EXPECT_EQ(boundary_bucket(-1, b), 0);
  EXPECT_EQ(boundary_bucket(0, b), 1);
  EXPECT_EQ(boundary_bucket(9.99, b), 2);
  EXPECT_EQ(boundary_bucket(10, b), 3);
}

TEST(Encode, EveryNumberOfHashes) {
  const std::vector<std::int64_t> ids{5, 0, -9};
  for (int hashes = 1; hashes <= 8; ++hashes) {
    TokenFeature f;
    f.rows = 1000;
    f.table_base = 10;
    f.hashes = hashes;
    std::vector<std::int32_t> out(ids.size() * static_cast<std::size_t>(hashes));
    encode_ids(ids.data(), 3, f, out.data());
    for (std::size_t i = 0; i < ids.size(); ++i) {
      for (int j = 0; j < hashes; ++j) {
        EXPECT_EQ(out[i * static_cast<std::size_t>(hashes) + static_cast<std::size_t>(j)],
                  table_row(ids[i], j, 1000, 10));
      }
    }
  }
}

}  // namespace
}  // namespace paceline::features
