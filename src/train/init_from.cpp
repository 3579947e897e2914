#include "train/init_from.hpp"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/checkpoint.hpp"
#include "core/config.hpp"
#include "core/log.hpp"
#include "telemetry/progress.hpp"
#include "train/loaded_run.hpp"
#include "train/run_state.hpp"

namespace paceline::train {
namespace fs = std::filesystem;
namespace {

using checkpoint::Part;
using checkpoint::TensorInfo;
using Values = std::vector<std::pair<std::string, std::string>>;  // key, value as TOML
using Memory = std::optional<std::span<std::byte>>;

constexpr std::string_view kTableRows = "table.rows";
constexpr std::string_view kManifest = "MANIFEST.json";

// Features as the config lists them; of the ids alone what decides about their rows too.
std::vector<std::string> features_of(const Values& values, bool ids) {
  std::map<std::string, std::string> all(values.begin(), values.end());
  std::vector<std::string> features;
  for (int i = 0;; ++i) {
    const auto value = [&](const char* key) { return all[fmt::format("features[{}].{}", i, key)]; };
    const std::string name = value("name"), kind = value("kind");
    if (name.empty()) return features;
    if (!ids) {
      features.push_back(name + " " + kind);
    } else if (kind == "\"id\"") {
      features.push_back(
          fmt::format("{} with {} rows, {} hashes", name, value("rows"), value("hashes")));
    }
  }
}

// Puts tensors where this model has them and keeps account.
class WeightsReceiver : public checkpoint::Receiver {
 public:
  WeightsReceiver(const TrainConfig& config, const model::ParameterLayout& layout,
                  ModelState& weights)
      : config_(config) {
    for (const auto& spec : layout.specs()) {
      const auto part = weights.dense().subspan(static_cast<std::size_t>(spec.offset),
                                                static_cast<std::size_t>(spec.count));
      places_[spec.name] = {spec.shape, part};
    }
    places_[std::string(kTableRows)] = {{weights.table_rows, weights.table_width}, weights.table()};
  }

  Result<void> state(const nlohmann::json& state, const fs::path& from) override {
    auto run = state_from_json(state);
    if (!run) return Error(std::move(run.error())).context(from.string());
    begin(std::move(run->config));
    ancestor.run = run->provenance.run_id;
    ancestor.step = run->counters.step;
    return {};
  }

  Result<Memory> tensor(Part part, const TensorInfo& info, const fs::path& from) override {
    // Optimizer state, rows' included.
    if (part == Part::kOptimizer || (part == Part::kTables && info.name != kTableRows)) {
      return Memory();
    }
    return place(info, from);
  }

  void begin(Values source) {
    source_ = std::move(source);
    taken.clear();
    left.clear();
    const auto was = features_of(source_, false), is = features_of(config_.values, false);
    if (was != is) {
      log::warning(fmt::format(
          "train.init_from has other features ({}) than this config ({}): what a column or row "
          "meant there it means here",
          fmt::join(was, ", "), fmt::join(is, ", ")));
    }
  }

  Result<Memory> place(const TensorInfo& info, const fs::path& from) {
    const auto& except = config_.loop.init_except;
    if (std::any_of(except.begin(), except.end(), [&](const std::string& pattern) {
          return ::fnmatch(pattern.c_str(), info.name.c_str(), 0) == 0;
        })) {
      left.push_back(info.name + " (train.init_except)");
      return Memory();
    }
    const auto it = places_.find(info.name);
    if (it == places_.end()) {
      left.push_back(info.name + " (not in this model)");
      return Memory();
    }
    if (info.dtype != checkpoint::Dtype::kF32 || info.shape != it->second.shape) {
      return Error(
          Code::kInvalidArgument,
          fmt::format("train.init_from: {}: tensor {} is {} [{}], this model needs F32 [{}]; give "
                      "the model its sizes, or add \"{}\" to train.init_except",
                      from.string(), info.name, checkpoint::name_of(info.dtype),
                      fmt::join(info.shape, ", "), fmt::join(it->second.shape, ", "), info.name));
    }
    if (info.name == kTableRows) PL_TRY_VOID(check_table(from));
    taken.push_back(info.name);
    return Memory(std::as_writable_bytes(it->second.memory));
  }

  std::vector<std::string> missing() const {
    std::vector<std::string> names;
    for (const auto& [name, place] : places_) {
      if (std::find(taken.begin(), taken.end(), name) == taken.end()) names.push_back(name);
    }
    return names;
  }

  Ancestor ancestor{.run = "", .path = "", .step = 0, .why = "init_from"};
  std::vector<std::string> taken, left;

 private:
  struct Place {
    std::vector<std::int64_t> shape;
    std::span<float> memory;
  };

  // Rows of other ids would be taken without a word: the table is one for all id features.
  Result<void> check_table(const fs::path& from) const {
    const auto was = features_of(source_, true), is = features_of(config_.values, true);
    if (was == is) return {};
    return Error(
        Code::kInvalidArgument,
        fmt::format("train.init_from: {}: tensor {} holds the rows of {}, this config has {}; set "
                    "the features back, or add \"{}\" to train.init_except",
                    from.string(), kTableRows, fmt::join(was, "; "), fmt::join(is, "; "),
                    kTableRows));
  }

  const TrainConfig& config_;
  Values source_;
  std::map<std::string, Place> places_;
};

// The newest that is whole. The run may be another person's, or be training now: nothing is set
// aside in it.
Result<void> read_run(const fs::path& run, WeightsReceiver& receiver) {
  PL_TRY(const auto config, read_config(run, {}));
  PL_TRY(auto infos, checkpoint::list(config.checkpoint.dir, false));
  for (; !infos.empty(); infos.pop_back()) {
    const auto& info = infos.back();
    std::string why = info.why;
    if (info.complete) {
      auto restored = checkpoint::restore(info.path, receiver);
      if (restored) {
        receiver.ancestor.path = restored->path.string();
        return {};
      }
      const auto code = restored.error().code();
      if (code != Code::kCorruptData && code != Code::kNotFound) {
        return Error(std::move(restored.error()));
      }
      why = restored.error().text();
    }
    log::warning(fmt::format("train.init_from: {} was passed over: {}", info.path.string(), why));
  }
  return Error(Code::kNotFound,
               fmt::format("train.init_from: {} holds no whole checkpoint", config.checkpoint.dir));
}

// Found in the metadata of an exported file, or empty.
std::string metadata_of(const checkpoint::Metadata& metadata, const char* key) {
  const auto it = metadata.find(key);
  return it == metadata.end() ? "" : it->second;
}

Result<void> read_exported(const fs::path& file, WeightsReceiver& receiver) {
  PL_TRY(const auto header, checkpoint::read_safetensors_header(file));
  const auto& m = header.metadata;
  if (metadata_of(m, "format") != "paceline-export") {
    return Error(Code::kInvalidArgument,
                 fmt::format("train.init_from: {} was not written by `paceline checkpoint export`: "
                             "its metadata has no format \"paceline-export\"",
                             file.string()));
  }
  auto config = Config::parse(metadata_of(m, "config"), file.string(), file.parent_path());
  if (!config) return Error(std::move(config.error())).context("reading its config");
  auto source = TrainConfig::from_config(*config);
  if (!source) return Error(std::move(source.error())).context("reading its config");
  receiver.begin(std::move(source->values));
  receiver.ancestor.run = metadata_of(m, "run");
  receiver.ancestor.path = file.string();
  const std::string step = metadata_of(m, "step");
  std::from_chars(step.data(), step.data() + step.size(), receiver.ancestor.step);
  // Shapes first: what does not fit is refused before anything is read.
  std::map<std::string, std::span<std::byte>> places;
  for (const auto& info : header.tensors) {
    PL_TRY(const auto memory, receiver.place(info, file));
    if (memory) places[info.name] = *memory;
  }
  PL_TRY(const auto tensors, checkpoint::read_safetensors(file));
  for (const auto& tensor : tensors) {
    const auto it = places.find(tensor.name);
    if (it == places.end() || it->second.empty()) continue;
    if (it->second.size() != tensor.bytes.size_bytes()) {
      return Error(Code::kCorruptData, file.string() + " changed while it was read");
    }
    std::memcpy(it->second.data(), tensor.bytes.data(), tensor.bytes.size_bytes());
  }
  return {};
}

Result<void> read_source(const fs::path& source, WeightsReceiver& receiver) {
  std::error_code none;
  if (fs::is_regular_file(source, none)) return read_exported(source, receiver);
  if (fs::exists(source / kManifest, none)) {
    receiver.ancestor.path = source.string();
    PL_TRY(const auto restored, checkpoint::restore(source, receiver));
    receiver.ancestor.path = restored.path.string();
    return {};
  }
  if (fs::exists(source / "config.toml", none)) return read_run(source, receiver);
  return Error(
      fs::exists(source, none) ? Code::kInvalidArgument : Code::kNotFound,
      fmt::format("train.init_from: {} {}; allowed: a run directory, a checkpoint, or a "
                  "file of `paceline checkpoint export`",
                  source.string(), fs::exists(source, none) ? "is none of these" : "is not there"));
}

void print_list(telemetry::Progress& progress, const char* what,
                const std::vector<std::string>& names) {
  if (names.empty()) return;
  progress.line(fmt::format("  {} {}: {}", names.size(), what, fmt::join(names, ", ")));
}

}  // namespace

Result<Ancestor> take_weights(const TrainConfig& config, const model::ParameterLayout& layout,
                              ModelState& weights, telemetry::Progress& progress) {
  WeightsReceiver receiver(config, layout, weights);
  PL_TRY_VOID(read_source(config.loop.init_from, receiver));
  const auto missing = receiver.missing();
  const auto& from = receiver.ancestor;
  progress.line(fmt::format("weights of {} (step {})", from.path, from.step));
  print_list(progress, "taken", receiver.taken);
  print_list(progress, "left", receiver.left);
  print_list(progress, "missing there, with initial values", missing);
  log::info(fmt::format("weights of {}: {} tensors taken, {} left, {} missing", from.path,
                        receiver.taken.size(), receiver.left.size(), missing.size()));
  if (receiver.taken.empty()) {
    return Error(Code::kInvalidArgument,
                 fmt::format("train.init_from: nothing of {} goes into this model", from.path));
  }
  return from;
}

}  // namespace paceline::train
