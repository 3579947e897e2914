#include "train/run_checkpoints.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <system_error>

#include "train/loaded_run.hpp"
#include "train/train_config.hpp"

namespace paceline::train {
namespace fs = std::filesystem;
namespace {

bool is_there(const fs::path& path) {
  std::error_code failed;
  return fs::symlink_status(path, failed).type() != fs::file_type::not_found;
}

// By name, so that one without its manifest is a broken checkpoint and not an unknown thing.
bool names_checkpoint(const fs::path& path) {
  const fs::path last = path.has_filename() ? path : path.parent_path();
  const std::string name = last.filename().string();
  if (is_there(path / "MANIFEST.json")) return true;
  return !is_there(path / "config.toml") && (name == "latest" || name.starts_with("step_"));
}

struct RunName {
  std::string run;
  std::optional<std::int64_t> step;
};

// "RUN@12"; an existing path of such a name is a path.
Result<RunName> split(const std::string& name) {
  const auto at = name.rfind('@');
  if (is_there(name) || at == std::string::npos) return RunName{name, {}};
  std::int64_t step = 0;
  const char* const end = name.data() + name.size();
  const auto read = std::from_chars(name.data() + at + 1, end, step);
  if (read.ec != std::errc() || read.ptr != end || step < 0 || at == 0) {
    return Error(Code::kInvalidArgument,
                 fmt::format("{}: found \"{}\" behind the @, allowed: RUN@STEP, a step >= 0", name,
                             name.substr(at + 1)));
  }
  return RunName{name.substr(0, at), step};
}

std::string steps_text(const std::vector<checkpoint::Info>& infos) {
  if (infos.empty()) return "none";
  std::string text;
  for (const auto& i : infos) text += (text.empty() ? "" : ", ") + std::to_string(i.step);
  return text;
}

Result<fs::path> find_in_run(const RunName& name) {
  PL_TRY(const auto config, read_config(name.run, {}));
  const std::string& dir = config.checkpoint.dir;
  PL_TRY(const auto infos, checkpoint::list(dir, false));
  if (name.step) {
    const auto it = std::find_if(infos.begin(), infos.end(),
                                 [&](const auto& i) { return i.step == *name.step; });
    if (it != infos.end()) return it->path;
    return Error(Code::kNotFound, fmt::format("{} holds no checkpoint of step {}; it has: {}", dir,
                                              *name.step, steps_text(infos)));
  }
  const auto newest =
      std::find_if(infos.rbegin(), infos.rend(), [](const auto& i) { return i.complete; });
  if (newest != infos.rend()) return newest->path;
  std::string text = fmt::format("{} holds no complete checkpoint", dir);
  for (const auto& i : infos) text += fmt::format("\n  {}: {}", i.path.filename().string(), i.why);
  return Error(Code::kNotFound, std::move(text));
}

SeenCheckpoint seen(checkpoint::Info info) {
  SeenCheckpoint one{std::move(info), {}};
  if (!one.info.complete) return one;
  // It may hold another program's state, or be pruned meanwhile.
  const auto described = checkpoint::describe(one.info.path);
  if (!described) return one;
  if (auto run = state_from_json(described->state)) one.run = std::move(*run);
  return one;
}

}  // namespace

Result<fs::path> find_checkpoint(const std::string& name) {
  if (names_checkpoint(name)) {
    if (is_there(name)) return fs::path(name);
    return Error(Code::kNotFound, fmt::format("there is no checkpoint {}", name));
  }
  PL_TRY(const auto run, split(name));
  return find_in_run(run);
}

Result<SeenRun> see_run(const std::string& name, bool deep) {
  SeenRun all;
  PL_TRY(const auto run, split(name));
  if (names_checkpoint(name) || run.step) {
    PL_TRY(const auto path, find_checkpoint(name));
    PL_TRY(auto info, deep ? checkpoint::verify(path) : checkpoint::look_at(path));
    all.dir = info.path.parent_path();
    all.checkpoints.push_back(seen(std::move(info)));
  } else {
    PL_TRY(const auto config, read_config(name, {}));
    all.dir = config.checkpoint.dir;
    PL_TRY(auto infos, checkpoint::list(all.dir, deep));
    for (auto& info : infos) all.checkpoints.push_back(seen(std::move(info)));
    all.set_aside = checkpoint::those_set_aside(all.dir);
  }
  all.latest = checkpoint::latest_step(all.dir);
  return all;
}

std::uint64_t config_fingerprint(const std::vector<std::pair<std::string, std::string>>& config) {
  std::string text;
  for (const auto& [key, value] : config) {
    if (key_class(key) == KeyClass::kFixed) text += key + " = " + value + "\n";
  }
  return checkpoint::hash_of(text);
}

}  // namespace paceline::train
