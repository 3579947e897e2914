#include "checkpoint/restoration.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <system_error>

#include "checkpoint/json_text.hpp"
#include "checkpoint/layout.hpp"
#include "checkpoint/safetensors.hpp"
#include "core/log.hpp"

namespace paceline::checkpoint {
namespace fs = std::filesystem;
namespace {

fs::path base_path(const fs::path& checkpoint, const Base& base) {
  return checkpoint.parent_path() / step_name(base.step);
}

}  // namespace

Result<nlohmann::json> read_state(FileOps& ops, const fs::path& checkpoint,
                                  const Manifest& manifest) {
  const auto path = checkpoint / kStateName;
  PL_TRY(const auto text, read_text(ops, path, kMaxStateBytes));
  PL_TRY_VOID(compare(manifest, {std::string(kStateName), text.size(), hash_of(text)}, checkpoint));
  auto json = parse_json(text);
  if (json.ok()) return json;
  return Error(Code::kCorruptData, fmt::format("{}: {}", path.string(), json.error().message()));
}

Result<Restored> Restoration::read(const fs::path& checkpoint) {
  return run(checkpoint, Depth::kAll);
}

Result<Restored> Restoration::verify(const fs::path& checkpoint) {
  return run(checkpoint, Depth::kUnreadBases);
}

Result<Restored> Restoration::look_at(const fs::path& checkpoint) {
  return run(checkpoint, Depth::kSizes);
}

Result<Restored> Restoration::run(const fs::path& checkpoint, Depth depth) {
  blame_ = Blame::kCheckpoint;
  result_ = {};
  base_.reset();
  tables_.clear();
  try {
    PL_TRY(const auto manifest, read_manifest(ops_, checkpoint));
    result_.path = checkpoint;
    result_.id = manifest.id();
    result_.base = manifest.base;
    result_.bytes = manifest.bytes;
    auto done = files(checkpoint, manifest, depth);
    if (done.ok()) return std::move(result_);
    if (blame_ != Blame::kBase) return Error(std::move(done.error()));
    const auto& error = done.error();
    const bool unusable = error.code() == Code::kCorruptData;
    if (unusable) broken_bases_.emplace_back(*manifest.base, error.message());
    return Error(error.code(), fmt::format("its base, {}, cannot be used: {}",
                                           step_name(manifest.base->step), error.message()));
  } catch (const std::bad_alloc&) {
    return Error(Code::kOutOfMemory,
                 fmt::format("{}: reading it needs more memory", checkpoint.string()));
  }
}

Result<void> Restoration::files(const fs::path& checkpoint, const Manifest& manifest, Depth depth) {
  PL_TRY_VOID(check_sizes(ops_, checkpoint, manifest, Files::kAll));
  if (manifest.base) {
    blame_ = Blame::kBase;
    PL_TRY_VOID(find_base(checkpoint, *manifest.base));
    blame_ = Blame::kCheckpoint;
  }
  if (depth == Depth::kSizes) return {};
  PL_TRY_VOID(state(checkpoint, manifest));
  PL_TRY_VOID(dense(checkpoint, manifest, Part::kModel));
  PL_TRY_VOID(dense(checkpoint, manifest, Part::kOptimizer));
  if (!manifest.base) return full_tables(checkpoint, manifest, true);
  const bool known =
      std::find(read_bases_.begin(), read_bases_.end(), *manifest.base) != read_bases_.end();
  blame_ = Blame::kBase;
  PL_TRY_VOID(
      full_tables(base_path(checkpoint, *manifest.base), *base_, depth == Depth::kAll || !known));
  blame_ = Blame::kCheckpoint;
  return difference(checkpoint, manifest);
}

Result<void> Restoration::find_base(const fs::path& checkpoint, const Base& base) {
  for (const auto& [broken, why] : broken_bases_) {
    if (broken == base) return Error(Code::kCorruptData, why);
  }
  PL_TRY(base_, read_base(ops_, checkpoint, base));
  result_.bytes += base_->bytes;
  return {};
}

Result<void> Restoration::state(const fs::path& checkpoint, const Manifest& manifest) {
  PL_TRY(result_.state, read_state(ops_, checkpoint, manifest));
  result_.bytes += manifest.find(kStateName)->bytes;
  auto taken = receiver_.state(result_.state, checkpoint / kStateName);
  if (!taken.ok()) blame_ = Blame::kReceiver;
  return taken;
}

Result<void> Restoration::dense(const fs::path& checkpoint, const Manifest& manifest, Part part) {
  const auto name = part == Part::kModel ? kModelName : kOptimizerName;
  PL_TRY(auto in, open_file(ops_, checkpoint, name));
  PL_TRY(const auto header, read_header(in));
  for (const auto& info : header.tensors) {
    PL_TRY(const auto memory, memory_for(part, info, in, manifest));
    if (memory) {
      PL_TRY_VOID(in.read(*memory));
    } else {
      PL_TRY_VOID(in.skip(bytes_of(info).value()));
    }
  }
  return file_done(in, manifest);
}

Result<void> Restoration::full_tables(const fs::path& checkpoint, const Manifest& manifest,
                                      bool read) {
  const auto names = manifest.table_files();
  std::int64_t next = 0, entries = 0;
  for (const auto& name : names) {
    PL_TRY(auto file, open_table_file(ops_, checkpoint, manifest, name));
    if (name == names.front()) {
      PL_TRY(tables_, table_tensors(file, manifest));
      entries = table_rows_ = file.range.rows;
      for (auto& tensor : tables_) {
        PL_TRY(tensor.memory, memory_for(Part::kTables, tensor.info, file.in, manifest));
      }
      if (!read) return {};
    }
    if (file.range.entries != entries) {
      return Error(Code::kCorruptData,
                   fmt::format("{}: it is of a table of {} rows, the first file of one of {}",
                               file.in.path().string(), file.range.entries, entries));
    }
    PL_TRY_VOID(read_rows(file, tables_, next));
    PL_TRY_VOID(file_done(file.in, manifest));
    next = file.range.end;
  }
  if (next != entries) {
    return Error(Code::kCorruptData, fmt::format("{}: its table files end at row {} of {}",
                                                 checkpoint.string(), next, entries));
  }
  read_bases_.push_back(manifest.id());
  return {};
}

Result<void> Restoration::difference(const fs::path& checkpoint, const Manifest& manifest) {
  std::int64_t entries = 0;
  const auto names = manifest.table_files();
  for (const auto& name : names) {
    PL_TRY(auto file, open_table_file(ops_, checkpoint, manifest, name));
    if (name == names.front()) entries = file.range.entries;
    if (file.range.entries != entries) {
      return Error(Code::kCorruptData,
                   fmt::format("{}: it is of {} rows, the first file of {}",
                               file.in.path().string(), file.range.entries, entries));
    }
    PL_TRY_VOID(scatter_rows(file, tables_, table_rows_, result_.rows));
    PL_TRY_VOID(file_done(file.in, manifest));
  }
  if (entries == static_cast<std::int64_t>(result_.rows.size())) return {};
  return Error(Code::kCorruptData, fmt::format("{}: its table files hold {} rows of {}",
                                               checkpoint.string(), result_.rows.size(), entries));
}

// The receiver's error may follow from a damaged header, which the hash of the file tells.
Result<std::optional<std::span<std::byte>>> Restoration::memory_for(Part part,
                                                                    const TensorInfo& info,
                                                                    InputFile& in,
                                                                    const Manifest& manifest) {
  auto memory = receiver_.tensor(part, info, in.path());
  if (memory.ok()) {
    PL_CHECK(!*memory || (*memory)->size() == bytes_of(info).value(),
             "memory of as many bytes as the tensor has: " + info.name);
    return memory;
  }
  PL_TRY_VOID(in.skip_to_end());
  PL_TRY_VOID(compare(manifest, in.record(), in.path().parent_path()));
  blame_ = Blame::kReceiver;
  return memory;
}

Result<void> Restoration::file_done(InputFile& in, const Manifest& manifest) {
  result_.bytes += in.record().bytes;
  return compare(manifest, in.record(), in.path().parent_path());
}

Result<Restored> restore_with(FileOps& ops, const fs::path& checkpoint, Receiver& receiver) {
  PL_TRY(const auto path, resolve(checkpoint));
  Restoration restoration(ops, receiver);
  auto restored = restoration.read(path);
  if (!restored && restored.error().code() == Code::kNotFound &&
      restoration.blame() == Blame::kBase) {
    return Error(Code::kCorruptData,
                 fmt::format("{}: {}", path.string(), restored.error().message()));
  }
  return restored;
}

Result<Restored> restore(const fs::path& checkpoint, Receiver& receiver) {
  return restore_with(posix_file_ops(), checkpoint, receiver);
}

}  // namespace paceline::checkpoint
