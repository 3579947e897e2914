#include "data/global_order.hpp"

#include <algorithm>
#include <bit>
#include <limits>

#include "core/error.hpp"
#include "core/rng.hpp"

namespace paceline::data {
namespace {

constexpr int kRounds = 4;
// Below 2^8 places four rounds would leave some orders visibly more likely than others.
constexpr int kMinHalfBits = 4;

// Blocks of another dataset come in another order, also for an equal seed.
std::uint64_t mixed_seed(std::uint64_t seed, std::uint64_t fingerprint) {
  const auto words = Philox::generate(
      {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32), 0, 0},
      {static_cast<std::uint32_t>(fingerprint), static_cast<std::uint32_t>(fingerprint >> 32)});
  return (std::uint64_t{words[1]} << 32) | words[0];
}

std::int64_t clamped_window(std::int64_t window, std::size_t blocks) {
  PL_CHECK(window >= 0, "a shuffle window of 0 or more blocks");
  if (window == 0) return 1;
  return std::max<std::int64_t>(1, std::min(window, static_cast<std::int64_t>(blocks)));
}

}  // namespace

Permutation::Permutation(std::uint64_t n, std::uint64_t seed, std::uint32_t stream,
                         std::uint64_t tweak)
    : n_(n), seed_(seed), tweak_(tweak), stream_(stream) {
  const int bits = n <= 1 ? 1 : static_cast<int>(std::bit_width(n - 1));
  half_bits_ = std::max(kMinHalfBits, (bits + 1) / 2);
}

Permutation Permutation::identity(std::uint64_t n) {
  Permutation p(n, 0, 0, 0);
  p.half_bits_ = 0;
  return p;
}

std::uint64_t Permutation::operator()(std::uint64_t i) const {
  PL_CHECK(i < n_, "an index within the permutation");
  if (half_bits_ == 0) return i;
  const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
  const Philox::Key key{static_cast<std::uint32_t>(seed_) ^ (stream_ * 0x85EBCA6BU),
                        static_cast<std::uint32_t>(seed_ >> 32)};
  std::uint64_t x = i;
  // The domain is below 4 n, or 256: few walks are needed.
  do {
    std::uint64_t left = x >> half_bits_;
    std::uint64_t right = x & mask;
    for (std::uint32_t round = 0; round < kRounds; ++round) {
      const auto words = Philox::generate(
          {static_cast<std::uint32_t>(right), round, static_cast<std::uint32_t>(tweak_),
           static_cast<std::uint32_t>(tweak_ >> 32)},
          key);
      const std::uint64_t next = left ^ (words[0] & mask);
      left = right;
      right = next;
    }
    x = (left << half_bits_) | right;
  } while (x >= n_);
  return x;
}

Permutation block_order(std::size_t blocks, std::uint64_t fingerprint, std::uint64_t seed,
                        std::int64_t epoch, std::int64_t shuffle_window) {
  if (shuffle_window == 0) return Permutation::identity(blocks);
  return Permutation(blocks, mixed_seed(seed, fingerprint),
                     static_cast<std::uint32_t>(RngStream::kBlocks),
                     static_cast<std::uint64_t>(epoch));
}

GlobalOrder::GlobalOrder(const std::vector<BlockInfo>& blocks, std::uint64_t fingerprint,
                         std::uint64_t seed, std::int64_t epoch, std::int64_t shuffle_window)
    : blocks_(static_cast<std::int64_t>(blocks.size())),
      rows_(0),
      window_blocks_(clamped_window(shuffle_window, blocks.size())),
      seed_(mixed_seed(seed, fingerprint)),
      epoch_(epoch),
      shuffled_(shuffle_window > 0),
      block_permutation_(block_order(blocks.size(), fingerprint, seed, epoch, shuffle_window)) {
  window_first_row_.reserve(
      static_cast<std::size_t>((blocks_ + window_blocks_ - 1) / window_blocks_) + 1);
  for (std::int64_t place = 0; place < blocks_; ++place) {
    if (place % window_blocks_ == 0) window_first_row_.push_back(rows_);
    rows_ += blocks[static_cast<std::size_t>(block_at(place))].rows;
  }
  window_first_row_.push_back(rows_);
}

std::int64_t GlobalOrder::windows() const {
  return static_cast<std::int64_t>(window_first_row_.size()) - 1;
}

std::int64_t GlobalOrder::block_at(std::int64_t place) const {
  return static_cast<std::int64_t>(block_permutation_(static_cast<std::uint64_t>(place)));
}

GlobalOrder::Window GlobalOrder::window(std::int64_t w) const {
  PL_CHECK(w >= 0 && w < windows(), "a window of this order");
  const auto i = static_cast<std::size_t>(w);
  return {w * window_blocks_, std::min((w + 1) * window_blocks_, blocks_), window_first_row_[i],
          window_first_row_[i + 1] - window_first_row_[i]};
}

std::int64_t GlobalOrder::window_of(std::int64_t g) const {
  PL_CHECK(g >= 0 && g < rows_, "a row of this order");
  const auto after = std::upper_bound(window_first_row_.begin(), window_first_row_.end(), g);
  return static_cast<std::int64_t>(after - window_first_row_.begin()) - 1;
}

Permutation GlobalOrder::rows_of(std::int64_t w) const {
  const auto n = static_cast<std::uint64_t>(window(w).rows);
  if (!shuffled_) return Permutation::identity(n);
  const std::uint64_t tweak =
      (static_cast<std::uint64_t>(epoch_) << 32) ^ static_cast<std::uint64_t>(w);
  return Permutation(n, seed_, static_cast<std::uint32_t>(RngStream::kRows), tweak);
}

}  // namespace paceline::data
