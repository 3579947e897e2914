// A safetensors file that appears whole or not at all.
#include <fmt/format.h>

#include <system_error>

#include "checkpoint/layout.hpp"
#include "checkpoint/safetensors.hpp"

namespace paceline::checkpoint {
namespace fs = std::filesystem;

Result<void> check_target(const fs::path& file, Existing existing) {
  std::error_code failed;
  const fs::path parent = fs::absolute(file, failed).parent_path();
  if (!fs::is_directory(parent, failed)) {
    return Error(Code::kNotFound,
                 fmt::format("{}: there is no directory {}", file.string(), parent.string()));
  }
  if (fs::exists(parent / "MANIFEST.json", failed)) {
    return Error(Code::kInvalidArgument,
                 fmt::format("{} would lie in the checkpoint {}; allowed: another directory",
                             file.string(), parent.string()));
  }
  const auto type = fs::symlink_status(file, failed).type();
  if (type == fs::file_type::not_found) return {};
  if (type != fs::file_type::regular && type != fs::file_type::symlink) {
    return Error(Code::kInvalidArgument, file.string() + " is there and is no regular file");
  }
  if (existing == Existing::kReplace) return {};
  return Error(Code::kInvalidArgument,
               fmt::format("{} is there already; --force replaces it", file.string()));
}

Result<std::uint64_t> write_whole_with(FileOps& ops, const fs::path& file,
                                       std::span<const TensorView> tensors,
                                       const Metadata& metadata, Existing existing) {
  PL_TRY_VOID(check_target(file, existing));
  std::error_code failed;
  const fs::path parent = fs::absolute(file, failed).parent_path();
  const fs::path hidden = hidden_path(parent, file.filename().string(), "tmp");
  const auto written = [&]() -> Result<std::uint64_t> {
    PL_TRY(const auto record, write_tensors(ops, hidden, tensors, metadata));
    PL_TRY_VOID(existing == Existing::kReplace ? ops.rename_over(hidden, file)
                                               : ops.rename_new(hidden, file));
    return record.bytes;
  }();
  if (!written) {
    discard(ops.remove_all(hidden));
    return written;
  }
  PL_TRY_VOID(ops.sync_directory(parent));
  return written;
}

Result<std::uint64_t> write_whole_safetensors(const fs::path& file,
                                              std::span<const TensorView> tensors,
                                              const Metadata& metadata, Existing existing) {
  return write_whole_with(posix_file_ops(), file, tensors, metadata, existing);
}

}  // namespace paceline::checkpoint
