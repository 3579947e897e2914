// safetensors files with their hash; the public calls are in checkpoint.hpp. Private to the room.
//
//   u64 little-endian: header length | JSON header, padded with spaces | tensor data
//
// The header maps a name to {dtype, shape, data_offsets [begin, end)}, offsets counting from the
// end of the header. Data has no holes; tensors lie in order of element size, largest first, then
// by name, so that each is aligned to its element size in a mapped file.
#pragma once

#include <filesystem>
#include <span>
#include <vector>

#include "checkpoint/checkpoint.hpp"
#include "checkpoint/file_ops.hpp"
#include "core/error.hpp"

namespace paceline::checkpoint {

// Writes straight from the caller's memory. kInvalidArgument for a name that is not UTF-8.
Result<FileRecord> write_tensors(FileOps& ops, const std::filesystem::path& file,
                                 std::span<const TensorView> tensors);

struct TensorFile {
  std::vector<Tensor> tensors;  // in the order of the file
  FileRecord record;            // of the bytes that were read
};
Result<TensorFile> read_tensors(const std::filesystem::path& file);

}  // namespace paceline::checkpoint
