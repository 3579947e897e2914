// Names inside a directory of checkpoints, and the steps that the calls of checkpoint.hpp share.
// Private to the room.
#pragma once

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

// Published steps, ascending, symbolic links of such names included; empty when there is no such
// directory.
Result<std::vector<std::int64_t>> published_steps(FileOps& ops, const std::filesystem::path& dir);

// The directory that a user's path means: without a slash at its end, and behind `latest` the step
// that it names. kInvalidArgument for other symbolic links.
Result<std::filesystem::path> resolve(const std::filesystem::path& checkpoint);

// Reads and checks the manifest alone, its step against the directory's name. kNotFound: no such
// directory; kInvalidArgument: a symbolic link; kCorruptData: it is broken, the text says how;
// other codes: unknown.
Result<Manifest> read_manifest(FileOps& ops, const std::filesystem::path& checkpoint);
// A file of a checkpoint; one that is missing is kCorruptData while its directory is there.
Result<InputFile> open_file(FileOps& ops, const std::filesystem::path& checkpoint,
                            std::string_view name);
// Sizes of the files of a checkpoint, or of its table files only.
enum class Files : std::uint8_t { kAll, kTables };
Result<void> check_sizes(FileOps& ops, const std::filesystem::path& checkpoint,
                         const Manifest& manifest, Files files);
// Compares what was read with what the manifest says of that file.
Result<void> compare(const Manifest& manifest, const FileRecord& read,
                     const std::filesystem::path& checkpoint);

// The manifest of the base of a checkpoint, with the sizes of its table files. kNotFound,
// kCorruptData, also when it is another checkpoint, and as above.
Result<Manifest> read_base(FileOps& ops, const std::filesystem::path& checkpoint, const Base& base);

// Of the files in a directory; links are not followed.
std::uint64_t bytes_below(const std::filesystem::path& path);

// Renames a broken checkpoint to <name>.corrupt-N, with a warning that says why. Where that cannot
// be done the warning says so.
Result<void> set_aside(FileOps& ops, const std::filesystem::path& checkpoint,
                       const std::string& why);

// The public calls on other file operations.
Result<Published> publish_with(FileOps& ops, const std::filesystem::path& dir,
                               const Content& content);
Result<std::vector<Info>> list_with(FileOps& ops, const std::filesystem::path& dir, bool deep);
Result<Restored> restore_with(FileOps& ops, const std::filesystem::path& checkpoint,
                              Receiver& receiver);
Result<Restored> restore_newest_with(FileOps& ops, const std::filesystem::path& dir,
                                     Receiver& receiver);
Result<Loaded> load_newest_with(FileOps& ops, const std::filesystem::path& dir);
Result<Pruned> prune_with(FileOps& ops, const std::filesystem::path& dir,
                          const Retention& retention, const KeptToo& too = {});

}  // namespace paceline::checkpoint
