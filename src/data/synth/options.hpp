// What a synthetic world and the data set drawn from it are made of. The actions, their bits and
// the columns are described in docs/synth.md.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.hpp"

namespace paceline::data::synth {

// An action of the world. The first kDrawnActions are drawn with their base rate; the rest follow
// from them.
struct ActionInfo {
  const char* name;
  int bit;
  double base;  // of drawn actions
};
inline constexpr int kDrawnActions = 8;
inline constexpr int kActions = 10;
inline constexpr std::array<ActionInfo, kActions> kActionInfos{{{"fav", 1, 0.14},
                                                                {"click", 29, 0.10},
                                                                {"video_view", 13, 0.08},
                                                                {"repost", 6, 0.045},
                                                                {"reply", 4, 0.035},
                                                                {"bookmark", 36, 0.02},
                                                                {"quote", 5, 0.015},
                                                                {"share", 37, 0.012},
                                                                {"dwelled", 11, 0.0},
                                                                {"not_dwelled", 12, 0.0}}};
inline constexpr int kDwelled = 8;
inline constexpr int kNotDwelled = 9;

// Lengths min to max, uniformly; ranges are chosen in proportion to their shares.
struct LengthRange {
  std::int64_t min = 0, max = 0;
  double share = 1.0;
};

struct Options {
  std::int64_t rows = 12288;
  std::uint64_t seed = 1;

  std::int64_t users = 10'000;
  std::int64_t authors = 2'000;
  std::int64_t items = 50'000;
  std::int64_t topics = 16;
  std::vector<LengthRange> history{{26, 125, 0.3}, {126, 509, 0.5}, {510, 1022, 0.2}};
  LengthRange candidates{8, 64, 1.0};
  std::array<double, kDrawnActions> rates{};  // base rates, filled with the defaults

  std::array<double, 3> split{0.8, 0.1, 0.1};  // train, valid, test; by time
  bool one_folder = false;                     // all files in one folder instead
  std::int64_t rows_per_file = 8192;
  std::int64_t row_group_rows = 1024;
  std::string compression = "zstd";  // zstd, snappy, lz4, gzip or none
  int threads = 0;                   // 0: one per core
  bool overwrite = false;

  Options();
  double mean_history() const;
  double mean_candidates() const;
};

// kInvalidArgument naming the option, what was found and what is allowed.
Result<void> check(const Options& options);

// "126-509", "26-125:0.3,126-509:0.7", "0".
Result<std::vector<LengthRange>> parse_lengths(const std::string& option, const std::string& text);
// "fav=0.14": sets a base rate.
Result<void> parse_rate(const std::string& text, Options& options);
// "0.8,0.1,0.1" (train, valid, test) or "none".
Result<void> parse_split(const std::string& text, Options& options);

}  // namespace paceline::data::synth
