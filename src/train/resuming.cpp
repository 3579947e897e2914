#include "train/resuming.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <utility>

#include "core/bytes.hpp"
#include "core/log.hpp"
#include "telemetry/progress.hpp"
#include "train/init_from.hpp"

namespace paceline::train {
namespace {

Result<void> refuse_if_all_broken(const std::string& dir) {
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(dir, none)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("step_")) continue;
    const bool aside = name.find(".corrupt-") != std::string::npos;
    return Error(
        Code::kCorruptData,
        fmt::format("{}: no checkpoint is whole ({} {}); to start over use another run.dir, or "
                    "remove what is there",
                    dir, name, aside ? "was set aside" : "cannot be used"));
  }
  return {};
}

// A directory that cannot be cleaned is told, and no more: the first save will say what is wrong.
void clean(const std::string& dir) {
  const auto cleaned = checkpoint::clean_leftovers(dir);
  if (!cleaned) {
    log::warning(cleaned.error().text());
  } else if (cleaned->leftovers > 0) {
    log::info(fmt::format("{}: {} leftover{} of interrupted saves removed, {}", dir,
                          cleaned->leftovers, cleaned->leftovers == 1 ? "" : "s",
                          bytes_text(static_cast<std::int64_t>(cleaned->bytes))));
  }
}

void tell_resume(const Beginning& begun, const Provenance& saved, std::uint64_t fingerprint,
                 telemetry::Progress& progress) {
  const auto& c = begun.run.counters;
  progress.line(fmt::format("going on from {} (step {}, {} examples trained)",
                            begun.restored->path.string(), c.step, c.examples));
  const bool same_data =
      begun.run.position.fingerprint == fingerprint || begun.run.position == data::Position{};
  const auto reasons = reasons_to_differ(begun.changes, saved, begun.run.provenance);
  if (reasons.empty() && same_data) {
    progress.line("this resume is bit-identical to an uninterrupted run");
    return;
  }
  progress.line(
      fmt::format("{}; results may differ from an uninterrupted run: {}{}{}",
                  same_data ? "every remaining row is trained once" : "the epoch begins again",
                  fmt::join(reasons, "; "), !reasons.empty() && !same_data ? "; " : "",
                  same_data ? "" : "other data"));
}

}  // namespace

Result<Beginning> begin_run(const TrainConfig& config, const BeginningOptions& options,
                            const model::ParameterLayout& layout, ModelState& weights,
                            telemetry::Progress& progress) {
  const std::string& dir = config.checkpoint.dir;
  clean(dir);
  Beginning begun;
  StateReceiver receiver(layout, weights, [&](const RunState& saved) {
    begun.changes = changed_keys(saved.config, config.values);
    return check_keys(config.run_dir, begun.changes, options.allow_changed_keys);
  });
  auto restored = checkpoint::restore_newest(dir, receiver);
  if (!restored && restored.error().code() != Code::kNotFound) {
    return Error(std::move(restored.error()));
  }
  Provenance saved;
  if (restored) {
    for (const auto& other : restored->passed_over) {
      log::warning(fmt::format("{} was passed over: {}", other.path.string(), other.why));
    }
    PL_TRY(begun.run, receiver.take(restored->path));
    saved = begun.run.provenance;
    begun.restored = std::move(*restored);
  } else {
    PL_TRY_VOID(refuse_if_all_broken(dir));
    model::initialize(layout, config.loop.seed, weights.dense());
    model::initialize_table(config.loop.seed, config.model.table_width, weights.table());
  }
  RunState& run = begun.run;
  run.config = config.values;
  auto& now = run.provenance;
  if (begun.restored) {
    now.add_ancestor({.run = saved.run_id,
                      .path = begun.restored->path.string(),
                      .step = run.counters.step,
                      .why = "resume"});
  } else if (!config.loop.init_from.empty()) {
    PL_TRY(auto ancestor, take_weights(config, layout, weights, progress));
    now.add_ancestor(std::move(ancestor));
  }
  if (now.run_id.empty()) now.run_id = draw_run_id();
  ++now.starts;
  now.build = this_build(options.version, options.commit);
  now.machine = this_machine(options.device);
  if (begun.restored) {
    tell_resume(begun, saved, options.fingerprint, progress);
    if (!config.loop.init_from.empty()) {
      progress.line("train.init_from is not used: the run has a checkpoint of its own");
    }
  }
  return begun;
}

}  // namespace paceline::train
