// Names inside a directory of checkpoints, and the steps that the calls of checkpoint.hpp share.
// Private to the room.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/checkpoint.hpp"
#include "checkpoint/file_ops.hpp"
#include "checkpoint/manifest.hpp"
#include "core/error.hpp"

namespace paceline::checkpoint {

inline constexpr std::string_view kModelName = "model.safetensors";
inline constexpr std::string_view kOptimizerName = "optimizer.safetensors";
inline constexpr std::string_view kTablesName = "tables.safetensors";
inline constexpr std::string_view kStateName = "state.json";
inline constexpr std::array kFileNames = {kModelName, kOptimizerName, kTablesName, kStateName};
inline constexpr std::string_view kLatestName = "latest";
inline constexpr std::int64_t kStepLimit = 1'000'000'000'000;

// step_<12 digits>.
std::string step_name(std::int64_t step);
// The step of exactly such a name.
std::optional<std::int64_t> parse_step_name(std::string_view name);

// .<stem>.<kind>-<process>-<n>, a name in `dir` that is not taken.
std::filesystem::path hidden_path(const std::filesystem::path& dir, std::string_view stem,
                                  std::string_view kind);
// Of names that hidden_path makes.
bool is_leftover(std::string_view name);

// Published steps, ascending; empty when there is no such directory.
Result<std::vector<std::int64_t>> published_steps(const std::filesystem::path& dir);

// The manifest of a checkpoint whose files have the sizes, and with `deep` the hashes, that it
// says. kNotFound: no such directory; kCorruptData: it is broken, the text says how; other codes:
// unknown.
Result<Manifest> check(const std::filesystem::path& checkpoint, bool deep);
// Reads and checks the manifest alone, its step against the directory's name and the files it
// names.
Result<Manifest> read_manifest(const std::filesystem::path& checkpoint);
// Compares what was read with what the manifest says of that file.
Result<void> compare(const Manifest& manifest, const FileRecord& read,
                     const std::filesystem::path& checkpoint);

// Renames a broken checkpoint to <name>.corrupt-N, with a warning that says why. Where that cannot
// be done the warning says so.
Result<void> set_aside(FileOps& ops, const std::filesystem::path& checkpoint,
                       const std::string& why);

// The public calls on other file operations.
Result<std::filesystem::path> publish_with(FileOps& ops, const std::filesystem::path& dir,
                                           const Content& content);
Result<Loaded> load_newest_with(FileOps& ops, const std::filesystem::path& dir);
Result<void> prune_with(FileOps& ops, const std::filesystem::path& dir, int keep_last);

}  // namespace paceline::checkpoint
