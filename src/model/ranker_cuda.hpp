// The ranker on the GPU: the mathematics of ranker.hpp as a sequence of launches on one stream, for
// values of T = BFloat16 (products on tensor cores) or float.
//
// Every launch has the shape of the batch limits: rows past the batch's are zeros, and all that
// depends on the batch is read on the device. So a sequence that was captured once serves every
// batch, and the same batch has the same bits whatever was computed before it.
// Owns activations and the device's copies of batches, allocated by create() and never later.
// Nothing blocks but create() and tuning. One stream and one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/error.hpp"
#include "device/bfloat16.hpp"
#include "device/stream.hpp"
#include "features/batch.hpp"
#include "features/schema.hpp"
#include "model/model_config.hpp"
#include "model/parameters.hpp"
#include "ops/linear/linear_cuda.hpp"
#include "ops/table_adagrad/table_adagrad_cuda.hpp"

namespace paceline::model {

// Device arrays of whoever trains or serves.
template <typename T>
struct WeightsCuda {
  const float* dense = nullptr;  // [ParameterLayout::size()]
  const T* shadow = nullptr;     // dense rounded to T; for float dense itself
  const float* table = nullptr;  // [Schema::table_rows(), table_width]
};

template <typename T>
class RankerCuda {
 public:
  // `slots`: batches on the device at a time. The schema must outlive the ranker.
  // kInvalidArgument: sizes that the GPU code does not take, naming the key; kOutOfMemory;
  // kUnavailable: no matrix product for a shape. `known`: algorithms of products chosen before.
  static Result<std::unique_ptr<RankerCuda>> create(const ModelConfig& config,
                                                    const features::Schema& schema,
                                                    const features::BatchLimits& limits,
                                                    const std::string& device, int slots,
                                                    bool training,
                                                    const ops::LinearAlgorithms& known);
  ~RankerCuda();

  // A batch leaves the host as slot_bytes() bytes: stage() writes them to pinned memory, a copy of
  // them to slot_data() makes the batch that of the slot. `factor`, the schedule's, travels with it
  // for those who update weights. Batches of more targets than the ranker's may be staged too.
  std::size_t slot_bytes() const;
  std::byte* slot_data(int slot) const;
  void stage(const features::Batch& batch, double factor, std::byte* host) const;
  const double* factor(int slot) const;  // device

  // Outputs of the head on the slot's candidates: logits() before the factor of actions.
  void forward(const device::Stream& stream, const WeightsCuda<T>& weights, int slot);
  // Loss of the last forward, on the device, and the outputs' gradient.
  void loss(const device::Stream& stream, int slot);
  // Gradients of that loss: dense [ParameterLayout::size()] fp32 is overwritten (gaps between the
  // tensors are left); those of looked up rows stay inside, see table_sources().
  void backward(const device::Stream& stream, const WeightsCuda<T>& weights, int slot,
                float* dense);

  // Device.
  const double* loss_value() const;
  const float* logits() const;  // [candidate capacity, logit_stride()]
  std::int64_t logit_stride() const;
  std::int64_t candidate_capacity() const;
  float action_scale() const;
  // Lookups of the slot's batch and, after backward, their gradients.
  ops::TableSourcesCuda table_sources(int slot) const;
  std::int64_t table_places() const;  // capacity of a TableIndexCuda

  // While above 0, products are measured before they run, among so many algorithms.
  void set_tuning(int candidates);
  ops::LinearAlgorithms algorithms() const;

  int outputs() const;
  const ParameterLayout& layout() const;
  std::size_t memory_bytes() const;  // on the device

 private:
  struct Impl;
  explicit RankerCuda(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace paceline::model
