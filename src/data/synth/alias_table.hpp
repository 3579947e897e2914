// Draws from a discrete distribution in constant time (Walker's alias method, in Vose's form).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace paceline::data::synth {

class AliasTable {
 public:
  AliasTable() = default;
  // Weights >= 0 with a positive sum; fewer than 2^32.
  explicit AliasTable(std::span<const double> weights) : cells_(weights.size()) {
    const std::size_t n = weights.size();
    double sum = 0.0;
    for (const double w : weights) sum += w;
    std::vector<double> scaled(n);
    std::vector<std::uint32_t> small, large;
    for (std::size_t i = 0; i < n; ++i) {
      scaled[i] = weights[i] * static_cast<double>(n) / sum;
      (scaled[i] < 1.0 ? small : large).push_back(static_cast<std::uint32_t>(i));
    }
    while (!small.empty() && !large.empty()) {
      const std::uint32_t s = small.back(), l = large.back();
      small.pop_back();
      cells_[s] = {static_cast<std::uint32_t>(scaled[s] * 0x1.0p32), l};
      scaled[l] -= 1.0 - scaled[s];
      if (scaled[l] < 1.0) {
        large.pop_back();
        small.push_back(l);
      }
    }
    // What is left has weight 1 up to rounding.
    for (const auto& rest : {small, large}) {
      for (const std::uint32_t i : rest) cells_[i] = {0xFFFFFFFFU, i};
    }
  }

  std::uint32_t size() const { return static_cast<std::uint32_t>(cells_.size()); }
  // An index from one random word: its scaled high part chooses the cell, its low part the side.
  std::uint32_t draw(std::uint32_t word) const {
    const std::uint64_t product = std::uint64_t{word} * cells_.size();
    const auto cell = static_cast<std::uint32_t>(product >> 32);
    return static_cast<std::uint32_t>(product) < cells_[cell].threshold ? cell : cells_[cell].alias;
  }

 private:
  struct Cell {
    std::uint32_t threshold = 0;  // of 2^32: stays in the cell
    std::uint32_t alias = 0;
  };
  std::vector<Cell> cells_;
};

}  // namespace paceline::data::synth
