// Looking at checkpoints and loading them.
#include "checkpoint/checkpoint.hpp"

#include <fmt/format.h>

#include <chrono>
#include <system_error>
#include <utility>

#include "checkpoint/layout.hpp"
#include "checkpoint/safetensors.hpp"

namespace paceline::checkpoint {
namespace fs = std::filesystem;
namespace {

constexpr std::uint64_t kMaxStateBytes = std::uint64_t{1} << 30;

std::uint64_t bytes_in(const fs::path& directory) {
  std::uint64_t sum = 0;
  std::error_code ec;
  fs::directory_iterator it(directory, ec);
  for (; !ec && it != fs::directory_iterator(); it.increment(ec)) {
    std::error_code failed;
    const auto size = it->file_size(failed);
    if (!failed) sum += size;
  }
  return sum;
}

// A checkpoint that is gone is no Info.
Result<Info> look_at(const fs::path& checkpoint, bool deep) {
  Info info;
  info.path = checkpoint;
  info.step = parse_step_name(checkpoint.filename().string()).value_or(0);
  auto manifest = check(checkpoint, deep);
  if (!manifest && manifest.error().code() == Code::kNotFound) {
    return Error(std::move(manifest.error()));
  }
  info.complete = manifest.ok();
  if (manifest.ok()) {
    info.step = manifest->step;
  } else {
    info.why = manifest.error().text();
  }
  info.bytes = bytes_in(checkpoint);
  std::error_code failed;
  const auto written = fs::last_write_time(checkpoint, failed);
  if (!failed) {
    info.age_s = std::chrono::duration<double>(fs::file_time_type::clock::now() - written).count();
  }
  return info;
}

Result<std::vector<Tensor>> load_tensors(const Manifest& manifest, const fs::path& checkpoint,
                                         std::string_view name) {
  PL_TRY(auto file, read_tensors(checkpoint / name));
  PL_TRY_VOID(compare(manifest, file.record, checkpoint));
  return std::move(file.tensors);
}

Result<nlohmann::json> load_state(const Manifest& manifest, const fs::path& checkpoint) {
  const auto path = checkpoint / kStateName;
  PL_TRY(const auto text, read_text(path, kMaxStateBytes));
  PL_TRY_VOID(compare(manifest, {std::string(kStateName), text.size(), hash_of(text)}, checkpoint));
  auto state = nlohmann::json::parse(text, nullptr, false);
  if (state.is_discarded()) {
    return Error(Code::kCorruptData, fmt::format("{} is not JSON", path.string()));
  }
  return state;
}

Result<Loaded> load_files(const fs::path& checkpoint) {
  PL_TRY(const auto manifest, read_manifest(checkpoint));
  Loaded loaded;
  loaded.step = manifest.step;
  loaded.path = checkpoint;
  PL_TRY(loaded.state, load_state(manifest, checkpoint));
  PL_TRY(loaded.model, load_tensors(manifest, checkpoint, kModelName));
  PL_TRY(loaded.optimizer, load_tensors(manifest, checkpoint, kOptimizerName));
  PL_TRY(loaded.tables, load_tensors(manifest, checkpoint, kTablesName));
  return loaded;
}

}  // namespace

Result<std::vector<Info>> list(const fs::path& dir, bool deep) {
  PL_TRY(const auto steps, published_steps(dir));
  std::vector<Info> infos;
  for (const auto step : steps) {
    auto info = look_at(dir / step_name(step), deep);
    if (info.ok()) infos.push_back(std::move(*info));
  }
  return infos;
}

Result<Info> verify(const fs::path& checkpoint) { return look_at(checkpoint, true); }

Result<Loaded> load(const fs::path& checkpoint) {
  auto loaded = load_files(checkpoint);
  if (loaded.ok() || loaded.error().code() != Code::kNotFound) return loaded;
  std::error_code ignored;
  if (!fs::is_directory(checkpoint, ignored)) {
    return Error(Code::kNotFound, fmt::format("there is no checkpoint {}", checkpoint.string()));
  }
  return Error(Code::kCorruptData, loaded.error().message());
}

Result<Loaded> load_newest_with(FileOps& ops, const fs::path& dir) {
  // Another process may publish and prune meanwhile: when all that was listed is gone, look again.
  for (int attempt = 0; attempt < 3; ++attempt) {
    PL_TRY(auto steps, published_steps(dir));
    bool vanished = false;
    for (; !steps.empty(); steps.pop_back()) {
      const auto path = dir / step_name(steps.back());
      auto loaded = load(path);
      if (loaded.ok()) return loaded;
      vanished = vanished || loaded.error().code() == Code::kNotFound;
      if (loaded.error().code() == Code::kNotFound) continue;
      if (loaded.error().code() != Code::kCorruptData) return loaded;
      discard(set_aside(ops, path, loaded.error().text()));
    }
    if (!vanished) break;
  }
  return Error(Code::kNotFound, fmt::format("{} holds no complete checkpoint", dir.string()));
}

Result<Loaded> load_newest(const fs::path& dir) { return load_newest_with(posix_file_ops(), dir); }

}  // namespace paceline::checkpoint
