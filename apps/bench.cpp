// `paceline bench loader`: what a row costs, decoded by Arrow, read by us, and delivered in
// shuffled packed batches.

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "commands.hpp"
#include "data/arrow_decode.hpp"
#include "data/batch_pipeline.hpp"
#include "data/cpu_clock.hpp"
#include "data/dataset_files.hpp"
#include "data/suggest_config.hpp"

namespace paceline::app {
namespace {

namespace fs = std::filesystem;

struct Arguments {
  std::string target;
  std::string split = "train";
  int readers = 1, depth = 1, cores = 0, rounds = 3;
  std::int64_t batch = 64, window = 4, rows = 0;
  bool json = false;
};

// What to load and as what.
struct Dataset {
  std::vector<std::string> paths;
  features::Schema schema;
  features::BatchLimits limits;
  std::unique_ptr<data::Source> source;
};

struct Cost {
  std::int64_t rows = 0;
  double cpu_s = 0, wall_s = 0;

  double per_cpu_s() const { return cpu_s > 0 ? static_cast<double>(rows) / cpu_s : 0; }
  double per_s() const { return wall_s > 0 ? static_cast<double>(rows) / wall_s : 0; }
};

struct Measured {
  Cost decode, read, batches;  // the cheapest round of each
  std::int64_t batch_count = 0, tokens = 0;
  pipeline::WaitStats block_waits, batch_waits;
  features::CutCounts cuts;
};

bool is_config(const fs::path& path) {
  return path.extension() == ".toml" || fs::exists(path / "config.toml");
}

Result<Config> config_of(const Arguments& args) {
  const fs::path path = args.target;
  if (is_config(path)) {
    return Config::load(fs::is_directory(path) ? path / "config.toml" : path);
  }
  PL_TRY(const std::string suggested, data::suggest_config({args.target}));
  return Config::parse(suggested, "the config suggested for " + args.target);
}

// The first files that hold `rows` rows.
Result<void> keep_rows(Dataset& d, std::int64_t rows) {
  PL_TRY(const auto files, data::find_files(d.paths));
  std::vector<std::string> kept;
  std::int64_t sum = 0;
  for (std::size_t f = 0; f < files.size() && sum < rows; ++f) {
    if (files[f].remote) {
      return Error(Code::kInvalidArgument, "--rows: found remote files, allowed are local ones");
    }
    kept.push_back(files[f].path);
    sum += d.source->files()[f].rows;
  }
  d.paths = std::move(kept);
  PL_TRY(d.source, data::open_parquet(d.paths, d.schema));
  return {};
}

Result<Dataset> open_dataset(const Arguments& args) {
  PL_TRY(auto config, config_of(args));
  PL_TRY_VOID(config.override_with(fmt::format("batch.examples={}", args.batch)));
  Dataset d;
  PL_TRY(d.schema, features::Schema::from_config(config));
  PL_TRY(d.limits, features::BatchLimits::from_config(config, d.schema));
  d.paths = {args.target};
  if (is_config(args.target)) {
    PL_TRY(d.paths, config.get_paths("data." + args.split));
  }
  PL_TRY(d.source, data::open_parquet(d.paths, d.schema));
  if (args.rows > 0) PL_TRY_VOID(keep_rows(d, args.rows));
  if (d.source->rows() == 0) return Error(Code::kInvalidArgument, "no rows to load");
  return d;
}

void keep_cheaper(Cost& best, const Cost& cost) {
  if (best.rows == 0 || cost.cpu_s < best.cpu_s) best = cost;
}

Result<void> all_rows(const Dataset& d, std::int64_t rows, const char* who) {
  if (rows == d.source->rows()) return {};
  return Error(Code::kInternal, fmt::format("{} gave {} rows of {}", who, rows, d.source->rows()));
}

Result<Cost> read_blocks(const Dataset& d) {
  Cost cost;
  features::RowBlock block;
  const auto start = Clock::now();
  const double cpu = data::process_cpu_seconds();
  for (std::size_t b = 0; b < d.source->blocks().size(); ++b) {
    PL_TRY_VOID(d.source->read(static_cast<std::int64_t>(b), block));
    cost.rows += block.rows;
  }
  cost.cpu_s = data::process_cpu_seconds() - cpu;
  cost.wall_s = seconds_since(start);
  return cost;
}

Result<void> load_batches(const Dataset& d, const Arguments& args, Measured& m) {
  data::BatchPipelineOptions options;
  options.limits = d.limits;
  options.readers = args.readers;
  options.depth = args.depth;
  options.shuffle_window = args.window;
  options.seed = 1;
  Cost cost;
  std::int64_t batches = 0, tokens = 0;
  // Every row once: of rows 0 .. n - 1 the sum and the sum of squares are known.
  std::uint64_t sum = 0, squares = 0;
  const auto start = Clock::now();
  const double cpu = data::process_cpu_seconds();
  PL_TRY(auto pipeline, data::BatchPipeline::create(*d.source, d.schema, options, {}));
  for (;;) {
    PL_TRY(auto fetched, pipeline->next_batch());
    if (fetched.state != data::FetchState::kBatch) break;
    const auto& batch = fetched.lease.batch();
    for (const auto row : batch.dataset_row()) {
      const auto r = static_cast<std::uint64_t>(row);
      sum += r;
      squares += r * r;
    }
    cost.rows += batch.examples();
    tokens += batch.tokens();
    ++batches;
    fetched.lease.mark_trained();
  }
  cost.cpu_s = data::process_cpu_seconds() - cpu;
  cost.wall_s = seconds_since(start);
  PL_TRY_VOID(all_rows(d, cost.rows, "the batch pipeline"));
  for (std::int64_t row = 0; row < cost.rows; ++row) {
    const auto r = static_cast<std::uint64_t>(row);
    sum -= r;
    squares -= r * r;
  }
  if (sum != 0 || squares != 0) {
    return Error(Code::kInternal, "the batch pipeline gave a row twice and another never");
  }
  if (m.batches.rows == 0 || cost.cpu_s < m.batches.cpu_s) {
    m.batches = cost;
    m.block_waits = pipeline->block_waits();
    m.batch_waits = pipeline->batch_waits();
  }
  m.batch_count = batches;
  m.tokens = tokens;
  m.cuts = pipeline->cuts();
  return {};
}

Result<Measured> measure(const Dataset& d, const Arguments& args) {
  Measured m;
  for (int round = 0; round < args.rounds; ++round) {
    PL_TRY(const auto decoded, data::decode_with_arrow(d.paths, d.schema));
    PL_TRY_VOID(all_rows(d, decoded.rows, "Arrow"));
    keep_cheaper(m.decode, {decoded.rows, decoded.cpu_s, decoded.wall_s});
    PL_TRY(const Cost read, read_blocks(d));
    PL_TRY_VOID(all_rows(d, read.rows, "reading"));
    keep_cheaper(m.read, read);
    PL_TRY_VOID(load_batches(d, args, m));
  }
  return m;
}

void show_waits(const char* name, const pipeline::WaitStats& w) {
  fmt::print(
      "hand-off {}: {} items, consumer waited {:.3f} s, producer {:.3f} s, {:.1f} full on "
      "average\n",
      name, w.items, static_cast<double>(w.consumer_wait_ns) * 1e-9,
      static_cast<double>(w.acquire_wait_ns) * 1e-9, w.mean_occupancy());
}

void show(const Dataset& d, const Measured& m) {
  fmt::print("{} rows in {} blocks of {} files, {} batches, {:.1f} tokens a row\n",
             d.source->rows(), d.source->blocks().size(), d.source->files().size(), m.batch_count,
             static_cast<double>(m.tokens) / static_cast<double>(d.source->rows()));
  const auto line = [&](const char* what, const Cost& c) {
    fmt::print("{:<34} {:>9.0f} rows per CPU-second {:>6.2f} x decode {:>9.0f} rows/s\n", what,
               c.per_cpu_s(), c.per_cpu_s() / m.decode.per_cpu_s(), c.per_s());
  };
  line("decode alone (Arrow)", m.decode);
  line("read", m.read);
  line("shuffled packed batches", m.batches);
  show_waits("readers -> batcher", m.block_waits);
  show_waits("batcher -> caller", m.batch_waits);
  if (const std::string cuts = features::cuts_text(m.cuts); !cuts.empty()) {
    fmt::print("{}\n", cuts);
  }
}

nlohmann::json to_json(const Cost& c) {
  return {{"rows", c.rows},
          {"cpu_s", c.cpu_s},
          {"wall_s", c.wall_s},
          {"rows_per_cpu_s", c.per_cpu_s()},
          {"rows_per_s", c.per_s()}};
}

nlohmann::json to_json(const pipeline::WaitStats& w) {
  return {{"items", w.items},
          {"consumer_wait_s", static_cast<double>(w.consumer_wait_ns) * 1e-9},
          {"producer_wait_s", static_cast<double>(w.acquire_wait_ns) * 1e-9},
          {"mean_occupancy", w.mean_occupancy()}};
}

void show_json(const Dataset& d, const Arguments& args, const Measured& m) {
  const nlohmann::json all = {
      {"rows", d.source->rows()},
      {"blocks", d.source->blocks().size()},
      {"files", d.source->files().size()},
      {"batches", m.batch_count},
      {"tokens", m.tokens},
      {"readers", args.readers},
      {"depth", args.depth},
      {"window", args.window},
      {"cores", args.cores},
      {"decode", to_json(m.decode)},
      {"read", to_json(m.read)},
      {"pipeline", to_json(m.batches)},
      {"read_over_decode", m.read.per_cpu_s() / m.decode.per_cpu_s()},
      {"pipeline_over_decode", m.batches.per_cpu_s() / m.decode.per_cpu_s()},
      {"block_waits", to_json(m.block_waits)},
      {"batch_waits", to_json(m.batch_waits)}};
  fmt::print("{}\n", all.dump());
}

// Binds the process, and so every thread it starts, to `n` of the cores it may use.
Result<void> bind_to_cores(int n) {
  cpu_set_t allowed, chosen;
  CPU_ZERO(&allowed);
  CPU_ZERO(&chosen);
  if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) {
    return Error(Code::kUnavailable, "the system does not say which cores may be used");
  }
  for (std::size_t core = 0; core < CPU_SETSIZE && CPU_COUNT(&chosen) < n; ++core) {
    if (CPU_ISSET(core, &allowed)) CPU_SET(core, &chosen);
  }
  if (CPU_COUNT(&chosen) < n) {
    return Error(Code::kInvalidArgument,
                 fmt::format("--cores {}: found {}", n, CPU_COUNT(&allowed)));
  }
  if (::sched_setaffinity(0, sizeof chosen, &chosen) != 0) {
    return Error(Code::kUnavailable, "the system does not bind threads to cores");
  }
  return {};
}

Result<int> bench_loader(const Arguments& args) {
  if (args.cores > 0) PL_TRY_VOID(bind_to_cores(args.cores));
  PL_TRY(const Dataset dataset, open_dataset(args));
  PL_TRY(const Measured measured, measure(dataset, args));
  if (args.json) {
    show_json(dataset, args, measured);
  } else {
    show(dataset, measured);
  }
  return 0;
}

}  // namespace

void add_bench(CLI::App& app, Command& chosen) {
  auto* bench = app.add_subcommand("bench", "Measure parts of the program on your machine");
  bench->require_subcommand(1);
  auto* loader = bench->add_subcommand(
      "loader", "Rows per CPU-second of Arrow's decode alone, of reading, and of batches");
  auto args = std::make_shared<Arguments>();
  loader
      ->add_option("PATH", args->target,
                   "a data set (directory, file, glob or URI), read with the config that its "
                   "columns suggest; or a config file or run directory")
      ->required();
  loader->add_option("--split", args->split, "which data of the config")
      ->capture_default_str()
      ->check(CLI::IsMember({"train", "valid", "test"}));
  const auto number = [&](const char* name, auto& value, const char* what, std::int64_t least,
                          std::int64_t most) {
    loader->add_option(name, value, what)->capture_default_str()->check(CLI::Range(least, most));
  };
  number("--readers", args->readers, "threads that read", 1, 256);
  number("--depth", args->depth, "batches cut ahead", 1, 1024);
  number("--batch", args->batch, "examples of a batch", 1, 1 << 20);
  number("--window", args->window, "blocks that are shuffled together; 0 keeps the order", 0,
         1 << 20);
  number("--rows", args->rows, "only the first files that hold so many rows; 0: all", 0,
         std::int64_t{1} << 40);
  number("--cores", args->cores, "bind the process to so many cores; 0: as it is", 0, 1024);
  number("--rounds", args->rounds, "rounds; the cheapest of each counts", 1, 1000);
  loader->add_flag("--json", args->json, "one JSON object");
  loader->callback([args, &chosen] { chosen = [args] { return bench_loader(*args); }; });
}

}  // namespace paceline::app
