#include "data/synth/options.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <vector>

namespace paceline::data::synth {
namespace {

using testing::HasSubstr;

TEST(SynthOptions, ParsesLengths) {
  const auto ranges = parse_lengths("--history", "26-125:0.3,126-509,7");
  ASSERT_TRUE(ranges);
  ASSERT_EQ(ranges->size(), 3U);
  EXPECT_EQ((*ranges)[0].max, 125);
  EXPECT_DOUBLE_EQ((*ranges)[0].share, 0.3);
  EXPECT_DOUBLE_EQ((*ranges)[1].share, 1.0);
  EXPECT_EQ((*ranges)[2].min, 7);
  EXPECT_EQ((*ranges)[2].max, 7);
  for (const char* text :
       {"", "a", "1-", "-5", "1-2-3", "1-2:", "1-2:x", "1-2:1:1", "1-2,", "1 2"}) {
    const auto bad = parse_lengths("--history", text);
    ASSERT_FALSE(bad) << text;
    EXPECT_EQ(bad.error().code(), Code::kInvalidArgument);
    EXPECT_THAT(bad.error().message(), HasSubstr("--history"));
  }
}

TEST(SynthOptions, ParsesRatesAndSplits) {
  Options o;
  ASSERT_TRUE(parse_rate("share=0.25", o));
  EXPECT_DOUBLE_EQ(o.rates[7], 0.25);
  EXPECT_DOUBLE_EQ(o.rates[0], 0.14);
  for (const char* text : {"", "fav", "fav=", "fav=x", "like=0.1", "dwelled=0.1", "=0.1"}) {
    EXPECT_FALSE(parse_rate(text, o)) << text;
  }
  ASSERT_TRUE(parse_split("0.5,0.25,0.25", o));
  EXPECT_DOUBLE_EQ(o.split[0], 0.5);
  EXPECT_FALSE(o.one_folder);
  ASSERT_TRUE(parse_split("none", o));
  EXPECT_TRUE(o.one_folder);
  for (const char* text : {"", "1", "0.5,0.5", "a,b,c", "0.8,0.1,0.1,0"}) {
    EXPECT_FALSE(parse_split(text, o)) << text;
  }
}

TEST(SynthOptions, RefusesWhatCannotBeNamingIt) {
  ASSERT_TRUE(check(Options()));
  const std::vector<std::pair<const char*, std::function<void(Options&)>>> cases{
      {"--rows", [](Options& o) { o.rows = -1; }},
      {"--users", [](Options& o) { o.users = 0; }},
      {"--authors", [](Options& o) { o.authors = 0; }},
      {"--items", [](Options& o) { o.items = 0; }},
      {"--topics", [](Options& o) { o.topics = 1; }},
      {"--topics", [](Options& o) { o.topics = 64; }},
      {"--rows-per-file", [](Options& o) { o.rows_per_file = 0; }},
      {"--row-group-rows", [](Options& o) { o.row_group_rows = 0; }},
      {"--threads", [](Options& o) { o.threads = -1; }},
      {"--history",
       [](Options& o) {
         o.history = {{5, 4, 1.0}};
       }},
      {"--history",
       [](Options& o) {
         o.history = {{0, 100'000, 1.0}};
       }},
      {"--history",
       [](Options& o) {
         o.history = {{0, 1, 0.0}};
       }},
      {"--history",
       [](Options& o) {
         o.history = {{0, 1, -1.0}};
       }},
      {"--candidates",
       [](Options& o) {
         o.candidates = {0, 4, 1.0};
       }},
      {"--candidates", [](Options& o) { o.items = 63; }},
      {"--rate", [](Options& o) { o.rates[2] = 1.5; }},
      {"--split",
       [](Options& o) {
         o.split = {0.5, 0.1, 0.1};
       }},
      {"--split",
       [](Options& o) {
         o.split = {1.5, -0.5, 0.0};
       }},
      {"--compression", [](Options& o) { o.compression = "rar"; }},
  };
  for (const auto& [name, change] : cases) {
    Options o;
    change(o);
    const auto checked = check(o);
    ASSERT_FALSE(checked) << name;
    EXPECT_EQ(checked.error().code(), Code::kInvalidArgument);
    EXPECT_THAT(checked.error().message(), HasSubstr(name));
    EXPECT_THAT(checked.error().message(), HasSubstr("allowed"));
  }
}

}  // namespace
}  // namespace paceline::data::synth
