// `paceline bench loader`: what a row costs, decoded by Arrow, read by us, and delivered in
// shuffled packed batches.

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "commands.hpp"
#include "core/bytes.hpp"
#include "data/arrow_decode.hpp"
#include "data/batch_pipeline.hpp"
#include "data/cpu_clock.hpp"
#include "data/dataset_files.hpp"
#include "inspect_target.hpp"

namespace paceline::app {
namespace {

struct Arguments {
  std::string target, split;
  std::vector<std::string> overrides;
  std::optional<std::int64_t> readers, depth, batch, window;  // none: the config's own
  int cores = 0, rounds = 3;
  std::int64_t epochs = 1;
  std::int64_t rows = 0;
  bool json = false;
};

// What to load and as what.
struct Dataset {
  std::vector<std::string> paths;
  features::Schema schema;
  bool has_labels = true;
  data::SourceOptions source_options;
  data::BatchPipelineOptions options;
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
  data::SkippedData skipped;  // of one round; the same in each
  data::BatchPipelineMemory memory;
  std::string no_decode;  // why Arrow decoded nothing
};

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
  PL_TRY(d.source, data::open_parquet(d.paths, d.schema, d.source_options));
  return {};
}

// The config's own values, but for what the options say.
std::vector<std::string> overrides_of(const Arguments& args) {
  std::vector<std::string> all = args.overrides;
  const auto set = [&](const char* key, const std::optional<std::int64_t>& value) {
    if (value) all.push_back(fmt::format("{}={}", key, *value));
  };
  set("data.readers", args.readers);
  set("data.depth", args.depth);
  set("data.shuffle_window", args.window);
  set("batch.examples", args.batch);
  return all;
}

Result<Dataset> open_dataset(const Arguments& args) {
  PL_TRY(auto target, data_target({args.target}, args.split, overrides_of(args)));
  Dataset d;
  d.paths = std::move(target.paths);
  d.schema = std::move(target.schema);
  d.has_labels = target.has_labels;
  d.source_options = target.config.source_options();
  d.options = target.config.pipeline_options();
  d.options.epochs = args.epochs;
  PL_TRY(d.source, data::open_parquet(d.paths, d.schema, d.source_options));
  if (args.rows > 0) PL_TRY_VOID(keep_rows(d, args.rows));
  if (d.source->rows() == 0) return Error(Code::kInvalidArgument, "no rows to load");
  return d;
}

void keep_cheaper(Cost& best, const Cost& cost) {
  if (best.rows == 0 || cost.cpu_s < best.cpu_s) best = cost;
}

Result<void> all_rows(const Dataset& d, std::int64_t rows, const char* who,
                      std::int64_t epochs = 1) {
  const std::int64_t all = epochs * d.source->rows();
  if (rows == all) return {};
  return Error(Code::kInternal, fmt::format("{} gave {} rows of {}", who, rows, all));
}

// Reads every block; as many as may be skipped may fail, and count with their rows.
Result<Cost> read_blocks(const Dataset& d) {
  Cost cost;
  features::RowBlock block;
  std::int64_t failed = 0;
  const auto start = Clock::now();
  const double cpu = data::process_cpu_seconds();
  for (std::size_t b = 0; b < d.source->blocks().size(); ++b) {
    auto read = d.source->read(static_cast<std::int64_t>(b), block);
    if (!read && ++failed > d.options.skip_bad_blocks) return read.error();
    cost.rows += read ? block.rows : d.source->blocks()[b].rows;
  }
  cost.cpu_s = data::process_cpu_seconds() - cpu;
  cost.wall_s = seconds_since(start);
  return cost;
}

// Which rows of an epoch came. Without skips every row comes once: of rows 0 .. n - 1 the sum and
// the sum of squares are known. With skips every row has a place of its own.
class Arrivals {
 public:
  Arrivals(std::int64_t rows, bool skips) : seen_(skips ? static_cast<std::size_t>(rows) : 0) {}

  void add(std::int64_t row) {
    const auto r = static_cast<std::uint64_t>(row);
    ++rows_;
    sum_ += r;
    squares_ += r * r;
    if (seen_.empty()) return;
    twice_ = twice_ || seen_[r];
    seen_[r] = true;
  }
  // Whether the rows that came were different ones.
  bool each_once() const {
    if (!seen_.empty()) return !twice_;
    std::uint64_t sum = sum_, squares = squares_;
    for (std::int64_t row = 0; row < rows_; ++row) {
      const auto r = static_cast<std::uint64_t>(row);
      sum -= r;
      squares -= r * r;
    }
    return sum == 0 && squares == 0;
  }

 private:
  std::vector<bool> seen_;
  bool twice_ = false;
  std::int64_t rows_ = 0;
  std::uint64_t sum_ = 0, squares_ = 0;
};

Result<void> load_batches(const Dataset& d, Measured& m) {
  Cost cost;
  std::int64_t batches = 0, tokens = 0;
  const bool skips = d.options.skip_bad_rows + d.options.skip_bad_blocks > 0;
  std::vector<Arrivals> epochs(static_cast<std::size_t>(d.options.epochs),
                               Arrivals(d.source->rows(), skips));
  const auto start = Clock::now();
  const double cpu = data::process_cpu_seconds();
  PL_TRY(auto pipeline, data::BatchPipeline::create(*d.source, d.schema, d.options, {}));
  for (;;) {
    PL_TRY(auto fetched, pipeline->next_batch());
    if (fetched.state != data::FetchState::kBatch) break;
    const auto& batch = fetched.lease.batch();
    Arrivals& arrivals = epochs[static_cast<std::size_t>(fetched.lease.epoch())];
    for (const auto row : batch.dataset_row()) arrivals.add(row);
    cost.rows += batch.examples();
    tokens += batch.tokens();
    ++batches;
    fetched.lease.mark_trained();
  }
  cost.cpu_s = data::process_cpu_seconds() - cpu;
  cost.wall_s = seconds_since(start);
  m.skipped = pipeline->skipped();
  PL_TRY_VOID(all_rows(d, cost.rows + m.skipped.bad_rows + m.skipped.rows_of_bad_blocks,
                       "the batch pipeline", d.options.epochs));
  if (!std::ranges::all_of(epochs, &Arrivals::each_once)) {
    return Error(Code::kInternal, "the batch pipeline gave a row twice");
  }
  if (m.batches.rows == 0 || cost.cpu_s < m.batches.cpu_s) {
    m.batches = cost;
    m.block_waits = pipeline->block_waits();
    m.batch_waits = pipeline->batch_waits();
  }
  m.memory = pipeline->memory();
  m.batch_count = batches;
  m.tokens = tokens;
  m.cuts = pipeline->cuts();
  return {};
}

// Arrow has no way around what cannot be decoded: where that may be skipped there is no figure.
Result<void> decode(const Dataset& d, Measured& m) {
  const auto decoded = data::decode_with_arrow(d.paths, d.schema);
  if (!decoded && d.options.skip_bad_blocks > 0) {
    m.no_decode = decoded.error().message();
    return {};
  }
  if (!decoded) return decoded.error();
  PL_TRY_VOID(all_rows(d, decoded->rows, "Arrow"));
  keep_cheaper(m.decode, {decoded->rows, decoded->cpu_s, decoded->wall_s});
  return {};
}

Result<Measured> measure(const Dataset& d, const Arguments& args) {
  Measured m;
  for (int round = 0; round < args.rounds; ++round) {
    PL_TRY_VOID(decode(d, m));
    PL_TRY(const Cost read, read_blocks(d));
    PL_TRY_VOID(all_rows(d, read.rows, "reading"));
    keep_cheaper(m.read, read);
    PL_TRY_VOID(load_batches(d, m));
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

void show_used(const Dataset& d, const Measured& m) {
  const auto& o = d.options;
  fmt::print("readers {}, depth {}, shuffle window {}, {}seed {}, memory {} of at most {}\n",
             o.readers, o.depth, o.shuffle_window, o.overlap ? "" : "no overlap, ", o.seed,
             bytes_text(m.memory.total()), bytes_text(o.memory_limit));
  fmt::print("batches of {} examples, {} tokens, histories of {}, {} candidates{}\n",
             o.limits.examples, o.limits.tokens, o.limits.history_len, o.limits.candidates,
             d.has_labels ? "" : "; no labels were found");
  if (o.skip_bad_rows + o.skip_bad_blocks > 0) {
    fmt::print("may skip {} bad rows and {} bad row groups\n", o.skip_bad_rows, o.skip_bad_blocks);
  }
}

void show(const Dataset& d, const Measured& m) {
  fmt::print("{} rows in {} blocks of {} files, {} batches, {:.1f} tokens a row\n",
             d.source->rows(), d.source->blocks().size(), d.source->files().size(), m.batch_count,
             static_cast<double>(m.tokens) /
                 static_cast<double>(std::max<std::int64_t>(m.batches.rows, 1)));
  show_used(d, m);
  const auto line = [&](const char* what, const Cost& c) {
    fmt::print("{:<26} {:>9.0f} rows per CPU-second {:>11} {:>9.0f} rows/s\n", what, c.per_cpu_s(),
               m.decode.rows > 0
                   ? fmt::format("{:.2f} x decode", c.per_cpu_s() / m.decode.per_cpu_s())
                   : "",
               c.per_s());
  };
  if (m.no_decode.empty()) {
    line("decode alone (Arrow)", m.decode);
  } else {
    fmt::print("decode alone (Arrow): not measured: {}\n", m.no_decode);
  }
  line("read", m.read);
  line("shuffled packed batches", m.batches);
  show_waits("readers -> batcher", m.block_waits);
  show_waits("batcher -> caller", m.batch_waits);
  for (const auto& text : {features::cuts_text(m.cuts), data::skipped_text(m.skipped)}) {
    if (!text.empty()) fmt::print("{}\n", text);
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
  const auto over_decode = [&](const Cost& c) {
    return m.decode.rows > 0 ? nlohmann::json(c.per_cpu_s() / m.decode.per_cpu_s())
                             : nlohmann::json();
  };
  const auto& o = d.options;
  const nlohmann::json all = {{"rows", d.source->rows()},
                              {"blocks", d.source->blocks().size()},
                              {"files", d.source->files().size()},
                              {"labels", d.has_labels},
                              {"batches", m.batch_count},
                              {"tokens", m.tokens},
                              {"readers", o.readers},
                              {"depth", o.depth},
                              {"window", o.shuffle_window},
                              {"seed", o.seed},
                              {"examples", o.limits.examples},
                              {"batch_tokens", o.limits.tokens},
                              {"history_len", o.limits.history_len},
                              {"candidates", o.limits.candidates},
                              {"memory_limit", o.memory_limit},
                              {"memory_bytes", m.memory.total()},
                              {"skipped",
                               {{"rows", m.skipped.bad_rows},
                                {"row_groups", m.skipped.bad_blocks},
                                {"rows_of_row_groups", m.skipped.rows_of_bad_blocks}}},
                              {"cores", args.cores},
                              {"epochs", o.epochs},
                              {"decode", m.decode.rows > 0 ? to_json(m.decode) : nlohmann::json()},
                              {"read", to_json(m.read)},
                              {"pipeline", to_json(m.batches)},
                              {"read_over_decode", over_decode(m.read)},
                              {"pipeline_over_decode", over_decode(m.batches)},
                              {"block_waits", to_json(m.block_waits)},
                              {"batch_waits", to_json(m.batch_waits)}};
  fmt::print("{}\n", all.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
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
  loader->add_option("--split", args->split, "of a config: train (default), valid or test")
      ->check(CLI::IsMember({"train", "valid", "test"}));
  const auto number = [&](const char* name, auto& value, const char* what, std::int64_t least,
                          std::int64_t most) {
    loader->add_option(name, value, what)->capture_default_str()->check(CLI::Range(least, most));
  };
  add_overrides(*loader, args->overrides);
  number("--readers", args->readers, "threads that read; else data.readers", 1, 256);
  number("--depth", args->depth, "batches cut ahead; else data.depth", 1, 1024);
  number("--batch", args->batch, "examples of a batch; else batch.examples", 1, 1 << 20);
  number("--window", args->window,
         "blocks shuffled together, 0 keeps the order; else data.shuffle_window", 0, 1 << 20);
  number("--rows", args->rows, "only the first files that hold so many rows; 0: all", 0,
         std::int64_t{1} << 40);
  number("--cores", args->cores, "bind the process to so many cores; 0: as it is", 0, 1024);
  number("--epochs", args->epochs, "epochs of a round's batches, without a break between", 1, 1000);
  number("--rounds", args->rounds, "rounds; the cheapest of each counts", 1, 1000);
  loader->add_flag("--json", args->json, "one JSON object");
  loader->callback([args, &chosen] { chosen = [args] { return bench_loader(*args); }; });
  add_bench_step(*bench, chosen);
}

}  // namespace paceline::app
