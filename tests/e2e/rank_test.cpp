// Scores of `paceline rank`: exactly the input's rows, and the same bits alone or among others.

#include <arrow/api.h>
#include <arrow/io/file.h>
#include <gtest/gtest.h>
#include <parquet/arrow/reader.h>

#include <cmath>
#include <cstring>

#include "e2e/support.hpp"

namespace paceline::e2e {
namespace {

namespace dt = data::testing;

std::shared_ptr<arrow::Table> read_table(const std::string& path) {
  auto file = arrow::io::ReadableFile::Open(path);
  dt::check(file.status());
  auto reader = parquet::arrow::OpenFile(*file, arrow::default_memory_pool());
  dt::check(reader.status());
  auto table = (*reader)->ReadTable();
  dt::check(table.status());
  auto whole = (*table)->CombineChunks();
  dt::check(whole.status());
  return *whole;
}

std::shared_ptr<arrow::ListArray> lists(const arrow::Table& table, const std::string& column) {
  const auto chunked = table.GetColumnByName(column);
  PL_CHECK(chunked != nullptr, "column " + column);
  return std::static_pointer_cast<arrow::ListArray>(chunked->chunk(0));
}

// The scores of each row as bits.
std::vector<std::vector<std::uint32_t>> score_bits(const std::string& path,
                                                   const std::string& column) {
  const auto table = read_table(path);
  const auto list = lists(*table, column);
  const auto values = std::static_pointer_cast<arrow::FloatArray>(list->values());
  std::vector<std::vector<std::uint32_t>> rows;
  for (std::int64_t r = 0; r < list->length(); ++r) {
    rows.emplace_back();
    for (std::int64_t i = list->value_offset(r); i < list->value_offset(r + 1); ++i) {
      const float value = values->Value(i);
      std::uint32_t bits = 0;
      std::memcpy(&bits, &value, sizeof bits);
      rows.back().push_back(bits);
    }
  }
  return rows;
}

constexpr dt::ImpressionOptions kData{
    .rows = 150, .files = 2, .row_group_rows = 32, .max_history = 14, .max_candidates = 9};

class Rank : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    workspace = std::make_unique<Workspace>(kData);
    ASSERT_EQ(run(workspace->train("run")).exit_code, 0);
  }
  static void TearDownTestSuite() { workspace.reset(); }

  static std::string rank(const std::string& input, const std::string& name,
                          const std::vector<std::string>& more = {}) {
    const std::string out = workspace->file(name);
    std::vector<std::string> arguments{"rank", workspace->run_dir("run"), input, "-o", out};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Output o = run(arguments);
    EXPECT_EQ(o.exit_code, 0) << o.err;
    return out;
  }

  static std::unique_ptr<Workspace> workspace;
};
std::unique_ptr<Workspace> Rank::workspace;

TEST_F(Rank, RowsAndCandidatesAreExactlyTheInputs) {
  const std::string out = rank(workspace->file("train"), "all.parquet");
  const auto scored = read_table(out);
  const auto input = dt::impression_table(kData, 0, kData.rows);
  ASSERT_EQ(scored->num_rows(), kData.rows);
  for (const char* column : {"user_id", "request_time"}) {
    EXPECT_TRUE(
        scored->GetColumnByName(column)->chunk(0)->Equals(input->GetColumnByName(column)->chunk(0)))
        << column;
  }
  const auto items = lists(*scored, "candidate_item_id"),
             expected = lists(*input, "candidate_item_id");
  EXPECT_TRUE(items->values()->Equals(expected->values()));
  for (const char* column : {"score_like", "score_share", "score"}) {
    const auto scores = lists(*scored, column);
    for (std::int64_t r = 0; r < scores->length(); ++r) {
      // Every candidate is scored, also beyond batch.candidates.
      EXPECT_EQ(scores->value_length(r), expected->value_length(r)) << column << " row " << r;
    }
    const auto values = std::static_pointer_cast<arrow::FloatArray>(scores->values());
    for (std::int64_t i = 0; i < values->length(); ++i) {
      EXPECT_TRUE(values->Value(i) > 0.0F && values->Value(i) < 1.0F);
    }
  }
  EXPECT_EQ(score_bits(out, "score"), score_bits(out, "score_like"))
      << "the config weighs like alone";
}

TEST_F(Rank, ARowsScoresAreTheSameBitsAloneAndAnywhere) {
  const auto all = score_bits(rank(workspace->file("train"), "all.parquet"), "score_like");
  const auto all_shares = score_bits(rank(workspace->file("train"), "all.parquet"), "score_share");
  for (const auto& [first, rows] :
       std::vector<std::pair<std::int64_t, std::int64_t>>{{0, 1}, {149, 1}, {37, 5}, {60, 64}}) {
    SCOPED_TRACE(first);
    const std::string part = workspace->file("part.parquet");
    dt::write_parquet(part, *dt::impression_table(kData, first, rows), 7);
    const std::string out = rank(part, "part-scores.parquet", {"--set", "train.threads=3"});
    const auto some = score_bits(out, "score_like"), shares = score_bits(out, "score_share");
    ASSERT_EQ(some.size(), static_cast<std::size_t>(rows));
    for (std::size_t r = 0; r < some.size(); ++r) {
      EXPECT_EQ(some[r], all[static_cast<std::size_t>(first) + r]) << "row " << r;
      EXPECT_EQ(shares[r], all_shares[static_cast<std::size_t>(first) + r]) << "row " << r;
    }
  }
}

TEST_F(Rank, NeedsNoActionsAndWeighsAsAsked) {
  auto table = dt::impression_table(kData, 0, 20);
  auto without = table->RemoveColumn(table->schema()->GetFieldIndex("candidate_actions"));
  dt::check(without.status());
  const std::string input = workspace->file("unlabelled.parquet");
  dt::write_parquet(input, **without, 8);
  const std::string out = rank(input, "weighted.parquet", {"--weights", "like=1,share=-2"});
  const auto scored = read_table(out);
  const auto value = [&](const char* column, std::int64_t i) {
    return std::static_pointer_cast<arrow::FloatArray>(lists(*scored, column)->values())->Value(i);
  };
  const std::int64_t n = lists(*scored, "score")->values()->length();
  for (std::int64_t i = 0; i < n; ++i) {
    EXPECT_NEAR(value("score", i), value("score_like", i) - 2 * value("score_share", i), 1e-6F);
  }
}

TEST_F(Rank, EvaluationIsTheSameFromRunAndConfigAndIsAppended) {
  const std::string file = workspace->run_dir("run") + "/eval.jsonl";
  const std::size_t before = lines(file);
  const Output a = run({"eval", workspace->run_dir("run"), "--split", "valid"});
  const Output b = run({"eval", workspace->config(), "--split", "valid", "--set",
                        "run.dir=" + workspace->run_dir("run"), "--set", "train.threads=1"});
  EXPECT_EQ(a.exit_code, 0) << a.err;
  EXPECT_EQ(b.exit_code, 0) << b.err;
  EXPECT_EQ(a.out, b.out);
  EXPECT_EQ(lines(file), before + 4);
}

TEST_F(Rank, ARunThatMovedIsStillARun) {
  std::filesystem::create_directories(workspace->file("elsewhere"));
  const std::string moved = workspace->file("elsewhere/moved");
  std::filesystem::copy(
      workspace->run_dir("run"), moved,
      std::filesystem::copy_options::recursive | std::filesystem::copy_options::copy_symlinks);
  const std::string out = workspace->file("moved.parquet");
  const Output o = run({"rank", moved, workspace->file("valid"), "-o", out});
  EXPECT_EQ(o.exit_code, 0) << o.err;
  EXPECT_EQ(score_bits(out, "score"),
            score_bits(rank(workspace->file("valid"), "here.parquet"), "score"));
}

}  // namespace
}  // namespace paceline::e2e
