// What a training step of a config costs, on batches of full length that are in memory already.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "device/profile.hpp"
#include "features/batch.hpp"
#include "features/schema.hpp"
#include "model/model_config.hpp"
#include "train/train_config.hpp"

namespace paceline::train {

struct StepBenchOptions {
  int steps = 50;    // timed
  int warm_up = 10;  // before
  int batches = 4;   // different ones, in turn
  std::uint64_t seed = 1;
};

struct StepBench {
  std::string device;  // engine_name()
  bool bf16 = false, graph = false;
  std::int64_t examples = 0, tokens = 0, candidates = 0;  // of a batch
  double ms = 0.0;                                        // a step: the median of the timed rounds
  double fastest_ms = 0.0, slowest_ms = 0.0;
  double flop = 0.0;                        // useful_flop() of a batch
  std::vector<device::KernelTime> kernels;  // of one step; empty on the CPU
  double first_loss = 0.0, last_loss = 0.0;
  std::size_t host_bytes = 0, device_bytes = 0;
};

// kInvalidArgument when batches of full length do not fit batch.tokens even alone; errors of the
// engine; kInternal when a loss is not finite or the loss of the batches did not fall.
Result<StepBench> bench_step(const TrainConfig& config, const StepBenchOptions& options);

// Rows of the longest history and the most candidates that the limits allow, random values:
// ids of [1, 2^40), categories within their rows, each bit of a mask with probability 1/16.
features::RowBlock random_rows(const features::Schema& schema, const features::BatchLimits& limits,
                               std::int64_t rows, std::uint64_t seed);

// Floating-point operations that a step must do: 6 for each weight and row that it is multiplied
// with (in the last block queries, output and MLP see candidates alone), 14 head_dim for each query
// head and pair of rows that attend. Norms, losses and updates are left out.
double useful_flop(const model::ModelConfig& config, const features::Schema& schema,
                   const features::Batch& batch);

}  // namespace paceline::train
