#include "train/run_state.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace paceline::train {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

// As it stands in a checkpoint.
json saved() {
  return json::parse(R"({
    "format_version": 1, "step": 12, "examples": 100, "tokens": 900, "skipped_steps": 0,
    "bad_in_a_row": 0, "adam_steps": 12, "config": [["train.seed", "1"]],
    "position": {"fingerprint": "ff00ff00ff00ff00", "seed": "18446744073709551615",
                 "shuffle_window": 16, "epoch": 1, "next_row": 40, "rows": 140, "batches": 12}})");
}

TEST(RunState, ReadsWhatWasSaved) {
  const auto state = state_from_json(saved());
  ASSERT_TRUE(state.ok()) << state.error().text();
  EXPECT_EQ(state->counters.tokens, 900);
  EXPECT_EQ(state->position.fingerprint, 0xFF00FF00FF00FF00U);
  EXPECT_EQ(state->position.seed, ~std::uint64_t{0});
  EXPECT_EQ(state->position.next_row, 40);
  EXPECT_EQ(state->config.size(), 1U);
}

// A position that no run can have is not started from.
TEST(RunState, ImpossibleCountsAreRefusedByName) {
  const json wrong{-1, 1.5, 1e300, std::uint64_t{1} << 63, "7", nullptr, json::array()};
  for (const auto& value : wrong) {
    for (const char* key : {"step", "examples", "tokens", "skipped_steps", "bad_in_a_row"}) {
      json s = saved();
      s[key] = value;
      const auto state = state_from_json(s);
      ASSERT_FALSE(state.ok()) << key << " " << value;
      EXPECT_EQ(state.error().code(), Code::kCorruptData);
      EXPECT_THAT(state.error().text(), HasSubstr(key));
    }
    for (const char* key : {"shuffle_window", "epoch", "next_row", "rows", "batches"}) {
      json s = saved();
      s["position"][key] = value;
      const auto state = state_from_json(s);
      ASSERT_FALSE(state.ok()) << key << " " << value;
      EXPECT_THAT(state.error().text(), HasSubstr(key));
    }
  }
}

TEST(RunState, NumbersInStringsAreReadWhole) {
  for (const char* text : {"", "-1", " 1", "1x", "0x10", "100000000000000000000000"}) {
    json s = saved();
    s["position"]["seed"] = text;
    EXPECT_FALSE(state_from_json(s).ok()) << text;
    s = saved();
    s["position"]["fingerprint"] = text;
    EXPECT_FALSE(state_from_json(s).ok()) << text;
  }
}

TEST(RunState, WhatIsNoStateIsRefused) {
  for (const char* text : {"null", "[]", "{}", "7", R"({"format_version": 2})"}) {
    EXPECT_FALSE(state_from_json(json::parse(text)).ok()) << text;
  }
}

}  // namespace
}  // namespace paceline::train
