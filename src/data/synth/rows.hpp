// Draws impressions. Row r is a pure function of (options, r): whoever draws it, in whatever order.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "data/synth/options.hpp"
#include "data/synth/world.hpp"

namespace paceline::data::synth {

// Consecutive rows, one array per column; lists are concatenated. docs/synth.md says what each is.
struct RowColumns {
  std::vector<std::int64_t> user_id, request_time;
  std::vector<std::int32_t> user_country, user_language, user_gender, user_age_bracket,
      user_timezone, user_platform, request_hour;
  std::vector<float> user_age, user_log_activity;
  std::vector<std::int64_t> user_apps;

  std::vector<std::int64_t> history_offsets;  // [rows + 1]
  std::vector<std::int64_t> history_item_id, history_author_id, history_time, history_post_time,
      history_actions;
  std::vector<std::int32_t> history_surface, history_hour, history_code;
  std::vector<float> history_log_likes, history_dwell;

  std::vector<std::int64_t> candidate_offsets;  // [rows + 1]
  std::vector<std::int64_t> candidate_item_id, candidate_author_id, candidate_post_time,
      candidate_actions;
  std::vector<std::int32_t> candidate_surface, candidate_code;
  std::vector<float> candidate_log_likes, candidate_dwell;
  std::array<std::vector<float>, kActions> oracle;

  void clear();
  std::int64_t rows() const { return static_cast<std::int64_t>(user_id.size()); }
};

// Not thread-safe: one per thread. Holds 4 bytes per post. The world must outlive it.
class RowDrawer {
 public:
  RowDrawer(const Options& options, const World& world);

  void append(std::int64_t row, RowColumns& out);

 private:
  std::uint64_t pick_user(std::int64_t time, Words& w) const;
  std::uint32_t pick_candidate(const User& user, Words& w);
  void append_history(const User& user, std::int64_t request_time, Words& w, RowColumns& out);
  void append_candidates(const User& user, std::int64_t request_time, Words& w, RowColumns& out);
  std::int64_t history_length(Words& w) const;

  const Options& options_;
  const World& world_;
  std::vector<double> length_ends_;  // cumulative shares of the history ranges
  std::array<float, kDrawnActions> base_{};
  int likeliest_ = 0;                 // of the drawn actions
  std::vector<std::uint32_t> shown_;  // the last mark under which each post was a candidate
  std::uint32_t mark_ = 0;
};

// sigmoid(14 (affinity - 0.10)), affinity = preference x quality.
float gate_of(const User& user, const Post& post);

// Seconds of the first request; requests follow each other so that a day has as many as users.
inline constexpr std::int64_t kFirstRequest = 1'767'225'600;
std::int64_t request_time_of(std::int64_t row, std::int64_t users);

}  // namespace paceline::data::synth
