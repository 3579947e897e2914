// State files that survive a kill at any instruction: written to a hidden directory, every file
// fsynced, renamed, parent fsynced, `latest` replaced atomically.
//
//   <dir>/step_<12 digits>/  model.safetensors optimizer.safetensors tables.safetensors
//                            state.json  MANIFEST.json (size and XXH3 of each file and of itself)
//
// A checkpoint is used only when it is complete and verified. One that is found broken is set aside
// as step_X.corrupt-N, so that its step can be written again without overwriting anything.
// Files are in the safetensors format, readable by its Python library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "core/buffer.hpp"
#include "core/error.hpp"

namespace paceline::checkpoint {

enum class Dtype : std::uint8_t { kF32, kBF16, kI64, kI32, kU8 };
std::size_t size_of(Dtype dtype);

// A tensor to be written; the memory stays the caller's and must not change during the call.
struct TensorView {
  std::string name;
  Dtype dtype = Dtype::kF32;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;
};

struct Tensor {
  std::string name;
  Dtype dtype = Dtype::kF32;
  std::vector<std::int64_t> shape;
  HostBuffer bytes;
};

// One safetensors file.
Result<void> write_safetensors(const std::filesystem::path& file,
                               std::span<const TensorView> tensors);
Result<std::vector<Tensor>> read_safetensors(const std::filesystem::path& file);

struct Content {
  std::int64_t step = 0;
  std::vector<TensorView> model, optimizer, tables;
  nlohmann::json state;
};

struct Loaded {
  std::int64_t step = 0;
  std::filesystem::path path;
  std::vector<Tensor> model, optimizer, tables;
  nlohmann::json state;
};

struct Info {
  std::int64_t step = 0;
  std::filesystem::path path;
  std::uint64_t bytes = 0;
  double age_s = 0.0;
  bool complete = false;
  std::string why;  // when not complete: what is missing or differs
};

// Writes and publishes. An existing complete checkpoint of that step is never overwritten: if it
// verifies, this is an error of Code::kInvalidArgument; if it is broken it is set aside first.
// On any failure nothing is published and the hidden directory is removed.
Result<std::filesystem::path> publish(const std::filesystem::path& dir, const Content& content);

// Sorted by step. `deep` reads every file and compares its hash; otherwise sizes only.
Result<std::vector<Info>> list(const std::filesystem::path& dir, bool deep);
Result<Info> verify(const std::filesystem::path& checkpoint);

// The newest that verifies; broken newer ones are set aside with a warning. kNotFound when none.
Result<Loaded> load_newest(const std::filesystem::path& dir);
Result<Loaded> load(const std::filesystem::path& checkpoint);

// Removes all but the newest `keep_last` complete checkpoints (>= 1), and hidden leftovers of
// interrupted saves. Checkpoints set aside are kept.
Result<void> prune(const std::filesystem::path& dir, int keep_last);

}  // namespace paceline::checkpoint
