// Weights and optimizer state of a run in host memory: what checkpoints hold.
#pragma once

#include <cstdint>
#include <span>

#include "core/buffer.hpp"

namespace paceline::train {

// Zeros at first. Flat arrays as ParameterLayout places them, and the table by rows.
struct ModelState {
  ModelState(std::int64_t dense_size, std::int64_t table_rows, int table_width);

  std::span<float> dense() { return dense_.as<float>(); }
  std::span<float> adam_m() { return adam_m_.as<float>(); }
  std::span<float> adam_v() { return adam_v_.as<float>(); }
  std::span<float> table() { return table_.as<float>(); }
  std::span<float> table_acc() { return table_acc_.as<float>(); }
  std::span<const float> dense() const { return dense_.as<float>(); }
  std::span<const float> table() const { return table_.as<float>(); }

  std::int64_t adam_steps = 0;  // updates applied
  std::int64_t table_rows;
  int table_width;

 private:
  HostBuffer dense_, adam_m_, adam_v_, table_, table_acc_;
};

}  // namespace paceline::train
