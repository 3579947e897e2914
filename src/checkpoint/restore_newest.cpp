// The newest checkpoint that can be used, and what becomes of those that cannot.
#include <fmt/format.h>

#include <system_error>
#include <utility>

#include "checkpoint/layout.hpp"
#include "checkpoint/restoration.hpp"
#include "core/log.hpp"

namespace paceline::checkpoint {
namespace fs = std::filesystem;
namespace {

// What becomes of a checkpoint that was not restored.
enum class Verdict : std::uint8_t { kGone, kBroken, kStays, kError };

Verdict verdict_on(const Error& error, Blame blame) {
  if (blame == Blame::kReceiver) return Verdict::kError;
  switch (error.code()) {
    case Code::kNotFound:
      return blame == Blame::kBase ? Verdict::kStays : Verdict::kGone;
    case Code::kCorruptData:
      return blame == Blame::kBase ? Verdict::kStays : Verdict::kBroken;
    case Code::kInvalidArgument:
      return Verdict::kStays;  // a symbolic link
    default:
      return Verdict::kError;
  }
}

void pass_over(std::vector<PassedOver>& all, const fs::path& path, const std::string& why) {
  for (const auto& one : all) {
    if (one.path == path) return;
  }
  all.push_back({path, why});
}

void warn_of_foreign_latest(const fs::path& dir) {
  std::error_code ec;
  const auto target = fs::read_symlink(dir / kLatestName, ec);
  if (ec || parse_step_name(target.string())) return;
  log::warning(fmt::format("{} points to {}; it is not followed", (dir / kLatestName).string(),
                           target.string()));
}

Error none_usable(const fs::path& dir, const std::vector<PassedOver>& passed) {
  if (passed.empty()) {
    return Error(Code::kNotFound, fmt::format("{} holds no checkpoint", dir.string()));
  }
  std::string text = fmt::format("{}: no checkpoint is whole", dir.string());
  for (const auto& one : passed) {
    text += fmt::format("\n  {}: {}", one.path.filename().string(), one.why);
  }
  return Error(Code::kCorruptData, text);
}

}  // namespace

Result<Restored> restore_newest_with(FileOps& ops, const fs::path& dir, Receiver& receiver) {
  warn_of_foreign_latest(dir);
  std::vector<PassedOver> passed;
  Restoration restoration(ops, receiver);
  // Another process may publish and prune meanwhile: when all that was listed is gone, look again.
  for (int attempt = 0; attempt < 3; ++attempt) {
    PL_TRY(auto steps, published_steps(ops, dir));
    bool vanished = false;
    for (; !steps.empty(); steps.pop_back()) {
      const auto path = dir / step_name(steps.back());
      auto restored = restoration.read(path);
      if (restored.ok()) {
        restored->passed_over = std::move(passed);
        return restored;
      }
      const auto& error = restored.error();
      vanished = vanished || error.code() == Code::kNotFound;
      switch (verdict_on(error, restoration.blame())) {
        case Verdict::kError:
          return restored;
        case Verdict::kGone:
          break;
        case Verdict::kBroken:
          pass_over(passed, path, error.text());
          discard(set_aside(ops, path, error.text()));
          break;
        case Verdict::kStays:
          pass_over(passed, path, error.text());
          log::warning(fmt::format("checkpoint {} is passed over and stays: {}", path.string(),
                                   error.text()));
          break;
      }
    }
    if (!vanished) break;
  }
  return none_usable(dir, passed);
}

Result<Restored> restore_newest(const fs::path& dir, Receiver& receiver) {
  return restore_newest_with(posix_file_ops(), dir, receiver);
}

}  // namespace paceline::checkpoint
