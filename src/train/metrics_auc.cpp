#include "train/metrics_auc.hpp"

#include <bit>
#include <cstring>
#include <limits>
#include <utility>

#include "core/error.hpp"

namespace paceline::train {
namespace {

// Unsigned keys in the order of the floats; adding zero makes -0 and 0 one key.
std::uint32_t ordered_key(float score) {
  const auto bits = std::bit_cast<std::uint32_t>(score + 0.0F);
  return (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
}

// Stable radix sort by the upper 32 bits.
void sort_by_key(std::vector<std::uint64_t>& items) {
  constexpr unsigned kBits = 11, kPasses = 3;
  constexpr std::size_t kBuckets = std::size_t{1} << kBits;
  std::vector<std::size_t> counts(kPasses * kBuckets, 0);
  const auto digit = [](std::uint64_t item, unsigned pass) {
    return static_cast<std::size_t>(item >> (32 + pass * kBits)) & (kBuckets - 1);
  };
  for (const auto item : items) {
    for (unsigned p = 0; p < kPasses; ++p) ++counts[p * kBuckets + digit(item, p)];
  }
  std::vector<std::uint64_t> other(items.size());
  for (unsigned p = 0; p < kPasses; ++p) {
    std::size_t* const place = counts.data() + p * kBuckets;
    std::size_t sum = 0;
    for (std::size_t b = 0; b < kBuckets; ++b) sum += std::exchange(place[b], sum);
    for (const auto item : items) other[place[digit(item, p)]++] = item;
    items.swap(other);
  }
}

using Vec4 = double __attribute__((vector_size(32)));
static_assert(kWeightLanes % 4 == 0);

Vec4 load_weights(const std::uint8_t* w) {
  using Bytes4 = std::uint8_t __attribute__((vector_size(4)));
  using Ints4 = std::int32_t __attribute__((vector_size(16)));
  Bytes4 bytes;
  std::memcpy(&bytes, w, sizeof(bytes));
  return __builtin_convertvector(__builtin_convertvector(bytes, Ints4), Vec4);
}

constexpr bool is_positive(RankedEntry e) { return (e & 1) != 0; }
constexpr bool ends_tie(RankedEntry e) { return (e & 2) != 0; }
constexpr std::size_t user_of(RankedEntry e) { return e >> 2; }

}  // namespace

std::vector<RankedEntry> rank_candidates(std::span<const float> scores,
                                         std::span<const std::uint8_t> labels,
                                         std::span<const std::uint32_t> users) {
  const std::size_t n = scores.size();
  PL_CHECK(labels.size() == n && users.size() == n, "one label and one user per score");
  PL_CHECK(n <= std::numeric_limits<std::uint32_t>::max(), "at most 2^32 - 1 candidates");
  std::vector<std::uint64_t> items(n);
  for (std::size_t i = 0; i < n; ++i) {
    PL_CHECK(users[i] < kMaxRankedUsers, "a user index has 30 bits");
    items[i] = std::uint64_t{ordered_key(scores[i])} << 32 | std::uint64_t{users[i]} << 2 |
               (labels[i] != 0 ? 1U : 0U);
  }
  sort_by_key(items);
  std::vector<RankedEntry> ranked(n);
  for (std::size_t i = 0; i < n; ++i) {
    const bool last = i + 1 == n || items[i] >> 32 != items[i + 1] >> 32;
    ranked[i] = static_cast<RankedEntry>(items[i]) | (last ? 2U : 0U);
  }
  return ranked;
}

std::optional<double> auc_of(std::span<const RankedEntry> ranked) {
  // Twice the ordered pairs: at most 2 x 2^31 x 2^31, so that integers hold it.
  std::uint64_t pairs2 = 0, negatives = 0, positives = 0, tied_pos = 0, tied_neg = 0;
  for (const auto e : ranked) {
    is_positive(e) ? ++tied_pos : ++tied_neg;
    if (!ends_tie(e)) continue;
    pairs2 += tied_pos * (2 * negatives + tied_neg);
    negatives += std::exchange(tied_neg, 0);
    positives += std::exchange(tied_pos, 0);
  }
  if (positives == 0 || negatives == 0) return {};
  return 0.5 * static_cast<double>(pairs2) /
         (static_cast<double>(positives) * static_cast<double>(negatives));
}

std::vector<double> ordered_pairs_by_user(std::span<const RankedEntry> ranked, std::size_t users) {
  struct Running {
    std::uint64_t pairs2 = 0;
    std::uint32_t tie = 0, negatives = 0, tied_pos = 0, tied_neg = 0;
    void close() {
      pairs2 += std::uint64_t{tied_pos} * (2 * std::uint64_t{negatives} + tied_neg);
      negatives += tied_neg;
      tied_pos = tied_neg = 0;
    }
  };
  std::vector<Running> running(users);
  std::uint32_t tie = 0;
  for (const auto e : ranked) {
    auto& r = running[user_of(e)];
    if (r.tie != tie) r.close();
    r.tie = tie;
    is_positive(e) ? ++r.tied_pos : ++r.tied_neg;
    tie += ends_tie(e) ? 1 : 0;
  }
  std::vector<double> pairs(users);
  for (std::size_t u = 0; u < users; ++u) {
    running[u].close();
    pairs[u] = 0.5 * static_cast<double>(running[u].pairs2);
  }
  return pairs;
}

std::array<double, kWeightLanes> weighted_auc(std::span<const RankedEntry> ranked,
                                              std::span<const std::uint8_t> weights) {
  constexpr std::size_t kAhead = 24;  // entries; the users' weights rarely lie in a near cache
  constexpr std::size_t kParts = kWeightLanes / 4;
  Vec4 pairs[kParts] = {}, negatives[kParts] = {}, positives[kParts] = {};
  Vec4 tied_pos[kParts] = {}, tied_neg[kParts] = {};
  for (std::size_t i = 0; i < ranked.size(); ++i) {
    const RankedEntry e = ranked[i];
    if (i + kAhead < ranked.size()) {
      __builtin_prefetch(weights.data() + user_of(ranked[i + kAhead]) * kWeightLanes);
    }
    const std::uint8_t* const w = weights.data() + user_of(e) * kWeightLanes;
    const double y = is_positive(e) ? 1.0 : 0.0;
    for (std::size_t p = 0; p < kParts; ++p) {
      const Vec4 weight = load_weights(w + 4 * p);
      tied_pos[p] += y * weight;
      tied_neg[p] += (1.0 - y) * weight;
    }
    if (!ends_tie(e)) continue;
    for (std::size_t p = 0; p < kParts; ++p) {
      pairs[p] += tied_pos[p] * (negatives[p] + 0.5 * tied_neg[p]);
      negatives[p] += tied_neg[p];
      positives[p] += tied_pos[p];
      tied_pos[p] = tied_neg[p] = Vec4{};
    }
  }
  std::array<double, kWeightLanes> auc;
  for (std::size_t l = 0; l < kWeightLanes; ++l) {
    const double all = positives[l / 4][l % 4] * negatives[l / 4][l % 4];
    auc[l] = all > 0 ? pairs[l / 4][l % 4] / all : std::numeric_limits<double>::quiet_NaN();
  }
  return auc;
}

}  // namespace paceline::train
