// Bad data in the worst places: the last row of the last file, the only file, a file far ahead of
// training. What came before is trained and kept, the message says where, and nothing hangs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "e2e/support.hpp"

namespace paceline::e2e {
namespace {

namespace dt = data::testing;
using testing::AllOf;
using testing::HasSubstr;

// Column `name` of the table with the value of `row` replaced by `value` (one row).
std::shared_ptr<arrow::Table> with_value(const std::shared_ptr<arrow::Table>& table,
                                         const std::string& name, std::int64_t row,
                                         const std::shared_ptr<arrow::Array>& value) {
  const int index = table->schema()->GetFieldIndex(name);
  const auto column = table->column(index);
  arrow::ArrayVector chunks = column->Slice(0, row)->chunks();
  chunks.push_back(value);
  const auto rest = column->Slice(row + 1);
  chunks.insert(chunks.end(), rest->chunks().begin(), rest->chunks().end());
  auto changed = table->SetColumn(index, table->field(index),
                                  std::make_shared<arrow::ChunkedArray>(chunks, column->type()));
  dt::check(changed.status());
  return *changed;
}

std::shared_ptr<arrow::Array> null_of(const std::shared_ptr<arrow::DataType>& type) {
  auto array = arrow::MakeArrayOfNull(type, 1);
  dt::check(array.status());
  return *array;
}

struct Fault {
  const char* name;
  const char* column;
  std::shared_ptr<arrow::Array> value;
  const char* says;
};

std::vector<Fault> faults() {
  using Int = arrow::Int64Builder;
  const auto list = [](const std::vector<std::int64_t>& values) {
    return dt::lists_of<Int>({static_cast<std::int64_t>(values.size())}, values);
  };
  return {
      {"null in a scalar", "user_id", null_of(arrow::int64()), "found null"},
      {"null list", "history_item_id", null_of(arrow::list(arrow::int64())), "found null"},
      {"longer list", "candidate_actions", list(std::vector<std::int64_t>(99, 1)), "99"},
      {"no candidates", "candidate_item_id", list({}), "no candidates"},
      {"not a number", "candidate_price",
       dt::lists_of<arrow::FloatBuilder>({1}, std::vector<float>{NAN}), "nan"},
  };
}

// Writes the training data with `fault` in the last row of its last file.
void write_faulty(const Workspace& w, const dt::ImpressionOptions& o, const Fault& fault) {
  const auto paths = dt::write_impressions(w.file("train"), o);
  const std::int64_t first = o.rows * (o.files - 1) / o.files;
  auto table = dt::impression_table(o, first, o.rows - first);
  if (std::string(fault.name) == "not a number") {
    // As long as the row's other lists.
    const auto& lists =
        static_cast<const arrow::ListArray&>(*table->GetColumnByName("candidate_price")->chunk(0));
    const std::int64_t n = lists.value_length(table->num_rows() - 1);
    table = with_value(table, fault.column, table->num_rows() - 1,
                       dt::lists_of<arrow::FloatBuilder>(
                           {n}, std::vector<float>(static_cast<std::size_t>(n), NAN)));
  } else {
    table = with_value(table, fault.column, table->num_rows() - 1, fault.value);
  }
  dt::write_parquet(paths.back(), *table, o.row_group_rows);
}

TEST(BadData, InTheLastRowOfTheLastFileAndOfTheOnlyOne) {
  for (const std::int64_t files : {1, 3}) {
    const dt::ImpressionOptions options{.rows = 72, .files = files, .row_group_rows = 24};
    for (const Fault& fault : faults()) {
      SCOPED_TRACE(std::string(fault.name) + " in the last of " + std::to_string(files));
      const Workspace w(options);
      write_faulty(w, options, fault);
      const Output o =
          run(w.train("run", {"data.shuffle_window=0", "data.depth=6", "train.epochs=1"}));
      EXPECT_EQ(o.exit_code, 1) << o.err;
      EXPECT_THAT(o.err, AllOf(HasSubstr("part-000" + std::to_string(files - 1) + ".parquet"),
                               HasSubstr("row group " + std::to_string(files == 1 ? 2 : 0)),
                               HasSubstr("row " + std::to_string(files == 1 ? 71 : 23)),
                               HasSubstr(fault.says)));
      // The two row groups before it are six batches of eight.
      EXPECT_EQ(losses(w.run_dir("run")).size(), 6U);
      EXPECT_EQ(checkpoints(w.run_dir("run")).size(), 1U);
      // Asked to, it leaves out that row and no other.
      const Output skipped = run(
          w.train("skipping", {"data.shuffle_window=0", "train.epochs=1", "data.skip_bad_rows=1"}));
      EXPECT_EQ(skipped.exit_code, 0) << skipped.err;
      EXPECT_THAT(skipped.out, HasSubstr("bad data skipped: 1 row, 0 row groups"));
      EXPECT_THAT(skipped.out, HasSubstr("71 examples"));
      EXPECT_THAT(skipped.err, HasSubstr(fault.says));
    }
  }
}

TEST(BadData, ARunThatSkipsIsTheSameThroughStopsAndResumes) {
  const dt::ImpressionOptions options{.rows = 120, .files = 2, .row_group_rows = 12};
  const Workspace w(options);
  write_faulty(w, options, faults()[0]);
  dt::corrupt_row_group(w.file("train") + "/part-0000.parquet", 2);
  const std::vector<std::string> skipping{"data.skip_bad_rows=1", "data.skip_bad_blocks=1"};
  ASSERT_EQ(run(w.train("whole", skipping)).exit_code, 0);
  for (const int steps : {1, 5, 9, 14, 20, 100}) {
    auto sets = skipping;
    sets.push_back("train.max_steps=" + std::to_string(steps));
    sets.push_back("data.readers=3");
    const Output o = run(w.train("pieces", sets));
    ASSERT_EQ(o.exit_code, 0) << o.err;
  }
  EXPECT_EQ(losses(w.run_dir("whole")), losses(w.run_dir("pieces")));
  // 107 of 120 rows twice, in batches of eight.
  EXPECT_EQ(losses(w.run_dir("whole")).size(), 28U);
  // One row group too many.
  dt::corrupt_row_group(w.file("train") + "/part-0001.parquet", 0);
  const Output o = run(w.train("refused", skipping));
  EXPECT_EQ(o.exit_code, 1);
  EXPECT_THAT(o.err, HasSubstr("data.skip_bad_blocks = 1"));
}

TEST(BadData, AFileThatGoesWhileTrainingIsNamed) {
  const dt::ImpressionOptions options{.rows = 4000, .files = 4, .row_group_rows = 50};
  const Workspace w(options);
  Process training(w.train("run", {"data.shuffle_window=0", "data.depth=1"}));
  ASSERT_TRUE(wait_until(training, [&] { return lines(w.run_dir("run") + "/metrics.jsonl") > 2; }));
  std::filesystem::remove(w.file("train") + "/part-0003.parquet");
  const Output o = training.wait();
  EXPECT_EQ(o.exit_code, 1) << o.out << o.err;
  EXPECT_THAT(o.err, HasSubstr("part-0003.parquet"));
  // 3,000 rows are there.
  EXPECT_EQ(losses(w.run_dir("run")).size(), 375U);
}

TEST(ChangedData, IsRefusedByNameAndBeginsTheEpochAgainWhenAllowed) {
  dt::ImpressionOptions options{.rows = 48, .files = 2, .row_group_rows = 8};
  const Workspace w(options);
  ASSERT_EQ(run(w.train("run", {"train.max_steps=8"})).exit_code, 0);  // six an epoch
  dt::ImpressionOptions more = options;
  more.rows = 72;
  more.files = 3;
  dt::write_impressions(w.file("train"), more);
  const Output refused = run(w.train("run"));
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err,
              AllOf(HasSubstr("part-0002.parquet is new"), HasSubstr("--allow-changed-data")));
  auto allowed = w.train("run");
  allowed.emplace_back("--allow-changed-data");
  const Output o = run(allowed);
  EXPECT_EQ(o.exit_code, 0) << o.err;
  EXPECT_THAT(o.err, HasSubstr("epoch 2 begins again with its 72 rows"));
  // Nine batches of the new files after the eight steps.
  EXPECT_EQ(losses(w.run_dir("run")).size(), 17U);
}

TEST(MemoryLimit, IsRefusedAtTheStartWithBytes) {
  const Workspace w({.rows = 48, .files = 2, .row_group_rows = 8});
  const Output o = run(w.train("run", {"data.memory_limit=10 KiB"}));
  EXPECT_EQ(o.exit_code, 2);
  EXPECT_THAT(o.err, AllOf(HasSubstr("data.memory_limit is 10.0 KiB"),
                           HasSubstr("6 decoded row groups"), HasSubstr("4 batches")));
  for (const char* bad :
       {"data.memory_limit=lots", "data.memory_limit=-1", "data.memory_limit=0",
        "data.memory_limit=1 mib", "data.skip_bad_rows=-1", "data.skip_bad_blocks=x"}) {
    const Output refused = run(w.train("run", {bad}));
    EXPECT_EQ(refused.exit_code, 2) << bad;
    EXPECT_THAT(refused.err, HasSubstr("data.")) << bad;
  }
  EXPECT_EQ(run(w.train("run", {"data.memory_limit=1 GiB", "train.max_steps=1"})).exit_code, 0);
}

}  // namespace
}  // namespace paceline::e2e
