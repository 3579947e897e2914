// Looking at checkpoints and loading them.
#include "checkpoint/checkpoint.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <new>
#include <system_error>
#include <utility>

#include "checkpoint/layout.hpp"
#include "checkpoint/restoration.hpp"

namespace paceline::checkpoint {
namespace fs = std::filesystem;
namespace {

// A checkpoint that is gone is no Info.
Result<Info> look_with(Restoration& reading, const fs::path& checkpoint, bool deep) {
  Info info;
  info.path = checkpoint;
  info.step = parse_step_name(checkpoint.filename().string()).value_or(0);
  const auto read = deep ? reading.verify(checkpoint) : reading.look_at(checkpoint);
  if (!read && read.error().code() == Code::kNotFound && reading.blame() != Blame::kBase) {
    return Error(read.error());
  }
  info.complete = read.ok();
  if (read.ok()) {
    info.step = read->id.step;
    info.base = read->base;
  } else {
    info.why = read.error().text();
    info.base = reading.base();
  }
  info.bytes = bytes_below(checkpoint);
  std::error_code failed;
  const auto written = fs::last_write_time(checkpoint, failed);
  if (!failed) {
    info.age_s = std::chrono::duration<double>(fs::file_time_type::clock::now() - written).count();
  }
  return info;
}

class Keep : public Receiver {
 public:
  explicit Keep(Loaded& loaded, const Wanted& wanted = {}) : loaded_(loaded), wanted_(wanted) {}

  // A checkpoint is begun anew.
  Result<void> state(const nlohmann::json&, const fs::path&) override {
    loaded_.model.clear();
    loaded_.optimizer.clear();
    loaded_.tables.clear();
    return {};
  }
  Result<std::optional<std::span<std::byte>>> tensor(Part part, const TensorInfo& info,
                                                     const fs::path& from) override {
    if (wanted_ && !wanted_(part, info)) return std::optional<std::span<std::byte>>();
    auto& all = part == Part::kModel       ? loaded_.model
                : part == Part::kOptimizer ? loaded_.optimizer
                                           : loaded_.tables;
    std::uint64_t bytes = size_of(info.dtype);
    for (const auto n : info.shape) bytes *= static_cast<std::uint64_t>(n);
    try {
      all.push_back({info.name, info.dtype, info.shape, HostBuffer(bytes)});
    } catch (const std::bad_alloc&) {
      return Error(Code::kOutOfMemory, fmt::format("{}: the {} bytes of {} do not fit into memory",
                                                   from.string(), bytes, info.name));
    }
    return std::optional(std::span(all.back().bytes.data(), bytes));
  }

 private:
  Loaded& loaded_;
  const Wanted wanted_;
};

Result<Loaded> loaded_from(Result<Restored> restored, Loaded loaded) {
  if (!restored) return Error(std::move(restored.error()));
  loaded.step = restored->id.step;
  loaded.path = std::move(restored->path);
  loaded.state = std::move(restored->state);
  return loaded;
}

}  // namespace

Result<std::vector<Info>> list_with(FileOps& ops, const fs::path& dir, bool deep) {
  PL_TRY(const auto steps, published_steps(ops, dir));
  Discard nowhere;
  Restoration reading(ops, nowhere);
  std::vector<Info> infos;
  for (const auto step : steps) {
    auto info = look_with(reading, dir / step_name(step), deep);
    if (info.ok()) infos.push_back(std::move(*info));
  }
  return infos;
}

Result<std::vector<Info>> list(const fs::path& dir, bool deep) {
  return list_with(posix_file_ops(), dir, deep);
}

Result<Info> look_at(const fs::path& checkpoint) {
  PL_TRY(const auto path, resolve(checkpoint));
  Discard nowhere;
  Restoration reading(posix_file_ops(), nowhere);
  return look_with(reading, path, false);
}

Result<Info> verify(const fs::path& checkpoint) {
  PL_TRY(const auto path, resolve(checkpoint));
  Discard nowhere;
  Restoration reading(posix_file_ops(), nowhere);
  return look_with(reading, path, true);
}

std::vector<fs::path> those_set_aside(const fs::path& dir) {
  std::vector<fs::path> all;
  std::error_code failed;
  for (fs::directory_iterator it(dir, failed), end; !failed && it != end; it.increment(failed)) {
    const auto name = it->path().filename().string();
    const auto dot = name.find(".corrupt-");
    if (dot != std::string::npos && parse_step_name(name.substr(0, dot))) all.push_back(it->path());
  }
  std::sort(all.begin(), all.end());
  return all;
}

std::optional<std::int64_t> latest_step(const fs::path& dir) {
  std::error_code failed;
  const auto target = fs::read_symlink(dir / kLatestName, failed);
  if (failed) return {};
  return parse_step_name(target.string());
}

Result<Description> describe(const fs::path& checkpoint) {
  auto& ops = posix_file_ops();
  PL_TRY(const auto path, resolve(checkpoint));
  PL_TRY(const auto manifest, read_manifest(ops, path));
  PL_TRY_VOID(check_sizes(ops, path, manifest, Files::kAll));
  Description all{manifest.id(), manifest.version, manifest.base, 0, 0, {}, {}, {}, {}, {}};
  PL_TRY(all.state, read_state(ops, path, manifest));
  for (const auto& f : manifest.files) all.files.push_back({f.name, f.bytes, f.xxh3});
  all.files.push_back({std::string(kManifestName), manifest.bytes, manifest.xxh3});
  PL_TRY(auto model, open_file(ops, path, kModelName));
  PL_TRY(auto model_header, read_header(model));
  all.model = std::move(model_header.tensors);
  PL_TRY(auto optimizer, open_file(ops, path, kOptimizerName));
  PL_TRY(auto optimizer_header, read_header(optimizer));
  all.optimizer = std::move(optimizer_header.tensors);
  PL_TRY(auto first, open_table_file(ops, path, manifest, manifest.table_files().front()));
  all.table_rows = first.range.rows;
  all.held_rows = first.range.entries;
  for (auto& t : first.tensors) {
    if (t.name == kRowIndex) continue;
    if (!t.shape.empty()) t.shape[0] = all.held_rows;
    all.tables.push_back(std::move(t));
  }
  return all;
}

Result<Loaded> load(const fs::path& checkpoint) { return load(checkpoint, {}); }

Result<Loaded> load(const fs::path& checkpoint, const Wanted& wanted) {
  Loaded loaded;
  Keep keep(loaded, wanted);
  auto restored = restore(checkpoint, keep);
  return loaded_from(std::move(restored), std::move(loaded));
}

Result<Loaded> load_newest_with(FileOps& ops, const fs::path& dir) {
  Loaded loaded;
  Keep keep(loaded);
  auto restored = restore_newest_with(ops, dir, keep);
  return loaded_from(std::move(restored), std::move(loaded));
}

Result<Loaded> load_newest(const fs::path& dir) { return load_newest_with(posix_file_ops(), dir); }

}  // namespace paceline::checkpoint
