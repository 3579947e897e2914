#include "train/train_config.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <string_view>
#include <thread>

#include "core/bytes.hpp"
#include "core/log.hpp"

namespace paceline::train {
namespace {

constexpr std::int64_t kMaxThreads = 1024;
constexpr std::int64_t kMaxSkips = 1'000'000'000;
constexpr std::int64_t kMinShardBytes = 4096;

Result<std::int64_t> read_memory_limit(Config& config) {
  constexpr std::string_view kKey = "data.memory_limit";
  if (config.has(kKey) && !config.is_string(kKey)) return config.get_int(kKey, {}, {.min = 1});
  PL_TRY(const std::string text, config.get_string(kKey, "auto"));
  if (text == "auto") return machine_memory_bytes() / 5 * 4;
  const auto bytes = parse_bytes(text);
  if (!bytes || *bytes == 0) {
    return config.invalid(kKey, fmt::format("\"{}\"", text),
                          "bytes, an amount such as \"8 GiB\", or \"auto\"");
  }
  return *bytes;
}

Result<DataConfig> read_data(Config& config, std::uint64_t run_seed) {
  DataConfig d;
  const std::vector<std::string> none;
  PL_TRY(d.train, config.get_paths("data.train", none));
  PL_TRY(d.valid, config.get_paths("data.valid", none));
  PL_TRY(d.test, config.get_paths("data.test", none));
  PL_TRY(const auto depth, config.get_int("data.depth", d.depth, {.min = 1, .max = 1024}));
  PL_TRY(const auto readers, config.get_int("data.readers", d.readers, {.min = 1, .max = 256}));
  PL_TRY(d.shuffle_window, config.get_int("data.shuffle_window", d.shuffle_window, {.min = 0}));
  PL_TRY(const auto seed,
         config.get_int("data.seed", static_cast<std::int64_t>(run_seed), {.min = 0}));
  PL_TRY(d.stall_limit_s, config.get_number("data.stall_limit_s", d.stall_limit_s, {.min = 0.1}));
  PL_TRY(d.memory_limit, read_memory_limit(config));
  PL_TRY(d.skip_bad_rows, config.get_int("data.skip_bad_rows", 0, {.min = 0, .max = kMaxSkips}));
  PL_TRY(d.skip_bad_blocks,
         config.get_int("data.skip_bad_blocks", 0, {.min = 0, .max = kMaxSkips}));
  d.depth = static_cast<int>(depth);
  d.readers = static_cast<int>(readers);
  d.seed = static_cast<std::uint64_t>(seed);
  return d;
}

// Empty when it is not set, or set to nothing.
Result<std::string> read_optional_path(Config& config, std::string_view key) {
  PL_TRY(const std::string text, config.get_string(key, ""));
  if (text.empty()) return text;
  return config.get_path(key);
}

// Bytes as a number, or an amount such as "8 GiB".
Result<std::int64_t> read_bytes(Config& config, std::string_view key, const char* fallback,
                                std::int64_t min) {
  if (config.has(key) && !config.is_string(key)) return config.get_int(key, {}, {.min = min});
  PL_TRY(const std::string text, config.get_string(key, fallback));
  const auto bytes = parse_bytes(text);
  if (!bytes || *bytes < min) {
    return config.invalid(
        key, fmt::format("\"{}\"", text),
        fmt::format("bytes or an amount such as \"{}\", at least {}", fallback, bytes_text(min)));
  }
  return *bytes;
}

Result<LoopConfig> read_loop(Config& config) {
  LoopConfig l;
  PL_TRY(l.epochs, config.get_int("train.epochs", l.epochs, {.min = 1}));
  PL_TRY(l.max_steps, config.get_int("train.max_steps", l.max_steps, {.min = 0}));
  PL_TRY(const auto seed, config.get_int("train.seed", 1, {.min = 0}));
  PL_TRY(const auto threads, config.get_int("train.threads", 0, {.min = 0, .max = kMaxThreads}));
  PL_TRY(l.device, config.get_choice("train.device", {"auto", "cpu", "cuda"}, l.device));
  PL_TRY(l.precision, config.get_choice("train.precision", {"auto", "bf16", "fp32"}, l.precision));
  PL_TRY(const std::string graph, config.get_choice("train.graph", {"on", "off"}, "on"));
  PL_TRY(l.overlap, config.get_bool("train.overlap", l.overlap));
  PL_TRY(l.log_every, config.get_int("train.log_every", l.log_every, {.min = 1}));
  PL_TRY(l.max_bad_steps, config.get_int("train.max_bad_steps", l.max_bad_steps, {.min = 1}));
  PL_TRY(l.init_from, read_optional_path(config, "train.init_from"));
  PL_TRY(l.init_except, config.get_strings("train.init_except", std::vector<std::string>{}));
  l.seed = static_cast<std::uint64_t>(seed);
  l.threads = static_cast<int>(threads);
  l.graph = graph == "on";
  return l;
}

Result<void> something_to_train(const Config& config, const features::Schema& schema) {
  const auto& actions = schema.actions();
  const auto& targets = schema.targets();
  if (std::any_of(actions.begin(), actions.end(),
                  [](const auto& a) { return a.train && a.weight > 0; }) ||
      std::any_of(targets.begin(), targets.end(), [](const auto& t) { return t.weight > 0; })) {
    return {};
  }
  return config.invalid("actions", "none that trains",
                        "one with train = true and weight > 0, or a target");
}

Result<EvalConfig> read_eval(Config& config, const DataConfig& data) {
  EvalConfig e;
  PL_TRY(e.every_steps, config.get_int("eval.every_steps", e.every_steps, {.min = 0}));
  PL_TRY(e.split, config.get_choice("eval.split", {"train", "valid", "test"}, e.split));
  PL_TRY(const auto bootstrap,
         config.get_int("eval.bootstrap", e.bootstrap, {.min = 0, .max = 10000}));
  e.bootstrap = static_cast<int>(bootstrap);
  PL_TRY(const auto k, config.get_int("eval.ndcg_k", e.ndcg_k, {.min = 1, .max = 1000000}));
  e.ndcg_k = static_cast<int>(k);
  if (e.every_steps > 0 && !data.split(e.split)) {
    return config.invalid("eval.every_steps", std::to_string(e.every_steps),
                          fmt::format("0, or a data.{0} to evaluate on", e.split));
  }
  return e;
}

Result<CheckpointConfig> read_checkpoint(Config& config, const std::string& run_dir) {
  CheckpointConfig c;
  PL_TRY(c.dir, config.get_path("checkpoint.dir",
                                (std::filesystem::path(run_dir) / "checkpoints").string()));
  PL_TRY(c.every_steps, config.get_int("checkpoint.every_steps", c.every_steps, {.min = 0}));
  PL_TRY(c.every_seconds,
         config.get_number("checkpoint.every_seconds", c.every_seconds, {.min = 0}));
  PL_TRY(const auto keep,
         config.get_int("checkpoint.keep_last", c.keep_last, {.min = 1, .max = 1000000}));
  PL_TRY(c.keep_every, config.get_int("checkpoint.keep_every", c.keep_every, {.min = 0}));
  PL_TRY(c.background, config.get_bool("checkpoint.background", c.background));
  PL_TRY(const std::string busy,
         config.get_choice("checkpoint.when_busy", {"wait", "skip"}, "wait"));
  PL_TRY(const auto failures,
         config.get_int("checkpoint.fail_after", c.fail_after, {.min = 1, .max = 1000000}));
  PL_TRY(c.table_deltas,
         config.get_int("checkpoint.table_deltas", c.table_deltas, {.min = 0, .max = 1000000}));
  PL_TRY(c.shard_bytes, read_bytes(config, "checkpoint.shard_size", "1 GiB", kMinShardBytes));
  PL_TRY(c.finish_limit_s,
         config.get_number("checkpoint.finish_limit_s", c.finish_limit_s, {.min = 0.1}));
  c.keep_last = static_cast<int>(keep);
  c.fail_after = static_cast<int>(failures);
  c.skip_when_busy = busy == "skip";
  return c;
}

}  // namespace

Result<std::vector<std::string>> DataConfig::split(const std::string& name) const {
  const auto& paths = name == "train" ? train : name == "valid" ? valid : test;
  if (name != "train" && name != "valid" && name != "test") {
    return Error(Code::kInvalidArgument,
                 fmt::format("split \"{}\": allowed are train, valid and test", name));
  }
  if (paths.empty()) {
    return Error(
        Code::kInvalidArgument,
        fmt::format("key data.{} is not set: the config names no data for this split", name));
  }
  return paths;
}

Result<TrainConfig> TrainConfig::from_config(Config& config) {
  TrainConfig t;
  PL_TRY(t.run_dir, config.get_path("run.dir"));
  PL_TRY(t.loop, read_loop(config));
  PL_TRY(t.data, read_data(config, t.loop.seed));
  PL_TRY(t.schema, features::Schema::from_config(config));
  PL_TRY_VOID(something_to_train(config, t.schema));
  PL_TRY(t.limits, features::BatchLimits::from_config(config, t.schema));
  PL_TRY(t.model, model::ModelConfig::from_config(config));
  PL_TRY(t.optimizer, OptimizerConfig::from_config(config));
  PL_TRY(t.schedule, Schedule::from_config(config));
  PL_TRY(t.eval, read_eval(config, t.data));
  PL_TRY(t.checkpoint, read_checkpoint(config, t.run_dir));
  PL_TRY_VOID(config.finish());
  t.resolved = config.resolved();
  t.values = config.values();
  return t;
}

int TrainConfig::threads() const {
  if (loop.threads > 0) return loop.threads;
  return static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
}

data::BatchPipelineOptions TrainConfig::pipeline_options() const {
  data::BatchPipelineOptions o;
  o.limits = limits;
  o.depth = data.depth;
  o.readers = data.readers;
  o.shuffle_window = data.shuffle_window;
  o.seed = data.seed;
  o.epochs = loop.epochs;
  o.overlap = loop.overlap;
  o.stall_limit_s = data.stall_limit_s;
  o.memory_limit = data.memory_limit;
  o.skip_bad_rows = data.skip_bad_rows;
  o.skip_bad_blocks = data.skip_bad_blocks;
  return o;
}

data::SourceOptions TrainConfig::source_options() const {
  return {.max_bad_rows = data.skip_bad_rows};
}

KeyClass key_class(std::string_view key) {
  // Longest prefix first. Data paths are free: the fingerprint of the rows decides.
  constexpr std::array<std::pair<std::string_view, KeyClass>, 30> kClasses{{
      {"train.seed", KeyClass::kFixed},
      {"data.seed", KeyClass::kFixed},
      {"data.shuffle_window", KeyClass::kFixed},
      {"data.user_column", KeyClass::kFixed},
      {"data.time_column", KeyClass::kFixed},
      {"data.actions_column", KeyClass::kFixed},
      {"data.skip_bad_rows", KeyClass::kReported},
      {"data.skip_bad_blocks", KeyClass::kReported},
      {"features", KeyClass::kFixed},
      {"actions", KeyClass::kFixed},
      {"targets", KeyClass::kFixed},
      {"model.", KeyClass::kFixed},
      {"train.epochs", KeyClass::kReported},
      {"train.max_steps", KeyClass::kReported},
      {"train.max_bad_steps", KeyClass::kReported},
      {"train.device", KeyClass::kReported},
      {"train.precision", KeyClass::kReported},
      {"batch.", KeyClass::kReported},
      {"optimizer.", KeyClass::kReported},
      {"schedule.", KeyClass::kReported},
      {"checkpoint.background", KeyClass::kFree},
      {"checkpoint.when_busy", KeyClass::kFree},
      {"checkpoint.fail_after", KeyClass::kFree},
      {"checkpoint.shard_size", KeyClass::kFree},
      {"checkpoint.finish_limit_s", KeyClass::kFree},
      {"checkpoint.", KeyClass::kReported},
      {"train.", KeyClass::kFree},
      {"data.", KeyClass::kFree},
      {"eval.", KeyClass::kFree},
      {"run.", KeyClass::kFree},
  }};
  for (const auto& [prefix, what] : kClasses) {
    if (key.starts_with(prefix)) return what;
  }
  return KeyClass::kFixed;
}

Result<void> check_keys(const std::string& run, const std::vector<KeyChange>& changes,
                        bool allow_fixed) {
  std::string refused;
  bool order = false;
  for (const auto& change : changes) {
    // The position means nothing in another order.
    const bool orders = change.key == "data.seed" || change.key == "data.shuffle_window";
    if (change.what == KeyClass::kFixed && (orders || !allow_fixed)) {
      refused += fmt::format("\n  {}: the run has {}, the config has {}", change.key, change.was,
                             change.is);
      order = order || orders;
    } else {
      log::info(
          fmt::format("{} changed at this resume: {} -> {}", change.key, change.was, change.is));
    }
  }
  if (refused.empty()) return {};
  return Error(
      Code::kInvalidArgument,
      fmt::format("{} was trained with other values of keys that may not change:{}\n"
                  "set them back, or use another run.dir{}",
                  run, refused, order ? "" : ", or --allow-changed-keys to go on all the same"));
}

std::vector<KeyChange> changed_keys(const std::vector<std::pair<std::string, std::string>>& saved,
                                    const std::vector<std::pair<std::string, std::string>>& now) {
  constexpr std::string_view kAbsent = "not set";
  std::map<std::string, std::pair<std::string, std::string>> both;
  for (const auto& [key, value] : saved) both[key] = {value, std::string(kAbsent)};
  for (const auto& [key, value] : now) {
    const auto [it, fresh] = both.try_emplace(key, std::string(kAbsent), value);
    if (!fresh) it->second.second = value;
  }
  std::vector<KeyChange> changes;
  for (const auto& [key, values] : both) {
    const KeyClass what = key_class(key);
    if (what != KeyClass::kFree && values.first != values.second) {
      changes.push_back({key, values.first, values.second, what});
    }
  }
  return changes;
}

}  // namespace paceline::train
