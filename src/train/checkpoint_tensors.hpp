// Tensors of a checkpoint, or of an exported file, by the name that people use, and how those of
// two differ. Nothing is changed. Blocking.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.hpp"
#include "checkpoint/comparison.hpp"
#include "core/error.hpp"
#include "train/run_state.hpp"
#include "train/train_config.hpp"

namespace paceline::train {

enum class Take : std::uint8_t {
  kAll,
  kWeights,  // what a model computes with: dense parameters and table rows
};

struct ReadTensors {
  std::filesystem::path path;
  std::vector<checkpoint::Tensor> tensors;  // of all parts; names are unique
  std::optional<RunState> run;              // of a checkpoint
};
// `name` as for find_checkpoint(), or a file whose name ends in .safetensors. Every byte of a
// checkpoint is verified, a difference has the rows of its base.
Result<ReadTensors> read_tensors(const std::string& name, Take take);

struct Comparison {
  std::filesystem::path path_a, path_b;
  std::optional<std::int64_t> step_a, step_b;
  std::int64_t tensors = 0;  // names, of both
  std::vector<checkpoint::TensorDifference> differences;
  std::vector<KeyChange> keys;  // that differ and are not free; of two checkpoints
};
// Holds both in memory.
Result<Comparison> compare(const std::string& a, const std::string& b, Take take);

}  // namespace paceline::train
