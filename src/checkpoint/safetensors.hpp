// safetensors files with their hash; the public calls are in checkpoint.hpp. Private to the room.
//
//   u64 little-endian: header length | JSON header, padded with spaces | tensor data
//
// The header maps a name to {dtype, shape, data_offsets [begin, end)}, offsets counting from the
// end of the header, and __metadata__ to strings. Data has no holes; tensors lie in order of
// element size, largest first, then by name, so that each is aligned to its element size in a
// mapped file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "checkpoint/checkpoint.hpp"
#include "checkpoint/hashed_file.hpp"
#include "core/error.hpp"

namespace paceline::checkpoint {

// Comes first in the files that hold it: the numbers of the rows that follow.
inline constexpr std::string_view kRowIndex = "table.row_index";

// Writes straight from the caller's memory. kInvalidArgument for a name that is not UTF-8.
Result<FileRecord> write_tensors(FileOps& ops, const std::filesystem::path& file,
                                 std::span<const TensorView> tensors,
                                 const Metadata& metadata = {});

// write_whole_safetensors() on other file operations.
Result<std::uint64_t> write_whole_with(FileOps& ops, const std::filesystem::path& file,
                                       std::span<const TensorView> tensors,
                                       const Metadata& metadata, Existing existing);

// The header of a file just opened, checked against its size; the data of its tensors follow in
// their order, without holes.
Result<SafetensorsHeader> read_header(InputFile& file);

// a x b, or absent above 2^63 - 1.
std::optional<std::uint64_t> product(std::uint64_t a, std::uint64_t b);
// Of a tensor; absent above 2^63 - 1.
std::optional<std::uint64_t> bytes_of(const TensorInfo& tensor);

}  // namespace paceline::checkpoint
