#include "data/inspect.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "data/distinct.hpp"
#include "data/inspect_tally.hpp"
#include "data/source.hpp"
#include "data/testing/impressions.hpp"
#include "data/testing/schemas.hpp"

namespace paceline::data {
namespace {

using ::testing::HasSubstr;
using testing::TempDir;

constexpr features::BatchLimits kLimits{
    .examples = 8, .tokens = 200, .history_len = 64, .candidates = 64};

features::Schema impressions() { return testing::schema_of(testing::impression_features()); }

Inspection inspected(const std::vector<std::string>& paths, const InspectOptions& options = {},
                     const features::BatchLimits& limits = kLimits) {
  auto found = inspect(paths, impressions(), limits, options);
  PL_CHECK(found.ok(), found.error().text());
  return std::move(*found);
}

// Every number again, by a reader without threads.
TEST(Inspect, CountsWhatTheRowsHold) {
  TempDir dir;
  const auto paths = testing::write_impressions(dir.path(), {.rows = 500, .files = 3});
  const auto schema = impressions();
  const auto source = open_parquet(paths, schema);
  ASSERT_TRUE(source.ok());
  std::set<std::int64_t> users;
  std::vector<std::int64_t> history, candidates, action(3, 0);
  features::RowBlock block;
  for (std::size_t b = 0; b < (*source)->blocks().size(); ++b) {
    ASSERT_TRUE((*source)->read(static_cast<std::int64_t>(b), block).ok());
    for (std::size_t r = 0; r + 1 < block.history_offsets.size(); ++r) {
      history.push_back(block.history_offsets[r + 1] - block.history_offsets[r]);
      candidates.push_back(block.candidate_offsets[r + 1] - block.candidate_offsets[r]);
      users.insert(block.columns[static_cast<std::size_t>(schema.user_column())].ints[r]);
    }
    for (const auto m : block.columns[static_cast<std::size_t>(schema.actions_column())].ints) {
      for (std::size_t a = 0; a < 3; ++a) action[a] += m >> a & 1;
    }
  }
  std::sort(history.begin(), history.end());

  const Inspection found = inspected({dir.path().string()});
  EXPECT_EQ(found.files, 3);
  EXPECT_EQ(found.rows, 500);
  EXPECT_EQ(found.rows_read, 500);
  EXPECT_EQ(found.blocks, static_cast<std::int64_t>((*source)->blocks().size()));
  EXPECT_EQ(found.max_block_rows, 16);
  EXPECT_FALSE(found.anything_refused());
  EXPECT_EQ(found.users, static_cast<std::int64_t>(users.size()));
  EXPECT_EQ(found.history.rows, 500);
  EXPECT_EQ(found.history.min, history.front());
  EXPECT_EQ(found.history.p50, history[249]);
  EXPECT_EQ(found.history.p90, history[449]);
  EXPECT_EQ(found.history.max, history.back());
  EXPECT_EQ(found.history.total, std::accumulate(history.begin(), history.end(), std::int64_t{0}));
  EXPECT_EQ(found.history.bins[0], std::count(history.begin(), history.end(), 0));
  EXPECT_EQ(found.history.bins[2], std::count(history.begin(), history.end(), 2) +
                                       std::count(history.begin(), history.end(), 3));
  EXPECT_EQ(found.candidates.total,
            std::accumulate(candidates.begin(), candidates.end(), std::int64_t{0}));
  ASSERT_EQ(found.actions.size(), 3U);
  for (std::size_t a = 0; a < 3; ++a) EXPECT_EQ(found.actions[a].candidates, action[a]);
  EXPECT_TRUE(found.has_time);
  EXPECT_EQ(found.first_time, 1'700'000'000);
  EXPECT_EQ(found.last_time, 1'700'000'000 + 499 * 60);
  EXPECT_EQ(found.columns.size(), 9U);
  EXPECT_GT(found.bytes_read, 0);
  EXPECT_GT(found.largest_block_bytes, 0);
}

TEST(Inspect, ThreadsChangeNothing) {
  TempDir dir;
  const auto paths = testing::write_impressions(dir.path(), {.rows = 400, .files = 5});
  testing::corrupt_row_group(paths[1], 1);
  testing::corrupt_row_group(paths[3], 0);
  const Inspection one = inspected(paths);
  const Inspection four = inspected(paths, {.threads = 4});
  EXPECT_EQ(one.history.bins, four.history.bins);
  EXPECT_EQ(one.users, four.users);
  EXPECT_EQ(one.refused_rows, four.refused_rows);
  ASSERT_EQ(one.by_reason.size(), four.by_reason.size());
  for (std::size_t i = 0; i < one.by_reason.size(); ++i) {
    EXPECT_EQ(one.by_reason[i].kind, four.by_reason[i].kind);
    EXPECT_EQ(one.by_reason[i].rows, four.by_reason[i].rows);
    EXPECT_EQ(one.by_reason[i].first.why, four.by_reason[i].first.why);
  }
  ASSERT_EQ(one.refusals.size(), four.refusals.size());
  for (std::size_t i = 0; i < one.refusals.size(); ++i) {
    EXPECT_EQ(one.refusals[i].why, four.refusals[i].why);
  }
}

TEST(Inspect, BrokenFilesAndRowGroupsAreListedAndTheRestIsRead) {
  TempDir dir;
  const auto paths = testing::write_impressions(dir.path(), {.rows = 96, .files = 3});
  std::filesystem::resize_file(paths[0], 500);
  testing::corrupt_row_group(paths[2], 1);
  const Inspection found = inspected({dir.path().string()});
  EXPECT_EQ(found.files, 3);
  EXPECT_EQ(found.refused_files, 1);
  EXPECT_EQ(found.refused_blocks, 1);
  EXPECT_EQ(found.refused_rows, 16);
  EXPECT_EQ(found.rows, 64);
  EXPECT_EQ(found.rows_read, 64);
  EXPECT_EQ(found.history.rows, 48);
  ASSERT_EQ(found.refusals.size(), 2U);
  EXPECT_EQ(found.refusals[0].file, paths[0]);
  EXPECT_EQ(found.refusals[0].row_group, -1);
  EXPECT_EQ(found.refusals[1].file, paths[2]);
  EXPECT_EQ(found.refusals[1].row_group, 1);
  EXPECT_THAT(found.refusals[1].why, HasSubstr("user_id"));
  ASSERT_EQ(found.by_reason.size(), 2U);
  EXPECT_EQ(found.by_reason[0].kind, (RefusalKind{"cannot be read", "user_id"}));
  EXPECT_EQ(found.by_reason[0].rows, 16);
  EXPECT_EQ(found.by_reason[0].row_groups, 1);
  EXPECT_EQ(found.by_reason[0].files, 0);
  EXPECT_EQ(found.by_reason[0].first.why, found.refusals[1].why);
  EXPECT_EQ(found.by_reason[1].kind, (RefusalKind{"not a complete Parquet file", ""}));
  EXPECT_EQ(found.by_reason[1].files, 1);
  EXPECT_EQ(found.by_reason[1].rows, 0);
}

// One message with three lengths is one kind; the first of it is shown whole.
TEST(Inspect, ReasonsAreKindsWithTheirFirstMessage) {
  TempDir dir;
  const auto paths = testing::write_impressions(dir.path(), {.rows = 100});
  const features::BatchLimits small{.examples = 8, .tokens = 8, .history_len = 6, .candidates = 3};
  const Inspection found = inspected(paths, {.threads = 3}, small);
  ASSERT_EQ(found.by_reason.size(), 1U);
  EXPECT_EQ(found.by_reason[0].kind, (RefusalKind{"longer than batch.tokens", ""}));
  EXPECT_EQ(found.by_reason[0].rows, found.refused_rows);
  EXPECT_EQ(found.by_reason[0].first.row, found.refusals[0].row);
}

TEST(Inspect, ReckonsMemoryAsTrainingDoes) {
  TempDir dir;
  testing::write_impressions(dir.path(), {.rows = 500, .files = 3});
  const auto schema = impressions();
  InspectOptions options;
  options.loading.shuffle_window = 4;
  options.loading.depth = 3;
  const auto found = inspected({dir.path().string()}, options);
  const auto source = open_parquet({dir.path().string()}, schema);
  ASSERT_TRUE(source.ok());
  BatchPipelineOptions loading = options.loading;
  loading.limits = kLimits;
  const auto pipeline = BatchPipeline::create(**source, schema, loading, {});
  ASSERT_TRUE(pipeline.ok()) << pipeline.error().text();
  EXPECT_EQ(found.memory.block_slots, 8);
  EXPECT_EQ(found.memory.total(), (*pipeline)->memory().total());
}

TEST(Inspect, WithoutLabelsThereAreNoActions) {
  TempDir dir;
  const auto paths = testing::write_impressions(dir.path(), {.rows = 20});
  const auto found = inspect(paths, impressions().without_labels(), kLimits);
  ASSERT_TRUE(found.ok());
  EXPECT_TRUE(found->actions.empty());
}

// Row 3 of the second row group has no candidates.
TEST(Inspect, RowsThatTrainingRefusesAreNamed) {
  TempDir dir;
  std::vector<std::int64_t> users(32), lengths(32, 1);
  std::iota(users.begin(), users.end(), 1);
  lengths[19] = 0;
  const std::vector<std::int64_t> values(31, 1);
  const auto list = testing::lists_of<arrow::Int64Builder>(lengths, values);
  const auto user = testing::array_of<arrow::Int64Builder>(users);
  const auto fields = arrow::schema({arrow::field("user_id", user->type()),
                                     arrow::field("candidate_item_id", list->type()),
                                     arrow::field("candidate_actions", list->type())});
  testing::write_parquet(dir.file("a.parquet"), *arrow::Table::Make(fields, {user, list, list}),
                         16);
  const auto schema = testing::schema_of(R"(
[[features]]
name = "item"
scope = "candidate"
kind = "id"
column = "candidate_item_id"
rows = 8
[[actions]]
name = "like"
bit = 3
)");
  const auto found = inspect({dir.file("a.parquet")}, schema, kLimits);
  ASSERT_TRUE(found.ok()) << found.error().text();
  EXPECT_EQ(found->refused_rows, 1);
  ASSERT_EQ(found->refusals.size(), 1U);
  EXPECT_EQ(found->refusals[0].row_group, 1);
  EXPECT_EQ(found->refusals[0].row, 19);
  EXPECT_THAT(found->refusals[0].why, HasSubstr("no candidates"));
  ASSERT_EQ(found->by_reason.size(), 1U);
  EXPECT_EQ(found->by_reason[0].kind.what, "no candidates");
  EXPECT_EQ(found->by_reason[0].first.why, found->refusals[0].why);
  EXPECT_EQ(found->undeclared_bits, 1U) << "bit 0 is set, only bit 3 is declared";
  EXPECT_EQ(found->cuts.unknown_actions, 31);
}

TEST(Inspect, ExamplesLongerThanABatchAreRefused) {
  TempDir dir;
  const auto paths = testing::write_impressions(dir.path(), {.rows = 100});
  const features::BatchLimits small{.examples = 8, .tokens = 8, .history_len = 6, .candidates = 3};
  const Inspection found = inspected(paths, {}, small);
  EXPECT_GT(found.refused_rows, 0);
  EXPECT_LT(found.refused_rows, 100);
  EXPECT_EQ(found.refused_blocks, 0);
  EXPECT_THAT(found.refusals[0].why, HasSubstr("batch.tokens = 8"));
  EXPECT_GT(found.cuts.history_events_cut, 0);
}

TEST(Inspect, ListsAtMostWhatWasAskedFor) {
  TempDir dir;
  const auto paths = testing::write_impressions(dir.path(), {.rows = 200});
  const features::BatchLimits small{.examples = 8, .tokens = 1, .history_len = 6, .candidates = 3};
  const Inspection found = inspected(paths, {.threads = 3, .max_listed = 5}, small);
  EXPECT_EQ(found.refused_rows, 200);
  ASSERT_EQ(found.refusals.size(), 5U);
  for (std::size_t i = 0; i < 5; ++i)
    EXPECT_EQ(found.refusals[i].row, static_cast<std::int64_t>(i));
}

TEST(Inspect, ALimitReadsWholeRowGroups) {
  TempDir dir;
  const auto paths = testing::write_impressions(dir.path(), {.rows = 100});
  EXPECT_EQ(inspected(paths, {.limit_rows = 17}).rows_read, 32);
  EXPECT_EQ(inspected(paths, {.limit_rows = 16}).rows_read, 16);
  EXPECT_EQ(inspected(paths, {.limit_rows = 1000}).rows_read, 100);
}

TEST(Inspect, StopsWhenToldTo) {
  TempDir dir;
  const auto paths = testing::write_impressions(dir.path(), {.rows = 100});
  const Inspection found = inspected(paths, {.on_progress = [](auto, auto) { return false; }});
  EXPECT_TRUE(found.stopped);
  EXPECT_LT(found.rows_read, 100);
}

TEST(Inspect, NoRowsIsAReportToo) {
  TempDir dir;
  const auto paths = testing::write_impressions(dir.path(), {.rows = 0});
  const Inspection found = inspected(paths);
  EXPECT_EQ(found.rows, 0);
  EXPECT_EQ(found.history.rows, 0);
  EXPECT_FALSE(found.anything_refused());
}

TEST(DistinctCount, IsExactForFewAndCloseForMany) {
  DistinctCount few, many, half;
  for (std::int64_t i = 0; i < 1000; ++i) few.add(i % 100);
  EXPECT_TRUE(few.exact());
  EXPECT_EQ(few.estimate(), 100);
  constexpr std::int64_t kMany = 500'000;
  for (std::int64_t i = 0; i < kMany; ++i) (i % 3 == 0 ? half : many).add(i * 977);
  many.merge(half);
  EXPECT_FALSE(many.exact());
  EXPECT_NEAR(static_cast<double>(many.estimate()), static_cast<double>(kMany), 0.02 * kMany);
}

TEST(LengthCounts, LongListsCountToo) {
  LengthCounts counts, more;
  counts.add(3, 98);
  counts.add(4096);
  more.add(100'000);
  counts.merge(more);
  const LengthReport r = counts.report();
  EXPECT_EQ(r.rows, 100);
  EXPECT_EQ(r.p90, 3);
  EXPECT_EQ(r.p99, 4096);
  EXPECT_EQ(r.max, 100'000);
  EXPECT_EQ(r.bins.size(), 18U);
  EXPECT_EQ(r.bins[2], 98);
}

TEST(KindOf, NamesTheFaultAndTheColumn) {
  const std::string file = "/d/null, row group 1/p.parquet";
  const auto kind = [&](const std::string& why) { return kind_of(file + why, file); };
  const std::string row = ", row group 2: column a, row b: c, row 40 (rows count from 0): ";
  EXPECT_EQ(kind(row + "its list has 12 elements, the other history columns have 3 in this row"),
            (RefusalKind{"lists of other lengths", "a, row b: c"}));
  EXPECT_EQ(kind(row + "found null, allowed are values").what, "null");
  EXPECT_EQ(kind(row + "found a null in the list, allowed are values").what, "null in a list");
  EXPECT_EQ(kind(row + "found no candidates, allowed is at least one").what, "no candidates");
  EXPECT_EQ(kind(row + "found a list of more than 64 bool, allowed are 64").what,
            "more than 64 bool");
  EXPECT_EQ(kind(row + "found inf, allowed are finite numbers that fit a 32-bit float").what,
            "not a finite 32-bit float");
  EXPECT_EQ(kind(", row group 2: Unexpected end of stream"), (RefusalKind{"cannot be read", ""}));
  EXPECT_EQ(kind(", row group 2: column h: Unexpected end of stream: 3 of 4"),
            (RefusalKind{"cannot be read", "h"}));
  EXPECT_EQ(kind(": no column user_id; found: a, b"), (RefusalKind{"missing column", "user_id"}));
  EXPECT_EQ(kind(": column user_id: found string, allowed is an integer"),
            (RefusalKind{"another type", "user_id"}));
  EXPECT_EQ(kind(" (500 bytes): not a complete Parquet file: no magic bytes").what,
            "not a complete Parquet file");
  EXPECT_EQ(kind(": found 0 bytes, allowed is a Parquet file").what, "not a complete Parquet file");
  EXPECT_EQ(kind_of("an example of 70 tokens, longer than batch.tokens = 64", file).what,
            "longer than batch.tokens");
  EXPECT_EQ(kind(", row group 0: declares up to 3 TiB decoded, this machine has 2 GiB").what,
            "more memory than this machine has");
}

}  // namespace
}  // namespace paceline::data
