#include "train/saving.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "core/log.hpp"

namespace paceline::train {

using checkpoint::SaveStart;

Saving::Saving(const CheckpointConfig& config, RunDirectory& directory, MakeContent content)
    : config_(config), directory_(directory), content_(std::move(content)) {}

Result<std::unique_ptr<Saving>> Saving::create(const CheckpointConfig& config,
                                               RunDirectory& directory, MakeContent content,
                                               const checkpoint::Restored* restored) {
  std::unique_ptr<Saving> saving(new Saving(config, directory, std::move(content)));
  checkpoint::SaverOptions options;
  options.dir = config.dir;
  options.background = config.background;
  options.when_busy =
      config.skip_when_busy ? checkpoint::WhenBusy::kSkip : checkpoint::WhenBusy::kWait;
  options.retention = {.keep_last = config.keep_last, .keep_every = config.keep_every};
  options.fail_after = config.fail_after;
  options.table_deltas = config.table_deltas;
  options.shard_bytes = static_cast<std::uint64_t>(config.shard_bytes);
  options.finish_limit_s = config.finish_limit_s;
  std::optional<checkpoint::Base> base;
  std::span<const std::int64_t> touched;
  if (restored != nullptr) {
    base = restored->base ? restored->base : restored->id;
    touched = restored->rows;
    saving->begun_step_ = saving->saved_step_ = restored->id.step;
  }
  PL_TRY(const auto live, saving->content_());
  PL_TRY(saving->saver_, checkpoint::Saver::create(options, live, base, touched));
  return saving;
}

bool Saving::due(std::int64_t step) const {
  const bool by_steps = config_.every_steps > 0 && step % config_.every_steps == 0;
  const bool by_time =
      config_.every_seconds > 0 && seconds_since(begun_at_) >= config_.every_seconds;
  return by_steps || by_time;
}

Result<void> Saving::at_boundary(const RunCounters& counters, bool is_due) {
  collect();
  if (failed_in_a_row_ >= config_.fail_after) {
    return Error(
        Code::kIo,
        fmt::format("{} saves in a row failed (checkpoint.fail_after = {}), the last with: {}",
                    failed_in_a_row_, config_.fail_after, last_failure_));
  }
  return save_if(is_due, counters);
}

Result<void> Saving::while_waiting(const RunCounters& counters) {
  collect();
  return save_if(false, counters);
}

bool Saving::settled(const RunCounters& counters) {
  if (counters.step == saved_step_) {
    log::info(
        fmt::format("asked to save: step {} is saved already in {}", counters.step, config_.dir));
    return true;
  }
  if (counters.step != begun_step_) return false;
  asked_.push_back(counters.step);
  return true;
}

Result<void> Saving::save_if(bool is_due, const RunCounters& counters) {
  bool asked = requested_.load();
  if (asked && settled(counters)) {
    requested_.store(false);
    asked = false;
  }
  if (!asked && !is_due) return {};
  if (counters.bad_in_a_row > 0) {
    if (asked && !std::exchange(told_waiting_, true)) {
      log::warning("asked to save: the last steps were not finite; saved after the next that is");
    }
    return {};
  }
  // Signals that come from here on ask for the next one.
  if (asked) {
    requested_.store(false);
    told_waiting_ = false;
    asked_.push_back(counters.step);
  }
  PL_TRY_VOID(start(counters, asked));
  return {};
}

Result<SaveStart> Saving::start(const RunCounters& counters, bool must) {
  PL_TRY(const auto live, content_());
  auto started = saver_->save(live, {.prune = counters.bad_in_a_row == 0, .must = must});
  if (!started) {
    collect();
    return Error(std::move(started.error())).context("saving the state of the run");
  }
  begun_at_ = Clock::now();
  if (*started == SaveStart::kSkipped) {
    directory_.append_save({{"step", counters.step}, {"skipped", true}});
    return started;
  }
  begun_step_ = counters.step;
  if (!config_.background) collect();
  return started;
}

void Saving::collect() {
  for (const auto& report : saver_->take_reports()) tell(report);
}

void Saving::tell(const checkpoint::SaveReport& r) {
  nlohmann::json line = {{"step", r.step},
                         {"bytes", r.bytes},
                         {"delta", r.delta},
                         {"wait_ms", r.wait_s * 1e3},
                         {"write_ms", r.write_s * 1e3},
                         {"write_cpu_ms", r.write_cpu_s * 1e3},
                         {"skipped", false},
                         {"error", nullptr}};
  const bool asked = std::erase(asked_, r.step) > 0;
  failed_in_a_row_ = r.failed_in_a_row;
  last_failure_ = r.error;
  if (r.error.empty()) {
    saved_step_ = r.step;
    if (asked) log::info(fmt::format("saved as asked: step {} in {}", r.step, r.path.string()));
  } else {
    if (begun_step_ == r.step) begun_step_ = -1;
    line["error"] = r.error;
    log::error(fmt::format("saving step {} failed ({} in a row; checkpoint.fail_after is {}): {}",
                           r.step, r.failed_in_a_row, config_.fail_after, r.error));
  }
  directory_.append_save(line);
}

Result<void> Saving::finish(const RunCounters& counters) {
  auto ended = saver_->finish();
  collect();
  // What still hangs would hang the next one too.
  if (!ended && ended.error().code() == Code::kUnavailable) return ended;
  if (saved_step_ == counters.step) return {};
  if (counters.bad_in_a_row > 0) {
    log::warning(fmt::format("older checkpoints in {} are kept: the last steps were not finite",
                             config_.dir));
  }
  PL_TRY_VOID(start(counters, true));
  auto saved = saver_->finish();
  collect();
  return std::move(saved).context("saving the state of the run");
}

}  // namespace paceline::train
