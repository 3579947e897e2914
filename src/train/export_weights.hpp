// One file with the weights of a checkpoint, for serving and as a beginning (train.init_from).
// Blocking.
//
// A safetensors file: dense parameters and `table.rows`, F32, by their names in checkpoints; no
// optimizer state. Its metadata: `format` "paceline-export", `format_version` "1", `config` (the
// run's, every key, as TOML), `config_fingerprint`, `run`, `step`, `version` and `commit` of the
// build that trained them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "checkpoint/checkpoint.hpp"
#include "core/error.hpp"

namespace paceline::train {

struct Exported {
  std::filesystem::path checkpoint, file;
  std::string run;  // its id
  std::int64_t step = 0;
  std::uint64_t bytes = 0;
  std::uint64_t config_fingerprint = 0;
  std::size_t tensors = 0;
};

// `name` as for find_checkpoint(). Every byte is verified first, a difference together with its
// base; the weights are held in memory once. The file appears whole or not at all.
// kInvalidArgument for a file whose name does not end in .safetensors, that is there already
// (unless kReplace), or would lie in a checkpoint; kNotFound, kCorruptData, kIo.
Result<Exported> export_weights(const std::string& name, const std::filesystem::path& file,
                                checkpoint::Existing existing);

}  // namespace paceline::train
