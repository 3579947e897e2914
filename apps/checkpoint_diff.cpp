#include <fmt/format.h>

#include <cstdio>

#include "checkpoint_commands.hpp"
#include "train/checkpoint_tensors.hpp"

namespace paceline::app {
namespace {

using checkpoint::Difference;
using checkpoint::TensorDifference;
using checkpoint::TensorInfo;
using nlohmann::ordered_json;

std::string shape_text(const TensorInfo& t) {
  return fmt::format("{} [{}]", name_of(t.dtype), fmt::join(t.shape, ", "));
}

// Of an element, by the dimensions of its tensor.
std::vector<std::int64_t> index_of(std::int64_t element, const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> index(shape.size());
  for (std::size_t i = shape.size(); i-- > 0;) {
    index[i] = element % shape[i];
    element /= shape[i];
  }
  return index;
}

std::string values_text(const TensorDifference& d) {
  std::string text = fmt::format("{} of {} elements differ", d.differing, d.elements);
  if (d.differing > d.not_finite) {
    text += fmt::format(", by at most {:.6g} (relative {:.3g})", d.max_abs, d.max_rel);
  }
  if (d.not_finite > 0) text += fmt::format(", {} not finite", d.not_finite);
  return text + fmt::format("; at [{}]: {:.9g} and {:.9g}",
                            fmt::join(index_of(d.at, d.a->shape), ", "), d.value_a, d.value_b);
}

std::string difference_text(const TensorDifference& d) {
  switch (d.what) {
    case Difference::kOnlyInA:
      return "only in A: " + shape_text(*d.a);
    case Difference::kOnlyInB:
      return "only in B: " + shape_text(*d.b);
    case Difference::kShape:
      return fmt::format("{} in A, {} in B", shape_text(*d.a), shape_text(*d.b));
    case Difference::kValues:
      return values_text(d);
  }
  return {};
}

const char* word_of(Difference what) {
  switch (what) {
    case Difference::kOnlyInA:
      return "only_in_a";
    case Difference::kOnlyInB:
      return "only_in_b";
    case Difference::kShape:
      return "shape";
    case Difference::kValues:
      return "values";
  }
  return "";
}

ordered_json difference_json(const TensorDifference& d) {
  const auto side = [](const std::optional<TensorInfo>& t) {
    return t ? ordered_json{{"dtype", name_of(t->dtype)}, {"shape", t->shape}} : ordered_json();
  };
  ordered_json json{
      {"name", d.name}, {"what", word_of(d.what)}, {"a", side(d.a)}, {"b", side(d.b)}};
  if (d.what != Difference::kValues) return json;
  const bool finite = d.differing > d.not_finite;
  json["elements"] = d.elements;
  json["differing"] = d.differing;
  json["not_finite"] = d.not_finite;
  json["max_abs"] = finite ? ordered_json(d.max_abs) : ordered_json();
  json["max_rel"] = finite ? ordered_json(d.max_rel) : ordered_json();
  json["at"] = index_of(d.at, d.a->shape);
  json["value_a"] = d.value_a;  // null when not finite
  json["value_b"] = d.value_b;
  return json;
}

ordered_json side_json(const std::filesystem::path& path, std::optional<std::int64_t> step) {
  return {{"path", path.string()}, {"step", step ? ordered_json(*step) : ordered_json()}};
}

ordered_json all_json(const train::Comparison& c) {
  auto differences = ordered_json::array();
  for (const auto& d : c.differences) differences.push_back(difference_json(d));
  auto keys = ordered_json::array();
  for (const auto& k : c.keys) keys.push_back({{"key", k.key}, {"a", k.was}, {"b", k.is}});
  return {{"a", side_json(c.path_a, c.step_a)},    {"b", side_json(c.path_b, c.step_b)},
          {"equal", c.differences.empty()},        {"tensors", c.tensors},
          {"differences", std::move(differences)}, {"config", std::move(keys)}};
}

void print_text(const train::Comparison& c) {
  fmt::print("A: {}\nB: {}\n", c.path_a.string(), c.path_b.string());
  for (const auto& k : c.keys) fmt::print("config {}: {} in A, {} in B\n", k.key, k.was, k.is);
  for (const auto& d : c.differences) fmt::print("{}: {}\n", d.name, difference_text(d));
  if (c.differences.empty()) {
    fmt::print("{} tensors, all equal\n", c.tensors);
  } else {
    fmt::print("{} tensors, {} differ\n", c.tensors, c.differences.size());
  }
}

struct Arguments {
  std::string a, b;
  bool weights = false, json = false;
};

Result<int> print_difference(const Arguments& args) {
  const auto take = args.weights ? train::Take::kWeights : train::Take::kAll;
  PL_TRY(const auto comparison, train::compare(args.a, args.b, take));
  if (args.json) {
    print_json(all_json(comparison));
  } else {
    print_text(comparison);
  }
  return comparison.differences.empty() ? 0 : 1;
}

// Those of diff(1): an error must not read as "they differ".
constexpr int kTrouble = 2;

Result<int> diff(const Arguments& args) {
  const auto code = print_difference(args);
  if (!code) {
    std::fprintf(stderr, "paceline: %s\n", code.error().text().c_str());
    return kTrouble;
  }
  return std::fflush(stdout) == 0 ? *code : kTrouble;
}

}  // namespace

void add_checkpoint_diff(CLI::App& checkpoint, Command& chosen) {
  auto args = std::make_shared<Arguments>();
  auto* sub = checkpoint.add_subcommand("diff", "Tensors that differ between two, and by how much");
  sub->add_option("A", args->a, std::string(kCheckpointHelp) + ", or a .safetensors file")
      ->required();
  sub->add_option("B", args->b, "the same")->required();
  sub->add_flag("--weights", args->weights,
                "leave optimizer state out: parameters and table rows of checkpoints alone");
  sub->add_flag("--json", args->json, "print JSON");
  sub->footer(
      "Exit codes: 0 all tensors are equal, bit for bit; 1 some differ; 2 they could not be\n"
      "compared, or usage. Keys of the config that differ are told and do not count. Relative\n"
      "differences are of the larger of both values. Both are held in memory.");
  sub->callback([args, &chosen] { chosen = [args] { return diff(*args); }; });
}

}  // namespace paceline::app
