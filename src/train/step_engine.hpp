// Optimizer steps on the device of the run, and scores between them.
//
// A step: forward, loss, backward, and both optimizers' updates or neither. On the CPU it is done
// when submit() returns. On the GPU one step may be under way while the host prepares the next:
// its batch is copied beside the computation of the one before, and its result is taken later. That
// changes no number.
// Threads: one thread; scores come after the steps submitted before.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "device/profile.hpp"
#include "device/stream.hpp"
#include "features/batch.hpp"
#include "model/parameters.hpp"
#include "ops/context.hpp"
#include "ops/linear/linear_algorithms.hpp"
#include "train/device_choice.hpp"
#include "train/model_state.hpp"
#include "train/optimizer.hpp"
#include "train/scorer.hpp"

namespace paceline::train {

struct TrainConfig;

struct StepResult {
  double loss = 0.0;
  StepOutcome outcome;
  double idle_s = 0.0;  // that the GPU stood still before the step, waiting for its batch
};

class StepEngine : public Scorer {
 public:
  // `factor` is the schedule's. The batch may be given back when this returns. At most lag() + 1
  // results may wait to be taken.
  virtual Result<void> submit(const features::Batch& batch, double factor) = 0;
  // Of the oldest step whose result was not taken. Blocks until it is there.
  virtual StepResult take() = 0;
  // Steps that are best left under way.
  virtual int lag() const = 0;
  // The host's state becomes that after all steps submitted. Blocks.
  virtual Result<void> to_host() = 0;

  // A step like any other, with the time of each kernel; waits for it. Empty on the CPU.
  virtual Result<std::vector<device::KernelTime>> profile(const features::Batch& batch,
                                                          double factor) = 0;

  virtual std::size_t host_bytes() const = 0;    // besides the state
  virtual std::size_t device_bytes() const = 0;  // on the GPU
  // What a resume needs so that its products have the same bits; empty on the CPU.
  virtual ops::LinearAlgorithms algorithms() const = 0;
};

// A save under way.
struct SaveHooks {
  // Before the host's tables change.
  std::function<Result<void>()> before_table_update;
  // Table rows of a step, after that and before its update.
  std::function<void(std::span<const std::int32_t>)> touch;
};

struct StepEngineOptions {
  const TrainConfig& config;
  const model::ParameterLayout& layout;
  ModelState& state;  // what the first step begins from
  ops::Context& ctx;  // of the CPU's ops
  const DeviceChoice& device;
  SaveHooks hooks;
  const ops::LinearAlgorithms& known;  // of the run so far
  // Tests: called before a batch's work is put on a stream of the GPU.
  std::function<void(const device::Stream&)> before_work = {};
};

// What is referred to must outlive the engine. kInvalidArgument for sizes that the device does not
// take, naming the key; kOutOfMemory with the bytes needed.
Result<std::unique_ptr<StepEngine>> make_step_engine(const StepEngineOptions& options);

// The device and what computes its products: steps of two processes have the same bits when it is
// the same in both. "cpu", or as "NVIDIA H200 (9.0), cuBLASLt 130100".
std::string engine_name(const DeviceChoice& device);

}  // namespace paceline::train
