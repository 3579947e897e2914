// MANIFEST.json: what a complete checkpoint consists of. Private to the room.
//
//   {"format": "paceline-checkpoint", "version": 1, "step": 12,
//    "files": [{"name": "model.safetensors", "bytes": 1024, "xxh3": "<16 hex digits>"}, ...,
//              {"name": "MANIFEST.json", "bytes": 512, "xxh3": "<16 hex digits>"}]}
//
// xxh3 is XXH3-64 with seed 0 of the file's bytes. The last entry is the manifest's own: the hash
// of its text in which these last 16 digits are zeros.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/file_ops.hpp"
#include "core/error.hpp"

namespace paceline::checkpoint {

inline constexpr std::string_view kManifestName = "MANIFEST.json";
inline constexpr int kManifestVersion = 1;

struct Manifest {
  std::int64_t step = 0;
  std::vector<FileRecord> files;  // without the manifest's own entry
  std::uint64_t bytes = 0;        // of the manifest itself; set by parse_manifest

  // nullptr when there is none.
  const FileRecord* find(std::string_view name) const;
};

std::string manifest_text(const Manifest& manifest);

// kCorruptData, or kUnavailable for an intact manifest of a newer version. `path` is for messages.
Result<Manifest> parse_manifest(const std::string& text, const std::filesystem::path& path);

}  // namespace paceline::checkpoint
