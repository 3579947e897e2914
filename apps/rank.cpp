#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstdio>

#include "commands.hpp"
#include "core/clock.hpp"
#include "train/ranking.hpp"

namespace paceline::app {
namespace {

// "like=1,love=0.5"
Result<std::vector<std::pair<std::string, double>>> parse_weights(const std::string& text) {
  std::vector<std::pair<std::string, double>> weights;
  std::size_t start = 0;
  while (start < text.size()) {
    const std::size_t end = std::min(text.find(',', start), text.size());
    const std::string item = text.substr(start, end - start);
    const std::size_t equals = item.find('=');
    double value = 0.0;
    const char* last = item.data() + item.size();
    const auto parsed = equals == std::string::npos
                            ? std::from_chars_result{item.data(), std::errc::invalid_argument}
                            : std::from_chars(item.data() + equals + 1, last, value);
    if (parsed.ec != std::errc{} || parsed.ptr != last || equals == 0 || !std::isfinite(value)) {
      return Error(
          Code::kInvalidArgument,
          fmt::format("--weights: found \"{}\", allowed: action=number[,action=number]...", item));
    }
    const std::string action = item.substr(0, equals);
    for (const auto& other : weights) {
      if (other.first == action) {
        return Error(Code::kInvalidArgument, fmt::format("--weights: {} is given twice", action));
      }
    }
    weights.emplace_back(action, value);
    start = end + 1;
  }
  return weights;
}

}  // namespace

void add_rank(CLI::App& app, Command& chosen) {
  struct Arguments {
    std::string run, output, weights;
    std::vector<std::string> inputs, overrides;
  };
  auto args = std::make_shared<Arguments>();
  auto* command =
      app.add_subcommand("rank", "Score every candidate of a Parquet file, in input order");
  command->add_option("RUN", args->run, "run directory, or its config file")->required();
  command
      ->add_option("INPUT", args->inputs, "Parquet file, folder or glob; needs no action columns")
      ->required();
  command->add_option("-o,--output", args->output, "Parquet file to write")->required();
  command->add_option(
      "--weights", args->weights,
      "action=number,...: weights of the column `score`; default: the config's `score` keys");
  add_overrides(*command, args->overrides);
  add_device(*command, args->overrides);
  command->footer(
      "Writes user, time and candidate ids as read, and a list column for each trained "
      "action\n(score_<action>, a probability), for each target (predicted_<target>), and the "
      "weighted sum (score).");
  command->callback([args, &chosen] {
    chosen = [args]() -> Result<int> {
      const auto start = Clock::now();
      train::RankOptions options;
      PL_TRY(options.weights, parse_weights(args->weights));
      PL_TRY(auto config, train::read_config(args->run, args->overrides));
      PL_TRY(const auto run, train::load_run(std::move(config)));
      train::StopRequest stop;
      const StopOnSignal on_signal([&] { stop.request(); });
      auto counts = train::rank_file(*run, args->inputs, args->output, options, stop);
      if (!counts && counts.error().code() == Code::kCancelled) return kExitStopped;
      if (!counts) return Error(std::move(counts.error()));
      const std::string cuts = features::cuts_text(counts->cuts);
      fmt::print("{}: {} rows, {} candidates scored with step {} in {:.2f} s{}{}\n", args->output,
                 counts->rows, counts->candidates, run->step, seconds_since(start),
                 cuts.empty() ? "" : "; ", cuts);
      if (!counts->weighted) {
        fmt::print(
            "no action has a score weight, so there is no column `score`: set `score` of an "
            "action, or --weights\n");
      }
      return 0;
    };
  });
}

}  // namespace paceline::app
