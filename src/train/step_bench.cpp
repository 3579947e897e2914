#include "train/step_bench.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>
#include <utility>

#include "core/clock.hpp"
#include "core/rng.hpp"
#include "train/step_engine.hpp"

namespace paceline::train {
namespace {

constexpr int kRoundSteps = 5;

// Values of integer columns below this.
std::vector<std::uint64_t> bounds_of(const features::Schema& schema) {
  std::vector<std::uint64_t> bounds(schema.columns().size(), std::uint64_t{1} << 40);
  for (const auto& kind : schema.kinds()) {
    for (const auto& f : kind.features) {
      if (f.kind == features::Kind::kCategory)
        bounds[static_cast<std::size_t>(f.column)] = static_cast<std::uint64_t>(f.size);
    }
  }
  return bounds;
}

Result<std::vector<features::Batch>> full_batches(const TrainConfig& config,
                                                  const features::BatchLayout& layout,
                                                  const StepBenchOptions& options) {
  std::vector<features::Batch> batches;
  features::BatchCutter cutter(config.schema, layout);
  for (int b = 0; b < options.batches; ++b) {
    const auto block = random_rows(config.schema, config.limits, config.limits.examples,
                                   options.seed * 1000 + static_cast<std::uint64_t>(b));
    features::Batch& batch = batches.emplace_back(layout);
    cutter.begin(batch);
    for (std::int64_t row = 0; row < block.rows && cutter.append(block, row); ++row) {
    }
    if (batch.examples() == 0) {
      return Error(
          Code::kInvalidArgument,
          fmt::format("batch.tokens = {}: no example of full length fits", config.limits.tokens));
    }
  }
  return batches;
}

// An engine on fresh weights, stepping through batches in turn.
struct Steps {
  Steps(const TrainConfig& c, const DeviceChoice& device)
      : config(c),
        layout(c.model, c.schema),
        pool(c.threads()),
        ctx(pool),
        state(layout.size(), c.schema.table_rows(), c.model.table_width),
        chosen(device) {
    model::initialize(layout, c.loop.seed, state.dense());
    model::initialize_table(c.loop.seed, c.model.table_width, state.table());
  }
  Result<void> open() {
    const SaveHooks none{[] { return Result<void>(); }, [](std::span<const std::int32_t>) {}};
    PL_TRY(engine, make_step_engine({config, layout, state, ctx, chosen, none, {}}));
    return {};
  }
  Result<void> settle(int left) {
    for (; under_way > left; --under_way) {
      last = engine->take();
      if (last.outcome.applied) continue;
      return Error(Code::kInternal, fmt::format("a step was skipped: loss {}, gradient norm {}",
                                                last.loss, last.outcome.grad_norm));
    }
    return {};
  }
  Result<void> run(std::span<const features::Batch> batches, int steps) {
    for (int i = 0; i < steps; ++i) {
      PL_TRY_VOID(engine->submit(batches[next++ % batches.size()], 1.0));
      ++under_way;
      PL_TRY_VOID(settle(engine->lag()));
    }
    return settle(0);
  }

  const TrainConfig& config;
  model::ParameterLayout layout;
  pipeline::TaskPool pool;
  ops::Context ctx;
  ModelState state;
  DeviceChoice chosen;
  std::unique_ptr<StepEngine> engine;
  StepResult last;
  int under_way = 0;
  std::size_t next = 0;
};

}  // namespace

features::RowBlock random_rows(const features::Schema& schema, const features::BatchLimits& limits,
                               std::int64_t rows, std::uint64_t seed) {
  const CounterRng rng(seed, RngStream::kBench);
  const auto bounds = bounds_of(schema);
  features::RowBlock block;
  block.rows = rows;
  for (std::int64_t r = 0; r <= rows; ++r) {
    block.history_offsets.push_back(r * limits.history_len);
    block.candidate_offsets.push_back(r * limits.candidates);
  }
  for (std::size_t c = 0; c < schema.columns().size(); ++c) {
    const auto& column = schema.columns()[c];
    const std::int64_t n = column.shape == features::Shape::kScalar ? rows
                           : column.shape == features::Shape::kHistoryList
                               ? rows * limits.history_len
                               : rows * limits.candidates;
    auto& values = block.columns.emplace_back();
    for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(n); ++i) {
      if (column.element == features::Element::kFloat) {
        values.floats.push_back(static_cast<float>(rng.uniform(c, i)));
      } else if (column.element == features::Element::kMask) {
        // The bits that are set in all of four words.
        std::uint64_t bits = static_cast<int>(c) == schema.actions_column() ? schema.action_mask()
                                                                            : ~std::uint64_t{0};
        for (std::uint64_t k = 0; k < 4; ++k) bits &= rng.bits(c, 4 * i + k);
        values.ints.push_back(static_cast<std::int64_t>(bits));
      } else {
        const std::uint64_t least = bounds[c] > (std::uint64_t{1} << 32) ? 1 : 0;
        values.ints.push_back(
            static_cast<std::int64_t>(least + rng.below(bounds[c] - least, c, i)));
      }
    }
  }
  return block;
}

double useful_flop(const model::ModelConfig& c, const features::Schema& schema,
                   const features::Batch& batch) {
  const double width = c.width, q = c.query_width(), kv = 2.0 * c.key_width();
  const double tokens = batch.tokens(), candidates = batch.candidate_tokens();
  const double tail = q * width + 2.0 * width * c.ffn;  // output and MLP
  double products =
      (c.layers - 1) * tokens * (width * (q + kv) + tail) + tokens * width * kv +
      candidates * (width * q + tail) +
      candidates * width * static_cast<double>(schema.actions().size() + schema.targets().size());
  for (std::size_t k = 0; k < schema.kinds().size(); ++k) {
    products += static_cast<double>(batch.entries(static_cast<int>(k))) *
                schema.kinds()[k].token_width(c.table_width) * width;
  }
  double inner = 0.0, last = 0.0;  // pairs that attend
  const auto cu_tokens = batch.cu_tokens(), cu_candidates = batch.cu_candidates();
  for (std::size_t e = 0; e < static_cast<std::size_t>(batch.examples()); ++e) {
    const double of_candidates = cu_candidates[e + 1] - cu_candidates[e];
    const double before = cu_tokens[e + 1] - cu_tokens[e] - of_candidates;
    last += of_candidates * (before + 1.0);
    inner += c.causal ? before * (before + 1.0) / 2.0 : before * before;
  }
  inner += last;
  return 6.0 * products + 14.0 * q * ((c.layers - 1) * inner + last);
}

Result<StepBench> bench_step(const TrainConfig& config, const StepBenchOptions& options) {
  PL_TRY(const DeviceChoice device, choose_device(config.loop));
  const features::BatchLayout layout(config.schema, config.limits);
  PL_TRY(const auto batches, full_batches(config, layout, options));
  Steps steps(config, device);
  PL_TRY_VOID(steps.open());

  StepBench bench;
  bench.device = engine_name(device);
  bench.bf16 = device.bf16;
  bench.graph = device.cuda && config.loop.graph;
  bench.examples = batches[0].examples();
  bench.tokens = batches[0].tokens();
  bench.candidates = batches[0].candidate_tokens();
  bench.flop = useful_flop(config.model, config.schema, batches[0]);
  // The same batch first and last: its loss falls when the step does what it should.
  PL_TRY_VOID(steps.run(std::span(batches).first(1), 1));
  bench.first_loss = steps.last.loss;
  PL_TRY_VOID(steps.run(batches, options.warm_up));
  std::vector<double> rounds;
  for (int done = 0; done < options.steps; done += kRoundSteps) {
    const int now = std::min(kRoundSteps, options.steps - done);
    const auto start = Clock::now();
    PL_TRY_VOID(steps.run(batches, now));
    rounds.push_back(seconds_since(start) * 1e3 / now);
  }
  std::sort(rounds.begin(), rounds.end());
  bench.ms = rounds[rounds.size() / 2];
  bench.fastest_ms = rounds.front();
  bench.slowest_ms = rounds.back();
  PL_TRY(bench.kernels, steps.engine->profile(batches[0], 1.0));
  ++steps.under_way;
  PL_TRY_VOID(steps.settle(0));
  bench.last_loss = steps.last.loss;
  bench.host_bytes = steps.engine->host_bytes();
  bench.device_bytes = steps.engine->device_bytes();
  if (!(bench.last_loss < bench.first_loss)) {
    return Error(Code::kInternal, fmt::format("the loss of a batch did not fall: {} at first, {} "
                                              "after {} steps",
                                              bench.first_loss, bench.last_loss,
                                              options.steps + options.warm_up + 1));
  }
  return bench;
}

}  // namespace paceline::train
