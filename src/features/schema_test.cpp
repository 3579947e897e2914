#include "features/schema.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace paceline::features {
namespace {

using ::testing::HasSubstr;

constexpr const char* kItem = R"(
[[features]]
name = "item"
scope = "event"
kind = "id"
history_column = "history_item"
candidate_column = "candidate_item"
rows = 100
hashes = 2
)";
constexpr const char* kUser = R"(
[[features]]
name = "user"
scope = "user"
kind = "id"
column = "user_id"
rows = 50
hashes = 1
)";
constexpr const char* kAge = R"(
[[features]]
name = "age"
scope = "history"
kind = "bucket"
history_column = "history_time"
minus = "request_time"
)";
constexpr const char* kLike = R"(
[[actions]]
name = "like"
bit = 1
)";

Result<Schema> read(const std::string& text) {
  auto config = Config::parse(text, "test.toml");
  if (!config) return Error(std::move(config.error()));
  auto schema = Schema::from_config(*config);
  if (!schema) return schema;
  if (auto done = config->finish(); !done) return Error(std::move(done.error()));
  return schema;
}

// The text of the error, which must be one of the config.
std::string refusal(const std::string& text) {
  const auto schema = read(text);
  if (schema) return "accepted";
  EXPECT_EQ(schema.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(schema.error().text(), HasSubstr("test.toml"));
  return schema.error().text();
}

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  const auto at = text.find(what);
  EXPECT_NE(at, std::string::npos);
  return text.replace(at, what.size(), by);
}

TEST(Schema, EventFeatureSharesItsRows) {
  const auto s = read(std::string(kUser) + kItem + kAge + kLike);
  ASSERT_TRUE(s) << s.error().text();
  ASSERT_EQ(s->kinds().size(), 3U);
  EXPECT_EQ(s->prefix_tokens(), 1);
  EXPECT_EQ(s->kinds()[0].name, "user");
  EXPECT_EQ(s->kinds()[1].name, "history");
  EXPECT_EQ(s->kinds()[2].name, "candidate");
  const auto& history = s->kinds()[1].features;
  const auto& candidate = s->kinds()[2].features;
  ASSERT_EQ(history.size(), 2U);
  ASSERT_EQ(candidate.size(), 1U);
  EXPECT_EQ(history[0].table_base, 50);
  EXPECT_EQ(candidate[0].table_base, 50);
  EXPECT_EQ(s->table_rows(), 150);
  EXPECT_NE(history[0].column, candidate[0].column);
  EXPECT_TRUE(history[1].log2_boundaries);
  EXPECT_EQ(history[1].size, 32);
  EXPECT_EQ(history[1].minus_column, s->time_column());
  EXPECT_EQ(s->columns()[static_cast<std::size_t>(s->user_column())].name, "user_id");
  EXPECT_EQ(s->columns()[static_cast<std::size_t>(s->actions_column())].name, "candidate_actions");
  EXPECT_EQ(s->action_mask(), 2U);
  EXPECT_EQ(s->kinds()[0].token_width(32), 32);
  EXPECT_EQ(s->kinds()[1].token_width(32), 64 + 32);
}

TEST(Schema, TimeIsReadOnlyWhenUsed) {
  const auto s = read(std::string(kItem) + kLike);
  ASSERT_TRUE(s);
  EXPECT_EQ(s->time_column(), kNoColumn);
  EXPECT_EQ(s->prefix_tokens(), 0);
}

TEST(Schema, NamedColumnsAndPrefixTokens) {
  const auto s = read(std::string("[data]\nuser_column = \"viewer\"\nactions_column = \"did\"\n") +
                      replaced(kUser, "column =", "token = \"who\"\ncolumn =") +
                      "[[features]]\nname=\"c\"\nscope=\"user\"\nkind=\"category\"\ncolumn=\"c\"\n"
                      "rows=4\ntoken=\"profile\"\n" +
                      kItem + kLike);
  ASSERT_TRUE(s) << s.error().text();
  EXPECT_EQ(s->prefix_tokens(), 2);
  EXPECT_EQ(s->kinds()[0].name, "who");
  EXPECT_EQ(s->kinds()[1].name, "profile");
  EXPECT_EQ(s->columns()[static_cast<std::size_t>(s->user_column())].name, "viewer");
  EXPECT_EQ(s->columns()[static_cast<std::size_t>(s->actions_column())].name, "did");
}

TEST(Schema, MinusMayBeAListOfTheSameSide) {
  const auto s = read(std::string(kItem) + R"(
[[features]]
name = "watched"
scope = "history"
kind = "bucket"
history_column = "history_end"
minus = "history_item"
boundaries = [1, 10, 100.5]
)" + kLike);
  ASSERT_TRUE(s) << s.error().text();
  const auto& f = s->kinds()[0].features[1];
  EXPECT_EQ(s->columns()[static_cast<std::size_t>(f.minus_column)].shape, Shape::kHistoryList);
  EXPECT_EQ(f.size, 4);
}

TEST(Schema, MinusMayBeAListThatNothingElseReads) {
  const std::string feature = R"(
[[features]]
name = "watched"
scope = "history"
kind = "bucket"
history_column = "history_end"
minus = "history_start"
)";
  const auto shape = [](const Result<Schema>& s) {
    const auto& f = s->kinds()[0].features[1];
    return s->columns()[static_cast<std::size_t>(f.minus_column)].shape;
  };
  const auto scalar = read(kItem + feature + kLike);
  ASSERT_TRUE(scalar) << scalar.error().text();
  EXPECT_EQ(shape(scalar), Shape::kScalar);
  const auto list = read(kItem + feature + "minus_is_list = true\n" + kLike);
  ASSERT_TRUE(list) << list.error().text();
  EXPECT_EQ(shape(list), Shape::kHistoryList);
}

TEST(Schema, AFeatureMayNotReadATarget) {
  const auto s = read(std::string(kItem) + R"(
[[features]]
name = "peek"
scope = "candidate"
kind = "number"
candidate_column = "candidate_dwell"
)" + kLike + R"(
[[targets]]
name = "dwell"
candidate_column = "candidate_dwell"
)");
  ASSERT_FALSE(s);
  EXPECT_THAT(s.error().text(), HasSubstr("feature peek"));
}

TEST(Schema, TargetsAndWithoutLabels) {
  const auto s = read(std::string(kItem) + kLike + R"(
[[targets]]
name = "dwell"
candidate_column = "candidate_dwell"
loss = "tweedie"
)");
  ASSERT_TRUE(s) << s.error().text();
  ASSERT_EQ(s->targets().size(), 1U);
  EXPECT_EQ(s->targets()[0].loss, TargetLoss::kTweedie);
  EXPECT_DOUBLE_EQ(s->targets()[0].cap, 300.0);
  const Schema bare = s->without_labels();
  EXPECT_EQ(bare.actions_column(), kNoColumn);
  EXPECT_EQ(bare.targets()[0].column, kNoColumn);
  EXPECT_EQ(bare.columns().size() + 2, s->columns().size());
}

TEST(Schema, RefusesWhatCannotWork) {
  const std::string rest = std::string(kItem) + kLike;
  EXPECT_THAT(refusal(kLike), HasSubstr("features"));
  EXPECT_THAT(refusal(kItem), HasSubstr("actions"));
  EXPECT_THAT(refusal(std::string(kUser) + kLike), HasSubstr("candidate"));
  EXPECT_THAT(refusal(std::string(kItem) + kItem + kLike), HasSubstr("features[1].name"));
  EXPECT_THAT(refusal(rest + kLike), HasSubstr("actions[1].name"));
  EXPECT_THAT(refusal(rest + replaced(kLike, "like", "love")), HasSubstr("actions[1].bit"));
  EXPECT_THAT(refusal(kItem + replaced(kLike, "bit = 1", "bit = 64")), HasSubstr("64"));
  EXPECT_THAT(refusal(replaced(kItem, "\"id\"", "\"ids\"") + kLike), HasSubstr("multi_hot"));
  EXPECT_THAT(refusal(replaced(kItem, "event", "events") + kLike), HasSubstr("candidate"));
  EXPECT_THAT(refusal(replaced(kItem, "rows = 100", "rows = 0") + kLike),
              HasSubstr("features[0].rows"));
  EXPECT_THAT(refusal(replaced(kItem, "hashes = 2", "hashs = 2") + kLike), HasSubstr("hashs"));
  EXPECT_THAT(refusal(replaced(kItem, "\"item\"", "\"it em\"") + kLike),
              HasSubstr("features[0].name"));
  EXPECT_THAT(refusal(replaced(kItem, "candidate_item", "candidate_actions") + kLike),
              HasSubstr("candidate_actions"));
  EXPECT_THAT(refusal(replaced(kItem, "candidate_item", "history_item") + kLike),
              HasSubstr("history_item"));
  EXPECT_THAT(refusal(replaced(kUser, "column", "token = \"history\"\ncolumn") + rest),
              HasSubstr("token"));
}

TEST(Schema, RefusesImpossibleSizes) {
  const std::string rest = std::string(kItem) + kLike;
  const auto feature = [&](const std::string& keys) {
    return refusal("[[features]]\nname=\"f\"\nscope=\"history\"\nhistory_column=\"history_x\"\n" +
                   keys + rest);
  };
  EXPECT_THAT(feature("kind=\"category\"\nrows=5000\n"), HasSubstr("kind = \"id\""));
  EXPECT_THAT(feature("kind=\"multi_hot\"\nsize=65\n"), HasSubstr("features[0].size"));
  EXPECT_THAT(feature("kind=\"bucket\"\nboundaries=\"log\"\n"), HasSubstr("log2"));
  EXPECT_THAT(feature("kind=\"bucket\"\nboundaries=[2,1]\n"), HasSubstr("increasing"));
  EXPECT_THAT(feature("kind=\"bucket\"\nboundaries=[]\n"), HasSubstr("boundaries"));
  EXPECT_THAT(feature("kind=\"bucket\"\nboundaries=[1]\nbuckets=5\n"), HasSubstr("buckets"));
  EXPECT_THAT(feature("kind=\"bucket\"\nunit=0\n"), HasSubstr("unit"));
  EXPECT_THAT(feature("kind=\"id\"\nrows=2147483647\n"), HasSubstr("features[1].rows"));
  EXPECT_THAT(feature("kind=\"number\"\ncolumn=\"y\"\n"), HasSubstr("not both"));
}

}  // namespace
}  // namespace paceline::features
