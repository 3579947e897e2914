// `paceline bench step`: what a training step costs, and where its time goes.
#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <string_view>

#include "commands.hpp"
#include "core/bytes.hpp"
#include "train/loaded_run.hpp"
#include "train/step_bench.hpp"

namespace paceline::app {
namespace {

struct Size {
  const char* name;
  int width, layers, query_heads, key_heads, ffn, table_width, examples;
  std::int64_t users, items, authors;  // table rows
};
constexpr Size kSizes[] = {
    {"nano", 512, 4, 4, 2, 1024, 128, 64, 40'128, 150'000, 50'000},
    {"small", 1024, 8, 8, 2, 2048, 256, 64, 400'000, 3'000'000, 600'000},
    {"prod", 2560, 8, 20, 4, 5120, 1024, 32, 400'000, 3'000'000, 600'000},
};

// 1022 events and 128 candidates behind two prefix tokens; ids hashed twice; 64 actions.
std::string config_text(const Size& s) {
  std::string text = fmt::format(
      "[run]\ndir = \"unused\"\n"
      "[batch]\nexamples = {}\nhistory_len = 1022\ncandidates = 128\n"
      "[model]\nwidth = {}\nlayers = {}\nquery_heads = {}\nkey_heads = {}\nhead_dim = 128\n"
      "ffn = {}\ntable_width = {}\n",
      s.examples, s.width, s.layers, s.query_heads, s.key_heads, s.ffn, s.table_width);
  const auto feature = [&](const char* name, const char* scope, const std::string& rest) {
    text += fmt::format("[[features]]\nname = \"{}\"\nscope = \"{}\"\n{}", name, scope, rest);
  };
  const auto event = [](const char* name) {
    return fmt::format("history_column = \"h_{0}\"\ncandidate_column = \"c_{0}\"\n", name);
  };
  const auto id = [](std::int64_t rows) {
    return fmt::format("kind = \"id\"\nrows = {}\nhashes = 2\n", rows);
  };
  const auto category = [](int rows) {
    return fmt::format("kind = \"category\"\nrows = {}\n", rows);
  };
  feature("user", "user", "column = \"user_id\"\n" + id(s.users));
  feature("country", "user", "token = \"profile\"\ncolumn = \"country\"\n" + category(31));
  feature("item", "event", event("item") + id(s.items));
  feature("author", "event", event("author") + id(s.authors));
  feature("surface", "event", event("surface") + category(16));
  feature("age", "event", event("age") + category(82));
  feature("actions", "history", "kind = \"multi_hot\"\ncolumn = \"h_actions\"\nsize = 64\n");
  feature("dwell", "history", "kind = \"number\"\ncolumn = \"h_dwell\"\n");
  for (int a = 0; a < 64; ++a) {
    text += fmt::format("[[actions]]\nname = \"action_{0}\"\nbit = {0}\n", a);
  }
  return text;
}

struct Arguments {
  std::string target, size;
  std::vector<std::string> overrides;
  train::StepBenchOptions options;
  bool json = false;
};

Result<train::TrainConfig> config_of(const Arguments& args) {
  if (!args.target.empty()) return train::read_config(args.target, args.overrides);
  for (const Size& size : kSizes) {
    if (args.size != size.name) continue;
    PL_TRY(auto config, Config::parse(config_text(size), args.size + " (built in)"));
    for (const auto& assignment : args.overrides) PL_TRY_VOID(config.override_with(assignment));
    return train::TrainConfig::from_config(config);
  }
  return Error(Code::kInvalidArgument, "bench step needs a config, or --size nano, small or prod");
}

bool is_attention(const device::KernelTime& kernel) {
  return std::string_view(kernel.name).find("attention") != std::string_view::npos;
}

struct Shares {
  double kernels_ms = 0.0, attention_ms = 0.0;
};
Shares shares_of(const train::StepBench& b) {
  Shares s;
  for (const auto& kernel : b.kernels) {
    s.kernels_ms += kernel.ms;
    if (is_attention(kernel)) s.attention_ms += kernel.ms;
  }
  return s;
}

double per_second(std::int64_t count, double ms) { return static_cast<double>(count) / ms * 1e3; }

void show(const train::StepBench& b) {
  const std::string how =
      fmt::format("{}{}", b.bf16 ? "bf16" : "fp32", b.graph ? ", one graph a step" : "");
  fmt::print("{}, {}; {} examples, {} tokens, {} candidates a batch\n", b.device, how, b.examples,
             b.tokens, b.candidates);
  fmt::print("step  {:.3f} ms ({:.3f} to {:.3f}), {:.0f} examples/s, {:.1f} useful TFLOP/s\n", b.ms,
             b.fastest_ms, b.slowest_ms, per_second(b.examples, b.ms), b.flop / b.ms * 1e-9);
  fmt::print("memory  host {}, device {}\n", bytes_text(static_cast<std::int64_t>(b.host_bytes)),
             bytes_text(static_cast<std::int64_t>(b.device_bytes)));
  fmt::print("loss of the first batch  {:.6f} at first, {:.6f} at last\n", b.first_loss,
             b.last_loss);
  if (b.kernels.empty()) return;
  const Shares s = shares_of(b);
  fmt::print("\n{:<36} {:>8} {:>10} {:>7}\n", "kernels of one step", "launches", "ms", "share");
  for (const auto& kernel : b.kernels) {
    fmt::print("{:<36} {:>8} {:>10.4f} {:>6.1f}%\n", kernel.name, kernel.launches, kernel.ms,
               100.0 * kernel.ms / s.kernels_ms);
  }
  fmt::print("{:<36} {:>8} {:>10.4f}\n", "all", "", s.kernels_ms);
  fmt::print("step without attention  {:.3f} ms\n", b.ms - s.attention_ms);
}

void show_json(const train::StepBench& b) {
  const Shares s = shares_of(b);
  nlohmann::json all = {{"device", b.device},
                        {"precision", b.bf16 ? "bf16" : "fp32"},
                        {"graph", b.graph},
                        {"examples", b.examples},
                        {"tokens", b.tokens},
                        {"candidates", b.candidates},
                        {"ms", b.ms},
                        {"fastest_ms", b.fastest_ms},
                        {"slowest_ms", b.slowest_ms},
                        {"examples_per_s", per_second(b.examples, b.ms)},
                        {"useful_tflops", b.flop / b.ms * 1e-9},
                        {"host_bytes", b.host_bytes},
                        {"device_bytes", b.device_bytes},
                        {"first_loss", b.first_loss},
                        {"last_loss", b.last_loss},
                        {"kernels", nlohmann::json::array()}};
  for (const auto& kernel : b.kernels) {
    all["kernels"].push_back(
        {{"name", kernel.name}, {"launches", kernel.launches}, {"ms", kernel.ms}});
  }
  if (!b.kernels.empty()) {
    all["kernels_ms"] = s.kernels_ms;
    all["ms_without_attention"] = b.ms - s.attention_ms;
  }
  fmt::print("{}\n", all.dump());
}

Result<int> bench_step(const Arguments& args) {
  PL_TRY(const auto config, config_of(args));
  PL_TRY(const auto bench, train::bench_step(config, args.options));
  if (args.json) {
    show_json(bench);
  } else {
    show(bench);
  }
  return 0;
}

}  // namespace

void add_bench_step(CLI::App& bench, Command& chosen) {
  auto args = std::make_shared<Arguments>();
  auto* step = bench.add_subcommand(
      "step",
      "A training step on batches of full length: time, rates, memory, each kernel's share");
  auto* target = step->add_option("CONFIG", args->target, "a config file or run directory");
  step->add_option("--size", args->size, "a model of known size in place of a config")
      ->check(CLI::IsMember({"nano", "small", "prod"}))
      ->excludes(target);
  add_overrides(*step, args->overrides);
  add_device(*step, args->overrides);
  const auto number = [&](const char* name, int& value, const char* what, int least, int most) {
    step->add_option(name, value, what)->capture_default_str()->check(CLI::Range(least, most));
  };
  number("--steps", args->options.steps, "timed steps; the median of rounds of five counts", 1,
         1'000'000);
  number("--warm-up", args->options.warm_up, "steps before", 1, 1'000'000);
  number("--batches", args->options.batches, "different batches, in turn", 1, 64);
  step->add_flag("--json", args->json, "one JSON object");
  step->footer(
      "Batches hold random values and are in memory already: reading and cutting are what `bench "
      "loader`\nmeasures. The kernels' times are those of one more step, launched one by one.");
  step->callback([args, &chosen] { chosen = [args] { return bench_step(*args); }; });
}

}  // namespace paceline::app
