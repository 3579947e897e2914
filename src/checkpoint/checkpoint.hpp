// State files that survive a kill at any instruction: written to a hidden directory, every file
// fsynced, renamed, parent fsynced, `latest` replaced atomically.
//
//   <dir>/step_<12 digits>/  model.safetensors optimizer.safetensors tables.safetensors
//                            state.json  MANIFEST.json (size and XXH3 of each file and of itself)
//   <dir>/latest             link to the newest; for people, nothing here reads it
//
// A checkpoint is used only when it is complete and verified. One that is found broken is set aside
// as step_X.corrupt-N, so that its step can be written again without overwriting anything.
// Files are in the safetensors format, readable by its Python library.
//
// One process writes a directory at a time (the run directory's lock); any number may read.
// All calls block on the disk. Errors: kIo with path and the operating system's text.
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

// One safetensors file, synced. Names are unique and sizes fit shapes (checked). An existing file
// is an error of Code::kIo, never overwritten; a failed write leaves a file that does not read
// back.
Result<void> write_safetensors(const std::filesystem::path& file,
                               std::span<const TensorView> tensors);
// In the order of the file. kNotFound, kIo, kOutOfMemory, or kCorruptData: every length, offset and
// shape is checked against the file before it is used.
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

// Writes and publishes, without a copy of the tensors. An existing complete checkpoint of that step
// is never overwritten: if it verifies, this is an error of Code::kInvalidArgument; if it is broken
// it is set aside first. On any failure nothing is published and the hidden directory is removed.
// kInvalidArgument also for a step outside 0 .. 10^12 - 1 and for names or state that are not
// UTF-8.
Result<std::filesystem::path> publish(const std::filesystem::path& dir, const Content& content);

// Sorted by step; empty when there is no such directory. `deep` reads every file and compares its
// hash; otherwise the manifest and sizes only. Those set aside are not listed.
Result<std::vector<Info>> list(const std::filesystem::path& dir, bool deep);
// Deep. kNotFound when there is no such directory.
Result<Info> verify(const std::filesystem::path& checkpoint);

// The newest that verifies; broken newer ones are set aside with a warning, or only skipped where
// the directory is not writable. kNotFound when none. What could not be read (kIo, kOutOfMemory) or
// was written by a newer version (kUnavailable) is an error and stays in place: nobody knows yet
// that it is broken.
Result<Loaded> load_newest(const std::filesystem::path& dir);
// Every byte that is returned was verified. kNotFound, kCorruptData, and as above.
Result<Loaded> load(const std::filesystem::path& checkpoint);

// Removes all but the newest `keep_last` complete checkpoints (>= 1), and hidden leftovers of
// interrupted saves. Checkpoints set aside are kept.
Result<void> prune(const std::filesystem::path& dir, int keep_last);

}  // namespace paceline::checkpoint
