// The synthetic world through the program: made, trained on, and measured against its own truth.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "data/synth/rows.hpp"
#include "e2e/support.hpp"
#include "train/metrics.hpp"

namespace paceline::e2e {
namespace {

namespace fs = std::filesystem;
namespace synth = data::synth;
using ::testing::HasSubstr;

constexpr std::int64_t kRows = 600;

std::vector<std::string> synth_arguments(const std::string& out) {
  return {"data",
          "synth",
          out,
          "--rows",
          std::to_string(kRows),
          "--seed",
          "3",
          "--items",
          "500",
          "--users",
          "200",
          "--history",
          "0-30",
          "--candidates",
          "4-12",
          "--rates-scale",
          "2",
          "--rate",
          "fav=0.2",
          "--rows-per-file",
          "128",
          "--row-group-rows",
          "64"};
}

struct Reached {
  double auc = 0.0, ne = 0.0;
};

// Straight from the definitions.
double normalised_entropy(const std::vector<float>& probabilities,
                          const std::vector<std::uint8_t>& labels) {
  double loss = 0.0, rate = 0.0;
  const auto n = static_cast<double>(labels.size());
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const double p = static_cast<double>(probabilities[i]);
    loss -= labels[i] != 0 ? std::log(p) : std::log1p(-p);
    rate += labels[i] / n;
  }
  return loss / n / -(rate * std::log(rate) + (1 - rate) * std::log1p(-rate));
}

// Of the test split as the options above draw it: by time the last tenth.
std::map<std::string, Reached> oracle_reaches() {
  synth::Options o;
  o.seed = 3;
  o.items = 500;
  o.users = 200;
  o.history = {{0, 30, 1.0}};
  o.candidates = {4, 12, 1.0};
  o.rates[0] = 0.2;
  for (auto& rate : o.rates) rate *= 2.0;
  const synth::World world(o);
  synth::RowDrawer drawer(o, world);
  synth::RowColumns columns;
  columns.clear();
  for (std::int64_t r = kRows * 9 / 10; r < kRows; ++r) drawer.append(r, columns);
  std::map<std::string, Reached> all;
  for (std::size_t a = 0; a < synth::kActionInfos.size(); ++a) {
    std::vector<std::uint8_t> labels;
    for (const auto actions : columns.candidate_actions) {
      labels.push_back(static_cast<std::uint8_t>(
          static_cast<std::uint64_t>(actions) >> synth::kActionInfos[a].bit & 1));
    }
    const auto value = train::exact_auc(columns.oracle[a], labels);
    if (!value) continue;
    all[synth::kActionInfos[a].name] = {*value, normalised_entropy(columns.oracle[a], labels)};
  }
  return all;
}

TEST(Synth, TheExampleTrainsAndIsMeasuredAgainstTheOracle) {
  const data::testing::TempDir dir;
  const std::string out = dir.file("data"), config = dir.file("config.toml");
  const Output made = run(synth_arguments(out));
  ASSERT_EQ(made.exit_code, 0) << made.err;
  EXPECT_THAT(made.out, HasSubstr("600 rows"));
  fs::copy_file(fs::path(__FILE__).parent_path() / "../../examples/synth/config.toml", config);
  const Output trained = run({"train", config, "--set", "train.epochs=1", "--set", "model.layers=1",
                              "--set", "eval.bootstrap=0", "--set", "train.threads=1"});
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  const Output evaluated = run({"eval", dir.file("run")});
  ASSERT_EQ(evaluated.exit_code, 0) << evaluated.err;
  EXPECT_THAT(evaluated.out, HasSubstr("oracle_auc"));
  EXPECT_THAT(evaluated.out, HasSubstr("oracle_ne"));

  const auto expected = oracle_reaches();
  std::ifstream file(dir.file("run/eval.jsonl"));
  std::size_t actions = 0;
  for (std::string text; std::getline(file, text); ++actions) {
    const auto line = nlohmann::json::parse(text);
    const std::string action = line.at("action");
    if (!expected.contains(action)) continue;
    EXPECT_NEAR(line.at("oracle_auc").get<double>(), expected.at(action).auc, 1e-6) << action;
    EXPECT_NEAR(line.at("oracle_ne").get<double>(), expected.at(action).ne, 1e-6) << action;
    EXPECT_TRUE(line.at("auc").is_number());
  }
  EXPECT_EQ(actions, 9U);
}

TEST(Synth, WhatCannotBeIsAUsageErrorAndNothingIsWritten) {
  const data::testing::TempDir dir;
  const std::string out = dir.file("out");
  for (const auto& wrong : std::vector<std::vector<std::string>>{{"--rows", "-1"},
                                                                 {"--rows", "many"},
                                                                 {"--history", "9-1"},
                                                                 {"--rate", "x=1"},
                                                                 {"--rates-scale", "100"},
                                                                 {"--candidates", "1-9:0.5"},
                                                                 {"--split", "1,1,1"},
                                                                 {"--compression", "rar"},
                                                                 {"--nonsense"}}) {
    std::vector<std::string> arguments{"data", "synth", out};
    arguments.insert(arguments.end(), wrong.begin(), wrong.end());
    const Output o = run(arguments);
    EXPECT_EQ(o.exit_code, 2) << wrong[0] << ": " << o.err;
    EXPECT_FALSE(fs::exists(out)) << wrong[0];
  }
  fs::create_directory(out);
  std::ofstream(dir.file("out/mine.txt")) << "mine";
  const Output full = run({"data", "synth", out, "--rows", "10"});
  EXPECT_EQ(full.exit_code, 2);
  EXPECT_THAT(full.err, HasSubstr("--overwrite"));
}

TEST(Synth, AStopOrKillLeavesNoData) {
  const data::testing::TempDir dir;
  const auto has_data = [&](const std::string& out) {
    return fs::exists(out + "/train") || fs::exists(out + "/synth.json");
  };
  for (const int number : {SIGINT, SIGKILL}) {
    const std::string out = dir.file("out" + std::to_string(number));
    Process process({"data", "synth", out, "--rows", "10000000", "--threads", "2"});
    ASSERT_TRUE(wait_until(process, [&] { return fs::exists(out + "/.synth-tmp/train"); }));
    process.signal(number);
    EXPECT_EQ(process.wait().exit_code, number == SIGINT ? 130 : 128 + SIGKILL);
    EXPECT_FALSE(has_data(out));
    const Output again = run({"data", "synth", out, "--rows", "20"});
    EXPECT_EQ(again.exit_code, 0) << again.err;
    EXPECT_FALSE(fs::exists(out + "/.synth-tmp"));
  }
}

}  // namespace
}  // namespace paceline::e2e
