#include "train/device_choice.hpp"

#include <fmt/format.h>

#include "device/gpu.hpp"
#include "train/train_config.hpp"

namespace paceline::train {
namespace {

Error unusable(const char* key, const std::string& is, const std::string& why,
               const char* allowed) {
  return Error(Code::kInvalidArgument,
               fmt::format("{} = \"{}\": {}; allowed here: {}", key, is, why, allowed));
}

}  // namespace

Result<DeviceChoice> choose_device(const LoopConfig& config) {
  DeviceChoice choice;
  if (config.device != "cpu") {
    auto gpu = device::find_gpu();
    if (gpu) {
      choice.cuda = true;
      choice.bf16 = config.precision != "fp32";
      choice.name = device::name_of(*gpu);
      choice.memory_bytes = gpu->memory_bytes;
      return choice;
    }
    if (config.device == "cuda") {
      return unusable("train.device", config.device, gpu.error().message(), "\"cpu\" or \"auto\"");
    }
  }
  if (config.precision == "bf16") {
    return unusable("train.precision", config.precision,
                    "the CPU computes in fp32, and no GPU is used", "\"fp32\" or \"auto\"");
  }
  return choice;
}

}  // namespace paceline::train
