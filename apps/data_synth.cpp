#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdio>

#include "core/clock.hpp"
#include "data/synth/synth.hpp"
#include "data_commands.hpp"
#include "telemetry/progress.hpp"

namespace paceline::app {
namespace {

struct Arguments {
  std::string out, history, candidates, split;
  std::vector<std::string> rates;
  double rates_scale = 1.0;
  data::synth::Options options;
};

Result<void> resolve(Arguments& a) {
  auto& o = a.options;
  if (!a.history.empty()) {
    PL_TRY(o.history, data::synth::parse_lengths("--history", a.history));
  }
  if (!a.candidates.empty()) {
    PL_TRY(const auto ranges, data::synth::parse_lengths("--candidates", a.candidates));
    if (ranges.size() != 1 || ranges[0].share != 1.0) {
      return Error(Code::kInvalidArgument,
                   fmt::format("--candidates: found {}, allowed: MIN-MAX", a.candidates));
    }
    o.candidates = ranges[0];
  }
  if (!a.split.empty()) PL_TRY_VOID(data::synth::parse_split(a.split, o));
  for (const auto& rate : a.rates) PL_TRY_VOID(data::synth::parse_rate(rate, o));
  for (auto& rate : o.rates) rate *= a.rates_scale;
  return data::synth::check(o);
}

Result<int> synth(Arguments a) {
  PL_TRY_VOID(resolve(a));
  std::atomic<bool> stop{false};
  const StopOnSignal on_signal([&] { stop = true; });
  const auto start = Clock::now();
  const std::int64_t all = std::max<std::int64_t>(a.options.rows, 1);
  telemetry::Progress progress(stdout, telemetry::is_terminal(stdout));
  auto counts = data::synth::synthesize(a.out, a.options, [&](std::int64_t rows) {
    const double seconds = std::max(seconds_since(start), 1e-9);
    const double speed = static_cast<double>(rows) / seconds;
    progress.update(fmt::format("{} of {} rows  {:.0f} %  {:.0f} rows/s  ETA {}", rows, all,
                                100.0 * static_cast<double>(rows) / static_cast<double>(all), speed,
                                telemetry::duration_text(static_cast<double>(all - rows) / speed)));
    return !stop;
  });
  progress.finish();
  if (!counts && counts.error().code() == Code::kCancelled) return kExitStopped;
  if (!counts) return Error(std::move(counts.error()));
  const double seconds = std::max(seconds_since(start), 1e-9);
  fmt::print(
      "{}: {} rows, {} history events, {} candidates in {} files, {:.1f} MiB, {:.1f} s, "
      "{:.0f} rows/s\n",
      a.out, counts->rows, counts->history_events, counts->candidates, counts->files,
      static_cast<double>(counts->bytes) / 1048576.0, seconds,
      static_cast<double>(counts->rows) / seconds);
  return 0;
}

// For whole numbers without a sign, of which a negative one would wrap around.
std::string not_negative(const std::string& text) {
  return text.starts_with('-') ? fmt::format("found {}, allowed: 0 or more", text) : std::string();
}

std::string not_empty(const std::string& text) {
  return text.empty() ? "found nothing; leave the option out for its default" : std::string();
}

}  // namespace

void add_data_synth(CLI::App& data, Command& chosen) {
  auto args = std::make_shared<Arguments>();
  auto& o = args->options;
  auto* command = data.add_subcommand(
      "synth", "Draw impressions of a synthetic world whose true probabilities are known");
  command->add_option("OUT", args->out, "folder for train/, valid/ and test/: new or empty")
      ->required();
  command->add_option("--rows", o.rows, "impressions in all")->capture_default_str();
  command->add_option("--seed", o.seed, "of the world and the rows")
      ->capture_default_str()
      ->check(not_negative);
  command->add_option("--users", o.users, "users")->capture_default_str();
  command->add_option("--authors", o.authors, "authors")->capture_default_str();
  command->add_option("--items", o.items, "posts")->capture_default_str();
  command->add_option("--topics", o.topics, "topics, 2 to 63")->capture_default_str();
  command
      ->add_option("--history", args->history,
                   "events before a row, MIN-MAX[:SHARE],...; default "
                   "26-125:0.3,126-509:0.5,510-1022:0.2")
      ->type_name("LENGTHS")
      ->check(not_empty);
  command->add_option("--candidates", args->candidates, "candidates of a row; default 8-64")
      ->type_name("MIN-MAX")
      ->check(not_empty);
  command
      ->add_option("--rate", args->rates, "base rate of an action, e.g. fav=0.14; may be repeated")
      ->type_name("ACTION=RATE")
      ->allow_extra_args(false)
      ->take_all();
  command->add_option("--rates-scale", args->rates_scale, "multiplies every base rate")
      ->capture_default_str();
  command
      ->add_option("--split", args->split,
                   "shares of train,valid,test in order of time, default 0.8,0.1,0.1; none: all "
                   "files in OUT")
      ->type_name("SHARES|none")
      ->check(not_empty);
  command->add_option("--rows-per-file", o.rows_per_file, "rows of a file")->capture_default_str();
  command->add_option("--row-group-rows", o.row_group_rows, "rows of a row group")
      ->capture_default_str();
  command->add_option("--compression", o.compression, "zstd, snappy, lz4, gzip or none")
      ->capture_default_str();
  command->add_option("--threads", o.threads, "0: one per core; one file is written by one thread")
      ->capture_default_str();
  command->add_flag("--overwrite", o.overwrite,
                    "replace what data synth wrote to OUT before, once the new data are complete");
  command->footer(
      "The same options give the same bytes at any number of threads; more --rows extend the data. "
      "Nothing\nappears in OUT before all is complete. docs/synth.md describes world and columns.");
  command->callback([args, &chosen] { chosen = [args] { return synth(*args); }; });
}

}  // namespace paceline::app
