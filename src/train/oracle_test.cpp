// What the true probabilities of the synthetic world reach, and how an evaluation finds them.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "core/config.hpp"
#include "data/synth/rows.hpp"
#include "data/synth/synth.hpp"
#include "data/testing/impressions.hpp"
#include "train/evaluate.hpp"

namespace paceline::train {
namespace {

namespace synth = data::synth;

struct Drawn {
  std::vector<float> probabilities;
  std::vector<std::uint8_t> labels;
  double rate() const {
    double sum = 0.0;
    for (const auto y : labels) sum += y;
    return sum / static_cast<double>(labels.size());
  }
};

// Candidates of the default world; their histories are left out, which changes no probability.
Drawn draw(int action, std::int64_t rows, std::uint64_t seed) {
  synth::Options options;
  options.seed = seed;
  options.history = {{0, 0, 1.0}};
  const synth::World world(options);
  synth::RowDrawer drawer(options, world);
  synth::RowColumns columns;
  columns.clear();
  for (std::int64_t r = 0; r < rows; ++r) drawer.append(r, columns);
  Drawn d;
  d.probabilities = columns.oracle[static_cast<std::size_t>(action)];
  const int bit = synth::kActionInfos[static_cast<std::size_t>(action)].bit;
  for (const auto actions : columns.candidate_actions) {
    d.labels.push_back(static_cast<std::uint8_t>(static_cast<std::uint64_t>(actions) >> bit & 1));
  }
  return d;
}

TEST(Oracle, TheDefaultWorldsCeilingIsAsDocumented) {
  double auc = 0.0, rate = 0.0;
  constexpr int kSeeds = 3;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const Drawn fav = draw(0, 4000, seed);
    auc += *exact_auc(fav.probabilities, fav.labels) / kSeeds;
    rate += fav.rate() / kSeeds;
  }
  EXPECT_NEAR(rate, 0.059, 0.003);
  EXPECT_TRUE(auc > 0.655 && auc < 0.675) << auc;
}

std::string config_text(const std::string& first_action) {
  return R"(
[[features]]
name = "item"
scope = "event"
kind = "id"
history_column = "history_item_id"
candidate_column = "candidate_item_id"
rows = 64
[[actions]]
bit = 1
name = ")" +
         first_action + R"("
[[actions]]
name = "share"
bit = 37
[[actions]]
name = "not_dwelled"
bit = 12
train = false
[[targets]]
name = "dwell"
candidate_column = "candidate_dwell"
)";
}

features::Schema schema_of(const std::string& text) {
  auto config = Config::parse(text, "test.toml");
  PL_CHECK(config.ok(), "a config");
  auto schema = features::Schema::from_config(*config);
  PL_CHECK(schema.ok(), schema ? "" : schema.error().text());
  return *schema;
}

TEST(Oracle, IsFoundForEachTrainedActionThatHasOne) {
  const data::testing::TempDir dir;
  synth::Options options;
  options.rows = 40;
  options.items = 200;
  options.history = {{0, 5, 1.0}};
  ASSERT_TRUE(synth::synthesize(dir.file("out"), options));
  const std::vector<std::string> paths{dir.file("out")};

  const auto both = open_eval_source(paths, schema_of(config_text("fav")));
  ASSERT_TRUE(both) << both.error().text();
  ASSERT_TRUE(both->oracle);
  EXPECT_EQ(both->oracle->target, (std::vector<std::int32_t>{1, 2, -1}))
      << "after the target of the config; none for an action that is not trained";
  EXPECT_EQ(both->oracle->schema.targets().size(), 3U);

  const auto one = open_eval_source(paths, schema_of(config_text("like")));
  ASSERT_TRUE(one) << one.error().text();
  ASSERT_TRUE(one->oracle);
  EXPECT_EQ(one->oracle->target, (std::vector<std::int32_t>{-1, 1, -1}));
}

TEST(Oracle, AnActionWithoutOneIsNamed) {
  const data::testing::TempDir dir;
  synth::Options options;
  options.rows = 20;
  options.items = 200;
  options.history = {{0, 5, 1.0}};
  ASSERT_TRUE(synth::synthesize(dir.file("out"), options));
  const auto told = [&](const std::vector<std::string>& paths, const std::string& config) {
    ::testing::internal::CaptureStderr();
    const auto source = open_eval_source(paths, schema_of(config));
    EXPECT_TRUE(source) << (source ? "" : source.error().text());
    return ::testing::internal::GetCapturedStderr();
  };
  const std::string text = told({dir.file("out")}, config_text("like"));
  EXPECT_NE(text.find("no oracle of like:"), std::string::npos) << text;
  EXPECT_NE(text.find("has fav, click,"), std::string::npos) << text;
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
  EXPECT_EQ(told({dir.file("out")}, config_text("fav")), "");
  data::testing::write_impressions(dir.file("plain"), {.rows = 20});
  EXPECT_EQ(told({dir.file("plain")}, data::testing::impression_features()), "")
      << "data without any oracle";
}

// Impressions with a column oracle_probability.like: values of row r are 0.25, but for some rows.
void write_with_oracle(const std::string& path) {
  constexpr std::int64_t kRows = 8;
  const auto table = data::testing::impression_table({.rows = kRows}, 0, kRows);
  const auto items = std::static_pointer_cast<arrow::ListArray>(
      table->GetColumnByName("candidate_item_id")->chunk(0));
  const auto value = std::make_shared<arrow::FloatBuilder>();
  arrow::ListBuilder lists(arrow::default_memory_pool(), value);
  for (std::int64_t r = 0; r < kRows; ++r) {
    if (r == 4) {
      data::testing::check(lists.AppendNull());
      continue;
    }
    data::testing::check(lists.Append());
    const int n = items->value_length(r) + (r == 5 ? 1 : 0);
    for (int i = 0; i < n; ++i) {
      const bool first = i == 0;
      data::testing::check(first && r == 2   ? value->Append(std::nanf(""))
                           : first && r == 3 ? value->AppendNull()
                           : first && r == 6 ? value->Append(HUGE_VALF)
                                             : value->Append(0.25F));
    }
  }
  std::shared_ptr<arrow::Array> oracle;
  data::testing::check(lists.Finish(&oracle));
  const auto with = table->AddColumn(table->num_columns(),
                                     arrow::field("oracle_probability.like", oracle->type()),
                                     std::make_shared<arrow::ChunkedArray>(oracle));
  data::testing::check(with.status());
  data::testing::write_parquet(path, **with, kRows);
}

TEST(Oracle, BadProbabilitiesMakeNoRowBad) {
  const data::testing::TempDir dir;
  write_with_oracle(dir.file("part-0.parquet"));
  const auto schema = schema_of(data::testing::impression_features());
  for (const std::int64_t allowed : {0, 8}) {
    const auto opened = open_eval_source({dir.path().string()}, schema, {.max_bad_rows = allowed});
    ASSERT_TRUE(opened) << opened.error().text();
    ASSERT_TRUE(opened->oracle);
    features::RowBlock block;
    const auto read = opened->source->read(0, block);
    ASSERT_TRUE(read) << read.error().text();
    EXPECT_EQ(block.rows, 8);
    EXPECT_TRUE(block.bad_rows.empty());
    const auto& values = block.columns.back().floats;
    ASSERT_EQ(static_cast<std::int64_t>(values.size()), block.candidate_offsets.back());
    for (std::size_t r = 0; r < 8; ++r) {
      const auto first = static_cast<std::size_t>(block.candidate_offsets[r]);
      const auto last = static_cast<std::size_t>(block.candidate_offsets[r + 1]);
      EXPECT_EQ(std::isfinite(values[first]), r < 2 || r == 7) << r;
      const bool all = r >= 3 && r <= 5;  // a null in the list, a null list, another length
      for (std::size_t i = first + 1; i < last; ++i) {
        EXPECT_EQ(std::isnan(values[i]), all) << r;
      }
    }
  }
}

TEST(Oracle, DataWithoutOneAreEvaluatedWithoutAndErrorsStay) {
  const data::testing::TempDir dir;
  data::testing::write_impressions(dir.path(), {.rows = 20});
  const auto schema = schema_of(data::testing::impression_features());
  const auto plain = open_eval_source({dir.path().string()}, schema);
  ASSERT_TRUE(plain) << plain.error().text();
  EXPECT_FALSE(plain->oracle);
  EXPECT_EQ(plain->source->rows(), 20);

  const auto missing = open_eval_source({dir.path().string()}, schema_of(config_text("fav")));
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().message().find("candidate_dwell"), std::string::npos)
      << missing.error().text();
}

}  // namespace
}  // namespace paceline::train
