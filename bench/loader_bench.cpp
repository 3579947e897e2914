// Measures what the batch pipeline promises; bench/loader.py runs it and keeps the figures.
//
//   paceline_bench_loader start CONFIG DATA      first batch at 0 % and at 90 % of the rows, in
//   turns paceline_bench_loader position CONFIG DATA   cost of carrying the position, ns per batch
//   paceline_bench_loader flat CONFIG DATA       memory and threads over epochs and pipelines
//   paceline_bench_loader stalls                 exposed wait of a 20 ms step under a reader that
//                                                stalls, measured and simulated
//
// Prints JSON, one object a line; checks what was delivered and fails when it is wrong.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "core/config.hpp"
#include "data/batch_pipeline.hpp"
#include "data/testing/fake_source.hpp"

namespace paceline {
namespace {

using data::BatchPipeline;
using data::BatchPipelineOptions;
using data::FetchState;
using nlohmann::json;

void print(const json& object) {
  fmt::print("{}\n", object.dump());
  std::fflush(stdout);
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

struct Dataset {
  features::Schema schema;
  std::unique_ptr<data::Source> source;
  BatchPipelineOptions options;
};

Result<Dataset> open(const char* config_file, const char* path) {
  Dataset d;
  PL_TRY(auto config, Config::load(config_file));
  PL_TRY(d.schema, features::Schema::from_config(config));
  PL_TRY(d.options.limits, features::BatchLimits::from_config(config, d.schema));
  PL_TRY(d.options.shuffle_window, config.get_int("data.shuffle_window", 16));
  PL_TRY(d.source, data::open_parquet({path}, d.schema));
  return d;
}

Result<void> start(const char* config_file, const char* path) {
  const auto opening = Clock::now();
  PL_TRY(const Dataset d, open(config_file, path));
  const double open_s = seconds_since(opening);
  PL_TRY(const auto probe, BatchPipeline::create(*d.source, d.schema, d.options, {}));
  std::array<std::vector<double>, 2> seconds;
  for (int turn = 0; turn < 11; ++turn) {
    for (const int at : {0, 1}) {
      data::Position from = probe->offsets_to_commit();
      from.next_row = at == 0 ? 0 : d.source->rows() / 10 * 9;
      const auto begin = Clock::now();
      PL_TRY(const auto batches, BatchPipeline::create(*d.source, d.schema, d.options, from));
      PL_TRY(auto fetched, batches->next_batch());
      seconds[static_cast<std::size_t>(at)].push_back(seconds_since(begin));
      if (fetched.lease.position().next_row != from.next_row + fetched.lease.batch().examples()) {
        return Error(Code::kInternal, "the first batch is not that of its position");
      }
    }
  }
  print({{"rows", d.source->rows()},
         {"blocks", d.source->blocks().size()},
         {"open_s", open_s},
         {"first_batch_at_0_s", median(seconds[0])},
         {"first_batch_at_90_s", median(seconds[1])}});
  return {};
}

// What the loop does for the position at each batch: mark it, and read it back for a save.
Result<void> position(const char* config_file, const char* path) {
  PL_TRY(Dataset d, open(config_file, path));
  d.options.epochs = 1'000'000;
  PL_TRY(const auto batches, BatchPipeline::create(*d.source, d.schema, d.options, {}));
  std::vector<double> ns;
  std::int64_t rows = 0;
  for (int i = 0; i < 2000; ++i) {
    PL_TRY(auto fetched, batches->next_batch());
    rows += fetched.lease.batch().examples();
    const std::int64_t begin = now_ns();
    fetched.lease.mark_trained();
    const data::Position at = batches->offsets_to_commit();
    ns.push_back(static_cast<double>(now_ns() - begin));
    if (at.rows != rows) return Error(Code::kInternal, "the position is not that of the rows");
  }
  print({{"batches", ns.size()}, {"ns_per_batch", median(ns)}});
  return {};
}

struct Usage {
  std::int64_t resident_kib = 0;
  std::int64_t threads = 0;
};

Usage usage() {
  Usage u;
  std::ifstream statm("/proc/self/statm");
  std::int64_t size = 0;
  statm >> size >> u.resident_kib;
  u.resident_kib *= ::sysconf(_SC_PAGESIZE) / 1024;
  for ([[maybe_unused]] const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    ++u.threads;
  }
  return u;
}

json usage_json(const char* when, int number) {
  const Usage u = usage();
  return {{"after", when},
          {"number", number},
          {"resident_kib", u.resident_kib},
          {"threads", u.threads}};
}

Result<void> flat(const char* config_file, const char* path) {
  PL_TRY(Dataset d, open(config_file, path));
  d.options.readers = 2;
  d.options.epochs = 4;
  {
    PL_TRY(const auto batches, BatchPipeline::create(*d.source, d.schema, d.options, {}));
    for (int epoch = 0;;) {
      PL_TRY(auto fetched, batches->next_batch());
      if (fetched.state != FetchState::kBatch) break;
      if (fetched.lease.last_of_epoch()) print(usage_json("epoch", ++epoch));
    }
  }
  for (int i = 1; i <= 100; ++i) {
    PL_TRY(const auto batches, BatchPipeline::create(*d.source, d.schema, d.options, {}));
    if (i % 2 == 0) PL_TRY_VOID(batches->next_batch());
    if (i == 10 || i == 100) print(usage_json("pipelines", i));
  }
  return {};
}

// Seconds that reading batch t takes: exponential with a mean of 5 ms, and a stall of 200 ms in one
// of fifty.
std::vector<double> read_times(std::size_t count) {
  std::mt19937_64 random(5);
  const auto uniform = [&] { return static_cast<double>(random() >> 11) * 0x1p-53; };
  std::vector<double> times(count);
  for (auto& t : times) {
    t = -0.005 * std::log(1.0 - uniform());
    if (uniform() < 0.02) t += 0.2;
  }
  return times;
}

// The same queue on paper. Reading batch t begins when the reader is done with t - 1 and a
// row-group slot is free, that of t - slots; the batch is cut when it is read and at most `depth`
// are ahead; it is handed out when it is cut and the step before is done. Returns the wait of all
// steps.
double simulate(const std::vector<double>& reads, std::size_t slots, std::size_t depth,
                double step) {
  std::vector<double> read(reads.size()), cut(reads.size()), handed(reads.size());
  double waited = 0.0;
  for (std::size_t t = 0; t < reads.size(); ++t) {
    const double reader = t > 0 ? read[t - 1] : 0.0;
    read[t] = std::max(reader, t >= slots ? cut[t - slots] : 0.0) + reads[t];
    cut[t] = std::max(read[t], t > 0 ? cut[t - 1] : 0.0);
    if (t >= depth) cut[t] = std::max(cut[t], handed[t - depth]);
    const double asked = t > 0 ? handed[t - 1] + step : 0.0;
    handed[t] = std::max(cut[t], asked);
    waited += handed[t] - asked;
  }
  return waited;
}

void sleep_for(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

Result<void> stalls() {
  constexpr std::size_t kBatches = 400;
  constexpr std::int64_t kExamples = 8;
  constexpr double kStep = 0.02;
  const auto reads = read_times(kBatches);
  const auto schema = data::testing::fake_schema();
  const data::testing::FakeSource source(std::vector<std::int64_t>(kBatches, kExamples),
                                         [&](std::int64_t block) -> Result<void> {
                                           sleep_for(reads[static_cast<std::size_t>(block)]);
                                           return {};
                                         });
  for (const int depth : {1, 2, 4, 8}) {
    BatchPipelineOptions o;
    o.limits = {.examples = kExamples, .tokens = 0, .history_len = 8, .candidates = 4};
    o.depth = depth;
    PL_TRY(const auto batches, BatchPipeline::create(source, schema, o, {}));
    double waited = 0.0;
    std::size_t count = 0;
    for (;; ++count) {
      const auto begin = Clock::now();
      PL_TRY(auto fetched, batches->next_batch());
      waited += seconds_since(begin);
      if (fetched.state != FetchState::kBatch) break;
      sleep_for(kStep);
    }
    if (count != kBatches) return Error(Code::kInternal, "another number of batches");
    const auto slots = static_cast<std::size_t>(batches->memory().block_slots);
    const double expected = simulate(reads, slots, static_cast<std::size_t>(depth), kStep);
    const double steps = kStep * static_cast<double>(kBatches);
    print({{"depth", depth},
           {"measured_wait_percent", 100.0 * waited / (steps + waited)},
           {"simulated_wait_percent", 100.0 * expected / (steps + expected)},
           {"measured_wait_s", waited},
           {"simulated_wait_s", expected}});
  }
  return {};
}

int run(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  Result<void> done =
      Error(Code::kInvalidArgument,
            "usage: paceline_bench_loader start|position|flat CONFIG DATA, or stalls");
  if (argc == 4 && what == "start") done = start(argv[2], argv[3]);
  if (argc == 4 && what == "position") done = position(argv[2], argv[3]);
  if (argc == 4 && what == "flat") done = flat(argv[2], argv[3]);
  if (argc == 2 && what == "stalls") done = stalls();
  if (!done) fmt::print(stderr, "{}\n", done.error().text());
  return done ? 0 : exit_code(done.error());
}

}  // namespace
}  // namespace paceline

int main(int argc, char** argv) { return paceline::run(argc, argv); }
