#include "data/suggest_config.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>

#include "core/config.hpp"
#include "data/source.hpp"
#include "data/synth/synth.hpp"
#include "data/testing/impressions.hpp"

namespace paceline::data {
namespace {

using features::Kind;
using features::Schema;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::ImpressionOptions;
using ::testing::Not;
using testing::TempDir;
using ::testing::UnorderedElementsAre;
using Arrays = std::vector<std::pair<std::string, std::shared_ptr<arrow::Array>>>;

std::string suggested(const std::vector<std::string>& paths) {
  auto text = suggest_config(paths);
  PL_CHECK(text.ok(), text.error().text());
  return *text;
}

Schema parsed(const std::string& text) {
  auto config = Config::parse(text, "suggested.toml");
  PL_CHECK(config.ok(), config.error().text() + "\n" + text);
  auto schema = Schema::from_config(*config);
  PL_CHECK(schema.ok(), schema.error().text() + "\n" + text);
  return std::move(*schema);
}

void write(const std::string& path, const Arrays& columns) {
  std::vector<std::shared_ptr<arrow::Field>> fields;
  std::vector<std::shared_ptr<arrow::Array>> arrays;
  for (const auto& [name, array] : columns) {
    fields.push_back(arrow::field(name, array->type()));
    arrays.push_back(array);
  }
  testing::write_parquet(
      path, *arrow::Table::Make(arrow::schema(fields), arrays, arrays.front()->length()), 64);
}

// Kind of every feature of a token kind, by name.
std::map<std::string, Kind> kinds_of(const Schema& schema, int kind) {
  std::map<std::string, Kind> kinds;
  for (const auto& f : schema.kinds()[static_cast<std::size_t>(kind)].features) {
    kinds[f.name] = f.kind;
  }
  return kinds;
}

// Three rows with two events and one candidate each, beside `more`.
Arrays small(const Arrays& more) {
  Arrays columns{
      {"user_id", testing::array_of<arrow::Int64Builder>(std::vector<std::int64_t>{1, 2, 1})},
      {"candidate_item_id",
       testing::lists_of<arrow::Int64Builder>({1, 1, 1}, std::vector<std::int64_t>{1 << 20, 7, 8})},
      {"candidate_actions",
       testing::lists_of<arrow::Int64Builder>({1, 1, 1}, std::vector<std::int64_t>{1, 33, 1})}};
  columns.insert(columns.end(), more.begin(), more.end());
  return columns;
}

TEST(SuggestConfig, ReadsTheRowsItWasMadeFrom) {
  TempDir dir;
  testing::write_impressions(dir.path(), {.rows = 300, .files = 2});
  const std::string text = suggested({dir.path().string()});
  const Schema schema = parsed(text);
  EXPECT_EQ(kinds_of(schema, 0),
            (std::map<std::string, Kind>{{"user", Kind::kId}, {"country", Kind::kCategory}}));
  EXPECT_EQ(kinds_of(schema, schema.history_kind()),
            (std::map<std::string, Kind>{
                {"item", Kind::kId}, {"actions", Kind::kMultiHot}, {"time", Kind::kBucket}}));
  EXPECT_EQ(kinds_of(schema, schema.candidate_kind()),
            (std::map<std::string, Kind>{{"item", Kind::kId}, {"price", Kind::kNumber}}));
  ASSERT_EQ(schema.actions().size(), 3U);
  EXPECT_FALSE(schema.actions()[0].train) << "bit 0 is always set";
  EXPECT_TRUE(schema.actions()[1].train);
  EXPECT_NE(schema.time_column(), features::kNoColumn);

  auto source = open_parquet({dir.path().string()}, schema);
  ASSERT_TRUE(source.ok()) << source.error().text();
  features::RowBlock block;
  for (std::size_t b = 0; b < (*source)->blocks().size(); ++b) {
    const auto read = (*source)->read(static_cast<std::int64_t>(b), block);
    ASSERT_TRUE(read.ok()) << read.error().text();
  }
}

TEST(SuggestConfig, LimitsComeFromTheLengthsSeen) {
  TempDir dir;
  testing::write_impressions(dir.path(), {.rows = 300, .max_history = 9, .max_candidates = 4});
  const std::string text = suggested({dir.path().string()});
  EXPECT_THAT(text, HasSubstr("\nhistory_len = 9\ncandidates = 4\n"));
}

// Columns as an exporter writes them: every list twice, times, masks, dwell.
TEST(SuggestConfig, KnowsEventsTimesMasksAndDwell) {
  TempDir dir;
  const std::vector<std::int64_t> two{2, 2, 2}, one{1, 1, 1};
  const auto ints = [](const std::vector<std::int64_t>& lengths, std::int64_t from) {
    std::vector<std::int64_t> values;
    for (const auto n : lengths) {
      for (std::int64_t i = 0; i < n; ++i)
        values.push_back(from + static_cast<std::int64_t>(values.size()));
    }
    return testing::lists_of<arrow::Int64Builder>(lengths, values);
  };
  const std::vector<float> dwell(6, 80.5F);
  write(
      dir.file("a.parquet"),
      small({{"request_time",
              testing::array_of<arrow::Int64Builder>(std::vector<std::int64_t>(3, 1'780'000'000))},
             {"history_item_id", ints(two, 100)},
             {"history_author_id", ints(two, 5)},
             {"candidate_author_id", ints(one, 5)},
             {"history_surface", testing::lists_of<arrow::Int8Builder>(
                                     two, std::vector<std::int8_t>{0, 1, 2, 15, 4, 5})},
             {"candidate_surface",
              testing::lists_of<arrow::Int8Builder>(one, std::vector<std::int8_t>{0, 1, 2})},
             {"history_created", ints(two, 1'779'900'000)},
             {"candidate_created", ints(one, 1'779'900'000)},
             {"history_time", ints(two, 1'779'900'000)},
             {"history_actions", ints(two, 1)},
             {"history_dwell", testing::lists_of<arrow::FloatBuilder>(two, dwell)},
             {"candidate_dwell",
              testing::lists_of<arrow::FloatBuilder>(one, std::vector<float>{1.0F, 2.0F, 3.0F})}}));
  const std::string text = suggested({dir.file("a.parquet")});
  const Schema schema = parsed(text);
  EXPECT_EQ(kinds_of(schema, schema.history_kind()),
            (std::map<std::string, Kind>{{"item", Kind::kId},
                                         {"author", Kind::kId},
                                         {"surface", Kind::kCategory},
                                         {"created", Kind::kBucket},
                                         {"time", Kind::kBucket},
                                         {"actions", Kind::kMultiHot},
                                         {"dwell", Kind::kBucket}}))
      << text;
  EXPECT_EQ(kinds_of(schema, schema.candidate_kind()),
            (std::map<std::string, Kind>{{"item", Kind::kId},
                                         {"author", Kind::kId},
                                         {"surface", Kind::kCategory},
                                         {"created", Kind::kBucket}}))
      << text;
  for (const auto& f : schema.kinds()[static_cast<std::size_t>(schema.history_kind())].features) {
    if (f.name == "surface") {
      EXPECT_EQ(f.size, 16) << "the largest value on either side";
    }
    if (f.name == "time") {
      EXPECT_EQ(f.minus_column, schema.time_column());
    }
  }
  ASSERT_EQ(schema.targets().size(), 1U);
  EXPECT_EQ(schema.columns()[static_cast<std::size_t>(schema.targets()[0].column)].name,
            "candidate_dwell")
      << "a candidate's dwell is not known before the answer";
  std::vector<int> bits;
  for (const auto& a : schema.actions()) bits.push_back(a.bit);
  EXPECT_THAT(bits, ElementsAre(0, 5));
}

TEST(SuggestConfig, SaysWhyColumnsAreNotUsed) {
  TempDir dir;
  arrow::StringBuilder strings;
  testing::check(strings.AppendValues(std::vector<std::string>{"a", "b", "c"}));
  const auto lists =
      testing::lists_of<arrow::Int64Builder>({1, 1, 1}, std::vector<std::int64_t>{1, 2, 3});
  write(dir.file("a.parquet"), small({{"text \"\n", *strings.Finish()}, {"neighbours", lists}}));
  const std::string text = suggested({dir.file("a.parquet")});
  EXPECT_THAT(text, HasSubstr(R"(#   "text \"\u000a": found string)"));
  EXPECT_THAT(text, HasSubstr(R"(#   "neighbours": list<int64>: its name begins with neither)"));
  EXPECT_EQ(parsed(text).columns().size(), 3U);
}

TEST(SuggestConfig, FieldsOfStructsAreColumns) {
  TempDir dir;
  const auto items = testing::array_of<arrow::Int64Builder>(std::vector<std::int64_t>{1, 2, 5000});
  const auto prices = testing::array_of<arrow::FloatBuilder>(std::vector<float>{0.5F, 1.0F, 1.5F});
  const auto structs =
      arrow::StructArray::Make({items, prices}, std::vector<std::string>{"item_id", "price"});
  testing::check(structs.status());
  const auto offsets =
      testing::array_of<arrow::Int32Builder>(std::vector<std::int32_t>{0, 1, 1, 3});
  const auto history = arrow::ListArray::FromArrays(*offsets, **structs);
  testing::check(history.status());
  write(dir.file("a.parquet"), small({{"history", *history}}));
  const std::string text = suggested({dir.file("a.parquet")});
  const Schema schema = parsed(text);
  EXPECT_EQ(kinds_of(schema, schema.history_kind()),
            (std::map<std::string, Kind>{{"item", Kind::kId}, {"price", Kind::kNumber}}))
      << text;
  auto source = open_parquet({dir.file("a.parquet")}, schema);
  ASSERT_TRUE(source.ok()) << source.error().text();
}

TEST(SuggestConfig, ABrokenFirstFileIsPassedOver) {
  TempDir dir;
  testing::write_impressions(dir.path(), {.rows = 20, .files = 2});
  std::filesystem::resize_file(dir.file("part-0000.parquet"), 100);
  EXPECT_THAT(suggested({dir.path().string()}), HasSubstr("part-0001.parquet"));
}

TEST(SuggestConfig, MillisecondsAreTold) {
  TempDir dir;
  const std::vector<std::int64_t> times(3, 1'780'000'000'123);
  write(dir.file("a.parquet"),
        small({{"request_time", testing::array_of<arrow::Int64Builder>(times)},
               {"candidate_created", testing::lists_of<arrow::Int64Builder>({1, 1, 1}, times)}}));
  const Schema schema = parsed(suggested({dir.file("a.parquet")}));
  for (const auto& f : schema.kinds()[static_cast<std::size_t>(schema.candidate_kind())].features) {
    if (f.name == "created") {
      EXPECT_EQ(f.unit, 1000.0);
    }
  }
}

TEST(SuggestConfig, FoldersNamedAsSplitsBecomeSplits) {
  TempDir dir;
  testing::write_impressions(dir.path() / "train", {.rows = 20});
  testing::write_impressions(dir.path() / "valid", {.rows = 20});
  auto config = Config::parse(suggested({dir.path().string()}), "suggested.toml");
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(*config->get_paths("data.train"),
            std::vector<std::string>{(dir.path() / "train").string()});
  EXPECT_EQ(*config->get_paths("data.valid"),
            std::vector<std::string>{(dir.path() / "valid").string()});
  EXPECT_FALSE(config->has("data.test"));
}

TEST(SuggestConfig, RowsWithoutAnswersStillMakeAConfig) {
  TempDir dir;
  auto columns = small({});
  columns.pop_back();
  write(dir.file("a.parquet"), columns);
  const std::string text = suggested({dir.file("a.parquet")});
  EXPECT_THAT(text, HasSubstr("No column of actions was found"));
  auto source = open_parquet({dir.file("a.parquet")}, parsed(text).without_labels());
  EXPECT_TRUE(source.ok()) << source.error().text();
}

// Rows without candidate_actions, with these columns instead.
Arrays unlabelled(const Arrays& more) {
  Arrays columns = small({});
  columns.pop_back();
  columns.insert(columns.end(), more.begin(), more.end());
  return columns;
}

std::shared_ptr<arrow::Array> masks(const std::vector<std::int64_t>& values) {
  return testing::lists_of<arrow::Int64Builder>({1, 1, 1}, values);
}

TEST(SuggestConfig, OtherNamesOfActionsAreKnown) {
  for (const char* name : {"cand_events", "candidates_labels", "candidate_engagements",
                           "candidate_click_mask", "cand_feedback", "candidate_clicks"}) {
    TempDir dir;
    const std::string past = "hist_" + std::string(name).substr(std::string(name).find('_') + 1);
    write(dir.file("a.parquet"), unlabelled({{name, masks({1, 4, 0})}, {past, masks({8, 2, 0})}}));
    const std::string text = suggested({dir.file("a.parquet")});
    const Schema schema = parsed(text);
    ASSERT_NE(schema.actions_column(), features::kNoColumn) << text;
    EXPECT_EQ(schema.columns()[static_cast<std::size_t>(schema.actions_column())].name, name);
    EXPECT_EQ(schema.actions().size(), 2U) << text;
    EXPECT_EQ(kinds_of(schema, schema.candidate_kind()),
              (std::map<std::string, Kind>{{"item", Kind::kId}}))
        << text;
    const auto history = kinds_of(schema, schema.history_kind());
    ASSERT_EQ(history.size(), 1U) << text;
    EXPECT_EQ(history.begin()->second, Kind::kMultiHot) << text;
  }
}

TEST(SuggestConfig, TheLikeliestLabelIsTakenAndNoneIsAFeature) {
  TempDir dir;
  write(dir.file("a.parquet"),
        small({{"candidate_events", masks({1, 2, 3})}, {"candidate_clicked", masks({0, 1, 0})}}));
  const std::string text = suggested({dir.file("a.parquet")});
  const Schema schema = parsed(text);
  EXPECT_EQ(schema.columns()[static_cast<std::size_t>(schema.actions_column())].name,
            "candidate_actions");
  EXPECT_EQ(kinds_of(schema, schema.candidate_kind()).size(), 1U) << text;
  EXPECT_THAT(text, HasSubstr("#   \"candidate_clicked\": looks like an answer"));
  EXPECT_THAT(text, HasSubstr("known only after the request must not be a feature"));
}

TEST(SuggestConfig, WhatMayBeTheLabelIsNoFeature) {
  TempDir dir;
  write(dir.file("a.parquet"), unlabelled({{"history_resp", masks({0, 1, 3})},
                                           {"candidate_resp", masks({0, 1, 3})},
                                           {"candidate_engaged", masks({0, 1, 0})},
                                           {"candidate_surfaces", masks({0, 1, 2})}}));
  const std::string text = suggested({dir.file("a.parquet")});
  EXPECT_THAT(text, HasSubstr("#   \"candidate_resp\": may be the label: set"));
  EXPECT_THAT(text, HasSubstr("#   \"candidate_engaged\": may be the label: set"));
  const Schema schema = parsed(text);
  EXPECT_EQ(kinds_of(schema, schema.candidate_kind()),
            (std::map<std::string, Kind>{{"item", Kind::kId}, {"surfaces", Kind::kCategory}}))
      << text;
  EXPECT_EQ(kinds_of(schema, schema.history_kind()).count("resp"), 1U);
}

TEST(SuggestConfig, ActionsOfTheSyntheticWorldHaveTheirNames) {
  TempDir dir;
  synth::Options options;
  options.rows = 300;
  options.history = {{1, 5, 1.0}};
  options.one_folder = true;
  options.users = 50;
  options.items = 500;
  options.threads = 1;
  const auto written = synth::synthesize(dir.path() / "s", options);
  ASSERT_TRUE(written.ok()) << written.error().text();
  const Schema schema = parsed(suggested({dir.file("s")}));
  ASSERT_GE(schema.actions().size(), 5U);
  for (const auto& action : schema.actions()) {
    const auto known = std::find_if(synth::kActionInfos.begin(), synth::kActionInfos.end(),
                                    [&](const auto& info) { return info.bit == action.bit; });
    ASSERT_NE(known, synth::kActionInfos.end());
    EXPECT_EQ(action.name, known->name);
  }
}

TEST(SuggestConfig, SaysHowToCast) {
  TempDir dir;
  arrow::TimestampBuilder times(arrow::timestamp(arrow::TimeUnit::MILLI),
                                arrow::default_memory_pool());
  testing::check(times.AppendValues(std::vector<std::int64_t>{1, 2, 3}));
  arrow::BooleanBuilder bools;
  testing::check(bools.AppendValues(std::vector<bool>{true, false, true}));
  write(dir.file("a.parquet"), small({{"at", *times.Finish()}, {"new", *bools.Finish()}}));
  const std::string text = suggested({dir.file("a.parquet")});
  EXPECT_THAT(text, HasSubstr("; cast it to int64 seconds\n"));
  EXPECT_THAT(text, HasSubstr("; cast it to an integer\n"));
}

TEST(SuggestConfig, BrokenRowsLeaveGuessesFromFooters) {
  TempDir dir;
  const auto paths = testing::write_impressions(dir.path(), {.rows = 16});
  testing::corrupt_row_group(paths[0], 0);
  const std::string text = suggested(paths);
  EXPECT_THAT(text, HasSubstr("Guessed without looking at rows"));
  EXPECT_EQ(parsed(text).actions().size(), 8U);
}

TEST(SuggestConfig, ErrorsNameWhatIsMissing) {
  TempDir dir;
  auto columns = small({});
  columns.erase(columns.begin() + 1);
  write(dir.file("a.parquet"), columns);
  auto text = suggest_config({dir.file("a.parquet")});
  ASSERT_FALSE(text.ok());
  EXPECT_EQ(text.error().code(), Code::kNotFound);
  EXPECT_THAT(text.error().text(), HasSubstr("candidate_item_id"));
  columns = small({});
  columns.erase(columns.begin());
  write(dir.file("b.parquet"), columns);
  text = suggest_config({dir.file("b.parquet")});
  ASSERT_FALSE(text.ok());
  EXPECT_THAT(text.error().text(), HasSubstr("user_id"));
  EXPECT_FALSE(suggest_config({dir.file("absent.parquet")}).ok());
}

}  // namespace
}  // namespace paceline::data
