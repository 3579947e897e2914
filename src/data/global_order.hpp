// The order in which rows are seen: a pure function of (fingerprint, seed, epoch, shuffle_window).
//
// Blocks are permuted by a bijection computed in O(1) memory; consecutive runs of `shuffle_window`
// permuted blocks are windows; rows are permuted within their window by another such bijection.
// shuffle_window 0 keeps file order.
#pragma once

#include <cstdint>
#include <vector>

#include "data/source.hpp"

namespace paceline::data {

// A keyed permutation of [0, n): a four-round Feistel network over Philox with cycle walking
// (Black and Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002).
class Permutation {
 public:
  // n < 2^62.
  Permutation(std::uint64_t n, std::uint64_t seed, std::uint32_t stream, std::uint64_t tweak);
  static Permutation identity(std::uint64_t n);
  std::uint64_t operator()(std::uint64_t i) const;  // i < n
  std::uint64_t size() const { return n_; }

 private:
  std::uint64_t n_;
  std::uint64_t seed_, tweak_;
  std::uint32_t stream_;
  int half_bits_;
};

// The order of `blocks` blocks in one epoch: place -> block. O(1) in memory and time.
Permutation block_order(std::size_t blocks, std::uint64_t fingerprint, std::uint64_t seed,
                        std::int64_t epoch, std::int64_t shuffle_window);

// The order of one epoch.
class GlobalOrder {
 public:
  GlobalOrder(const std::vector<BlockInfo>& blocks, std::uint64_t fingerprint, std::uint64_t seed,
              std::int64_t epoch, std::int64_t shuffle_window);

  std::int64_t rows() const { return rows_; }
  std::int64_t windows() const;
  // The dataset's block at place `place` of the permuted sequence.
  std::int64_t block_at(std::int64_t place) const;
  // Places [first, last) of the blocks in window w.
  struct Window {
    std::int64_t first_place, last_place;
    std::int64_t first_row;  // in the global order
    std::int64_t rows;
  };
  Window window(std::int64_t w) const;
  // The window that holds row g of the global order (0 <= g < rows()).
  std::int64_t window_of(std::int64_t g) const;
  // Which row within its window (counting its blocks in place order) comes k-th.
  Permutation rows_of(std::int64_t w) const;

 private:
  std::vector<std::int64_t> window_first_row_;  // [windows + 1]
  std::int64_t blocks_, rows_, window_blocks_;
  std::uint64_t seed_;
  std::int64_t epoch_;
  bool shuffled_;
  Permutation block_permutation_;
};

}  // namespace paceline::data
