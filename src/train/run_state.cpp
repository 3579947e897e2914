#include "train/run_state.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <system_error>

#include "train/evaluate.hpp"

namespace paceline::train {
namespace {

using checkpoint::Dtype;
using checkpoint::Tensor;
using checkpoint::TensorView;

constexpr int kFormatVersion = 2;

TensorView view(std::string name, std::vector<std::int64_t> shape, std::span<const float> values) {
  return {std::move(name), Dtype::kF32, std::move(shape), std::as_bytes(values)};
}

// Copies tensor `name` into `out`, checking type and shape.
Result<void> take(const std::vector<Tensor>& tensors, const std::string& name,
                  const std::vector<std::int64_t>& shape, std::span<float> out,
                  const std::filesystem::path& where) {
  const auto it =
      std::find_if(tensors.begin(), tensors.end(), [&](const Tensor& t) { return t.name == name; });
  if (it == tensors.end()) {
    return Error(Code::kCorruptData, fmt::format("{}: tensor {} is missing", where.string(), name));
  }
  if (it->dtype != Dtype::kF32 || it->shape != shape ||
      it->bytes.size_bytes() != out.size_bytes()) {
    return Error(
        Code::kInvalidArgument,
        fmt::format("{}: tensor {} has shape [{}], this model needs float32 [{}]", where.string(),
                    name, fmt::join(it->shape, ", "), fmt::join(shape, ", ")));
  }
  if (!out.empty()) std::memcpy(out.data(), it->bytes.data(), out.size_bytes());
  return {};
}

std::span<float> slice(std::span<float> flat, const model::ParameterSpec& spec) {
  return flat.subspan(static_cast<std::size_t>(spec.offset), static_cast<std::size_t>(spec.count));
}

nlohmann::json to_json(const data::Position& p) {
  // 64-bit unsigned values are kept as strings: many JSON readers round large numbers.
  return {{"fingerprint", fmt::format("{:016x}", p.fingerprint)},
          {"seed", std::to_string(p.seed)},
          {"shuffle_window", p.shuffle_window},
          {"epoch", p.epoch},
          {"next_row", p.next_row},
          {"rows", p.rows},
          {"batches", p.batches},
          {"skipped_rows", p.skipped_rows},
          {"skipped_blocks", p.skipped_blocks},
          {"skipped_in_all",
           {{"rows", p.skipped.bad_rows},
            {"blocks", p.skipped.bad_blocks},
            {"rows_of_blocks", p.skipped.rows_of_bad_blocks}}}};
}

// For messages.
std::string brief(const nlohmann::json& value) {
  const auto text = value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  return text.size() <= 40 ? text : text.substr(0, 40) + "...";
}

// A count of at least 0. Throws on anything else, numbers that are no integers included.
std::int64_t count_of(const nlohmann::json& j, const char* key) {
  const auto& value = j.at(key);
  // Integers of a text that are not negative are unsigned.
  constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  const bool whole = value.is_number_unsigned()
                         ? value.get<std::uint64_t>() <= kMost
                         : value.is_number_integer() && value.get<std::int64_t>() >= 0;
  if (!whole) {
    throw std::invalid_argument(
        fmt::format("{}: found {}, allowed is an integer >= 0", key, brief(value)));
  }
  return value.get<std::int64_t>();
}

// All of a string is the number.
std::uint64_t number_of(const nlohmann::json& j, const char* key, int base) {
  const auto text = j.at(key).get<std::string>();
  std::uint64_t value = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (text.empty() || read.ec != std::errc() || read.ptr != text.data() + text.size()) {
    throw std::invalid_argument(
        fmt::format("{}: found {}, allowed are digits of a 64-bit number", key, brief(j.at(key))));
  }
  return value;
}

data::Position position_from_json(const nlohmann::json& j) {
  data::Position p;
  p.fingerprint = number_of(j, "fingerprint", 16);
  p.seed = number_of(j, "seed", 10);
  p.shuffle_window = count_of(j, "shuffle_window");
  p.epoch = count_of(j, "epoch");
  p.next_row = count_of(j, "next_row");
  p.rows = count_of(j, "rows");
  p.batches = count_of(j, "batches");
  if (j.contains("skipped_rows")) p.skipped_rows = count_of(j, "skipped_rows");
  if (j.contains("skipped_blocks")) p.skipped_blocks = count_of(j, "skipped_blocks");
  if (j.contains("skipped_in_all")) {
    const auto& all = j.at("skipped_in_all");
    p.skipped = {count_of(all, "rows"), count_of(all, "blocks"), count_of(all, "rows_of_blocks")};
  }
  return p;
}

nlohmann::json to_json(const features::CutCounts& c) {
  return {{"history_events_cut", c.history_events_cut},
          {"candidates_cut", c.candidates_cut},
          {"unknown_actions", c.unknown_actions},
          {"unknown_categories", c.unknown_categories},
          {"request_before_history", c.request_before_history}};
}

features::CutCounts cuts_from_json(const nlohmann::json& j) {
  return {.history_events_cut = count_of(j, "history_events_cut"),
          .candidates_cut = count_of(j, "candidates_cut"),
          .unknown_actions = count_of(j, "unknown_actions"),
          .unknown_categories = count_of(j, "unknown_categories"),
          .request_before_history = count_of(j, "request_before_history")};
}

// What version 2 added.
void read_version_2(const nlohmann::json& s, RunState& run) {
  run.cuts = cuts_from_json(s.at("cuts"));
  for (const auto& [split, best] : s.at("best").items()) {
    run.best[split] = {count_of(best, "step"), best.at("metric").get<std::string>(),
                       best.at("value").get<double>()};
  }
  count_of(s, "starts");
  run.provenance = provenance_from_json(s);
  if (!s.contains("products")) return;
  const auto& products = s.at("products");
  products.at("device").get_to(run.algorithms.device);
  products.at("algorithms").get_to(run.algorithms.by_key);
}

}  // namespace

void note_best(RunState& run, const SplitMetrics& metrics) {
  double sum = 0.0;
  int actions = 0;
  for (const auto& action : metrics.actions) {
    if (!action.report.auc.value) continue;
    sum += *action.report.auc.value;
    ++actions;
  }
  if (actions == 0) return;
  const double mean = sum / actions;
  auto [best, first] = run.best.try_emplace(metrics.split);
  if (first || mean > best->second.value) best->second = {run.counters.step, "mean_auc", mean};
}

checkpoint::Content to_content(const RunState& run, ModelState& weights,
                               const model::ParameterLayout& layout) {
  checkpoint::Content content;
  content.step = run.counters.step;
  for (const auto& spec : layout.specs()) {
    content.model.push_back(view(spec.name, spec.shape, slice(weights.dense(), spec)));
    content.optimizer.push_back(
        view("adam.m." + spec.name, spec.shape, slice(weights.adam_m(), spec)));
    content.optimizer.push_back(
        view("adam.v." + spec.name, spec.shape, slice(weights.adam_v(), spec)));
  }
  content.tables.push_back(
      view("table.rows", {weights.table_rows, weights.table_width}, weights.table()));
  content.tables.push_back(view("table.adagrad", {weights.table_rows}, weights.table_acc()));

  auto& s = content.state;
  s = to_json(run.provenance);
  s["format_version"] = kFormatVersion;
  s["step"] = run.counters.step;
  s["examples"] = run.counters.examples;
  s["tokens"] = run.counters.tokens;
  s["skipped_steps"] = run.counters.skipped_steps;
  s["bad_in_a_row"] = run.counters.bad_in_a_row;
  s["adam_steps"] = weights.adam_steps;
  s["position"] = to_json(run.position);
  s["cuts"] = to_json(run.cuts);
  auto& best = s["best"] = nlohmann::json::object();
  for (const auto& [split, b] : run.best) {
    best[split] = {{"step", b.step}, {"metric", b.metric}, {"value", b.value}};
  }
  auto& config = s["config"] = nlohmann::json::array();
  for (const auto& [key, value] : run.config) config.push_back({key, value});
  if (!run.algorithms.by_key.empty()) {
    s["products"] = {{"device", run.algorithms.device}, {"algorithms", run.algorithms.by_key}};
  }
  return content;
}

Result<RunState> state_from_json(const nlohmann::json& s) {
  RunState run;
  try {
    const auto version = count_of(s, "format_version");
    if (version < 1 || version > kFormatVersion) {
      return Error(
          Code::kUnavailable,
          fmt::format("the state has format version {}; this program reads versions 1 to {}",
                      version, kFormatVersion));
    }
    if (version >= 2) read_version_2(s, run);
    run.counters.step = count_of(s, "step");
    run.counters.examples = count_of(s, "examples");
    run.counters.tokens = count_of(s, "tokens");
    run.counters.skipped_steps = count_of(s, "skipped_steps");
    run.counters.bad_in_a_row = count_of(s, "bad_in_a_row");
    run.position = position_from_json(s.at("position"));
    for (const auto& pair : s.at("config")) {
      run.config.emplace_back(pair.at(0).get<std::string>(), pair.at(1).get<std::string>());
    }
  } catch (const std::exception& e) {
    return Error(Code::kCorruptData,
                 fmt::format("state.json does not hold a run's state: {}", e.what()));
  }
  return run;
}

Result<void> weights_from_loaded(const checkpoint::Loaded& loaded,
                                 const model::ParameterLayout& layout, ModelState& weights) {
  for (const auto& spec : layout.specs()) {
    PL_TRY_VOID(
        take(loaded.model, spec.name, spec.shape, slice(weights.dense(), spec), loaded.path));
  }
  return take(loaded.tables, "table.rows", {weights.table_rows, weights.table_width},
              weights.table(), loaded.path);
}

StateReceiver::StateReceiver(const model::ParameterLayout& layout, ModelState& weights, Check check)
    : weights_(weights), check_(std::move(check)) {
  using checkpoint::Part;
  for (const auto& spec : layout.specs()) {
    add(Part::kModel, spec.name, spec.shape, slice(weights.dense(), spec));
    add(Part::kOptimizer, "adam.m." + spec.name, spec.shape, slice(weights.adam_m(), spec));
    add(Part::kOptimizer, "adam.v." + spec.name, spec.shape, slice(weights.adam_v(), spec));
  }
  add(Part::kTables, "table.rows", {weights.table_rows, weights.table_width}, weights.table());
  add(Part::kTables, "table.adagrad", {weights.table_rows}, weights.table_acc());
}

void StateReceiver::add(checkpoint::Part part, std::string name, std::vector<std::int64_t> shape,
                        std::span<float> memory) {
  places_.emplace(std::move(name), Place{part, std::move(shape), memory});
}

Result<void> StateReceiver::state(const nlohmann::json& state, const std::filesystem::path& from) {
  // The checkpoint before may have been given up half-way.
  for (auto& [name, place] : places_) place.received = false;
  auto run = state_from_json(state);
  if (!run) return Error(std::move(run.error())).context(from.string());
  run_ = std::move(*run);
  try {
    weights_.adam_steps = count_of(state, "adam_steps");
  } catch (const std::exception& e) {
    return Error(Code::kCorruptData, fmt::format("{}: {}", from.string(), e.what()));
  }
  return check_ ? check_(run_) : Result<void>();
}

Result<std::optional<std::span<std::byte>>> StateReceiver::tensor(
    checkpoint::Part part, const checkpoint::TensorInfo& tensor,
    const std::filesystem::path& from) {
  const auto it = places_.find(tensor.name);
  if (it == places_.end() || it->second.part != part) return std::optional<std::span<std::byte>>();
  Place& place = it->second;
  if (tensor.dtype != Dtype::kF32 || tensor.shape != place.shape) {
    return Error(Code::kInvalidArgument,
                 fmt::format("{}: tensor {} is {} [{}], this model needs float32 [{}]",
                             from.string(), tensor.name, name_of(tensor.dtype),
                             fmt::join(tensor.shape, ", "), fmt::join(place.shape, ", ")));
  }
  place.received = true;
  return std::optional(std::as_writable_bytes(place.memory));
}

Result<RunState> StateReceiver::take(const std::filesystem::path& checkpoint) {
  for (const auto& [name, place] : places_) {
    if (!place.received) {
      return Error(Code::kCorruptData,
                   fmt::format("{}: tensor {} is missing", checkpoint.string(), name));
    }
  }
  return std::move(run_);
}

}  // namespace paceline::train
