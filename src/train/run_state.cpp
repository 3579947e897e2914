#include "train/run_state.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace paceline::train {
namespace {

using checkpoint::Dtype;
using checkpoint::Tensor;
using checkpoint::TensorView;

constexpr int kFormatVersion = 1;

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
          {"skipped_blocks", p.skipped_blocks}};
}

data::Position position_from_json(const nlohmann::json& j) {
  data::Position p;
  p.fingerprint = std::stoull(j.at("fingerprint").get<std::string>(), nullptr, 16);
  p.seed = std::stoull(j.at("seed").get<std::string>());
  j.at("shuffle_window").get_to(p.shuffle_window);
  j.at("epoch").get_to(p.epoch);
  j.at("next_row").get_to(p.next_row);
  j.at("rows").get_to(p.rows);
  j.at("batches").get_to(p.batches);
  p.skipped_rows = j.value("skipped_rows", std::int64_t{0});
  p.skipped_blocks = j.value("skipped_blocks", std::int64_t{0});
  return p;
}

}  // namespace

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
  s["format_version"] = kFormatVersion;
  s["step"] = run.counters.step;
  s["examples"] = run.counters.examples;
  s["tokens"] = run.counters.tokens;
  s["skipped_steps"] = run.counters.skipped_steps;
  s["bad_in_a_row"] = run.counters.bad_in_a_row;
  s["adam_steps"] = weights.adam_steps;
  s["position"] = to_json(run.position);
  auto& config = s["config"] = nlohmann::json::array();
  for (const auto& [key, value] : run.config) config.push_back({key, value});
  return content;
}

Result<RunState> state_from_json(const nlohmann::json& s) {
  RunState run;
  try {
    if (const int version = s.at("format_version").get<int>(); version != kFormatVersion) {
      return Error(
          Code::kCorruptData,
          fmt::format("the checkpoint has format version {}; this program reads version {}",
                      version, kFormatVersion));
    }
    s.at("step").get_to(run.counters.step);
    s.at("examples").get_to(run.counters.examples);
    s.at("tokens").get_to(run.counters.tokens);
    s.at("skipped_steps").get_to(run.counters.skipped_steps);
    s.at("bad_in_a_row").get_to(run.counters.bad_in_a_row);
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

Result<RunState> from_loaded(const checkpoint::Loaded& loaded, const model::ParameterLayout& layout,
                             ModelState& weights) {
  PL_TRY(RunState run, state_from_json(loaded.state));
  PL_TRY_VOID(weights_from_loaded(loaded, layout, weights));
  for (const auto& spec : layout.specs()) {
    PL_TRY_VOID(take(loaded.optimizer, "adam.m." + spec.name, spec.shape,
                     slice(weights.adam_m(), spec), loaded.path));
    PL_TRY_VOID(take(loaded.optimizer, "adam.v." + spec.name, spec.shape,
                     slice(weights.adam_v(), spec), loaded.path));
  }
  PL_TRY_VOID(
      take(loaded.tables, "table.adagrad", {weights.table_rows}, weights.table_acc(), loaded.path));
  const auto adam_steps = loaded.state.find("adam_steps");
  if (adam_steps == loaded.state.end() || !adam_steps->is_number_integer()) {
    return Error(Code::kCorruptData,
                 fmt::format("{}: state.json has no adam_steps", loaded.path.string()));
  }
  weights.adam_steps = adam_steps->get<std::int64_t>();
  return run;
}

}  // namespace paceline::train
