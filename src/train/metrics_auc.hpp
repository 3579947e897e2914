// AUC of many candidates from one ascending order of the scores: over all of them, within each
// user, and over all of them under weights of the users. Private to the metrics.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace paceline::train {

// A candidate as user << 2 | (last of its group of equal scores) << 1 | label.
using RankedEntry = std::uint32_t;
inline constexpr std::uint32_t kMaxRankedUsers = 1U << 30;

// Candidates in ascending order of score; -0 equals 0. Scores are not NaN; users[i] <
// kMaxRankedUsers. The three spans have the same length, below 2^32.
std::vector<RankedEntry> rank_candidates(std::span<const float> scores,
                                         std::span<const std::uint8_t> labels,
                                         std::span<const std::uint32_t> users);

// Absent when there is one label only.
std::optional<double> auc_of(std::span<const RankedEntry> ranked);

// Per user: the number of (positive, negative) pairs in the right order, equal scores counting one
// half. Divided by positives x negatives it is the user's AUC.
std::vector<double> ordered_pairs_by_user(std::span<const RankedEntry> ranked, std::size_t users);

// Resamples are computed this many at a time: one vector operation of doubles handles four.
inline constexpr std::size_t kWeightLanes = 8;

// The AUC in which every candidate counts as often as `weights[user * kWeightLanes + lane]` says,
// for each lane; NaN where one label has no weight.
std::array<double, kWeightLanes> weighted_auc(std::span<const RankedEntry> ranked,
                                              std::span<const std::uint8_t> weights);

}  // namespace paceline::train
