// MANIFEST.json: what a complete checkpoint consists of. Private to the room.
//
//   {"format": "paceline-checkpoint", "version": 2, "step": 12,
//    "base": {"step": 10, "xxh3": "<16 hex digits>"},      of a difference only
//    "files": [{"name": "model.safetensors", "bytes": 1024, "xxh3": "<16 hex digits>"}, ...,
//              {"name": "MANIFEST.json", "bytes": 512, "xxh3": "<16 hex digits>"}]}
//
// xxh3 is XXH3-64 with seed 0 of the file's bytes. The last entry is the manifest's own: the hash
// of its text in which these last 16 digits are zeros. That hash is the identity of a checkpoint:
// base.xxh3 is the one that the base's manifest ends with.
// Version 1 knows neither base nor table files in parts; it is read, version 2 is written.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/checkpoint.hpp"
#include "checkpoint/hashed_file.hpp"
#include "core/error.hpp"

namespace paceline::checkpoint {

inline constexpr std::string_view kManifestName = "MANIFEST.json";
inline constexpr std::string_view kModelName = "model.safetensors";
inline constexpr std::string_view kOptimizerName = "optimizer.safetensors";
inline constexpr std::string_view kStateName = "state.json";
inline constexpr std::string_view kTablesStem = "tables";
inline constexpr int kManifestVersion = 2;
inline constexpr int kMaxTableFiles = 99'999;

// tables.safetensors, or of more files tables-<index>-of-<count>.safetensors with five digits each.
std::string table_file_name(int index, int count);

struct Manifest {
  int version = kManifestVersion;  // of a parsed one: what it was written with
  std::int64_t step = 0;
  std::optional<Base> base;
  // Without the manifest's own entry; by name once parsed.
  std::vector<FileRecord> files;
  // Of the manifest itself; set by parse_manifest and manifest_text.
  std::uint64_t bytes = 0;
  std::uint64_t xxh3 = 0;

  // Of a parsed one; nullptr when there is none.
  const FileRecord* find(std::string_view name) const;
  // Names, in the order of the rows.
  std::vector<std::string> table_files() const;
  std::uint64_t table_bytes() const;
  std::uint64_t bytes_of_all() const;
  Base id() const { return {step, xxh3}; }
};

std::string manifest_text(Manifest& manifest);

// All files of a checkpoint are named, once each, and no others. kCorruptData, or kUnavailable for
// an intact manifest of a newer version. `path` is for messages.
Result<Manifest> parse_manifest(const std::string& text, const std::filesystem::path& path);

}  // namespace paceline::checkpoint
