// Which device a run uses, and how exactly it computes there.
#pragma once

#include <string>

#include "core/error.hpp"

namespace paceline::train {

struct LoopConfig;

struct DeviceChoice {
  bool cuda = false;
  bool bf16 = false;             // products of bf16 values, fp32 sums and masters; on the GPU alone
  std::string name = "cpu";      // "NVIDIA H200 (9.0)"
  std::size_t memory_bytes = 0;  // of the GPU
};

// train.device and train.precision. "auto" is the GPU where one can be used, else the CPU, and bf16
// there and fp32 here. kInvalidArgument with the reason when what was asked for cannot be used.
Result<DeviceChoice> choose_device(const LoopConfig& config);

}  // namespace paceline::train
