#include "train/engine_cuda.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>
#include <vector>

#include "device/graph.hpp"
#include "device/memory.hpp"
#include "device/profile.hpp"
#include "model/ranker_cuda.hpp"
#include "ops/adamw/adamw_cuda.hpp"
#include "ops/global_norm/global_norm_cuda.hpp"
#include "ops/table_adagrad/table_adagrad_cuda.hpp"
#include "train/train_config.hpp"

namespace paceline::train {
namespace {

using device::Arena;
using device::BFloat16;

constexpr int kSlots = 2;
constexpr int kTunedAlgorithms = 8;  // of each product, measured once
constexpr bool kIsFloat(float) { return true; }
constexpr bool kIsFloat(BFloat16) { return false; }

Error with_advice(Error error) {
  if (error.code() != Code::kOutOfMemory) return error;
  return Error(error.code(),
               error.message() +
                   "; a smaller batch.tokens, batch.examples or model needs less of it, or "
                   "train.device = \"cpu\" none");
}

void to_device(const device::Stream& stream, void* to, std::span<const float> from) {
  if (!from.empty()) device::copy_to_device(stream, to, from.data(), from.size_bytes());
}
void to_host(const device::Stream& stream, std::span<float> to, const void* from) {
  if (!to.empty()) device::copy_to_host(stream, to.data(), from, to.size_bytes());
}

// The weights of a model on the device.
template <typename T>
struct DeviceWeights {
  std::int64_t dense_size = 0, table_size = 0;
  float* dense = nullptr;
  T* rounded = nullptr;  // null when T is float
  float* table = nullptr;

  void place(Arena& arena, std::int64_t dense_count, std::int64_t table_count) {
    dense_size = dense_count;
    table_size = table_count;
    dense = arena.take<float>(dense_size);
    if constexpr (!kIsFloat(T{})) rounded = arena.take<T>(dense_size);
    table = arena.take<float>(table_size);
  }
  void upload(const device::Stream& stream, const ModelState& state) {
    to_device(stream, dense, state.dense());
    to_device(stream, table, state.table());
    if constexpr (!kIsFloat(T{})) ops::shadow_cuda<T>(stream, dense_size, dense, rounded);
    stream.synchronize();
  }
  model::WeightsCuda<T> view() const {
    if constexpr (kIsFloat(T{})) return {dense, dense, table};
    return {dense, rounded, table};
  }
};

// Logits of a batch as the CPU's ranker gives them, through pinned memory.
template <typename T>
class Logits {
 public:
  Result<void> allocate(const model::RankerCuda<T>& ranker) {
    const auto values = static_cast<std::size_t>(ranker.candidate_capacity() *
                                                 std::max<std::int64_t>(1, ranker.logit_stride()));
    PL_TRY(pinned_, device::PinnedBuffer::create(values * sizeof(float), "logits"));
    logits_.resize(static_cast<std::size_t>(ranker.candidate_capacity() * ranker.outputs()));
    return {};
  }

  // Of the ranker's last forward on the stream; waits for it.
  std::span<const float> read(const device::Stream& stream, const model::RankerCuda<T>& ranker,
                              const features::Batch& batch, int actions) {
    const auto candidates = static_cast<std::size_t>(batch.candidate_tokens());
    const auto stride = static_cast<std::size_t>(ranker.logit_stride());
    const auto outputs = static_cast<std::size_t>(ranker.outputs());
    if (candidates > 0) {
      device::copy_to_host(stream, pinned_.data(), ranker.logits(),
                           candidates * stride * sizeof(float));
    }
    stream.synchronize();
    const auto* from = reinterpret_cast<const float*>(pinned_.data());
    for (std::size_t c = 0; c < candidates; ++c) {
      for (std::size_t o = 0; o < outputs; ++o) {
        const float factor = o < static_cast<std::size_t>(actions) ? ranker.action_scale() : 1.0F;
        logits_[c * outputs + o] = from[c * stride + o] * factor;
      }
    }
    return std::span<const float>(logits_).first(candidates * outputs);
  }
  std::size_t host_bytes() const { return pinned_.size_bytes() + logits_.size() * sizeof(float); }

 private:
  device::PinnedBuffer pinned_;
  std::vector<float> logits_;
};

template <typename T>
class CudaScorer final : public Scorer {
 public:
  static Result<std::unique_ptr<Scorer>> create(const ScorerOptions& o) {
    std::unique_ptr<CudaScorer> made(new CudaScorer(static_cast<int>(o.schema.actions().size())));
    PL_TRY(made->ranker_,
           model::RankerCuda<T>::create(o.model, o.schema, o.limits, o.device.name, 1, false, {}));
    const auto place = [&](Arena& arena) {
      made->weights_.place(arena, made->ranker_->layout().size(),
                           o.weights.table_rows * o.weights.table_width);
    };
    Arena counting;
    place(counting);
    PL_TRY(made->memory_, device::Memory::create(counting.used(), "the weights"));
    Arena arena(made->memory_);
    place(arena);
    PL_TRY(made->staged_, device::PinnedBuffer::create(made->ranker_->slot_bytes(), "a batch"));
    PL_TRY_VOID(made->logits_.allocate(*made->ranker_));
    made->weights_.upload(made->stream_, o.weights);
    return std::unique_ptr<Scorer>(std::move(made));
  }

  std::span<const float> score(const features::Batch& batch) override {
    ranker_->stage(batch, 0.0, staged_.data());
    device::copy_to_device(stream_, ranker_->slot_data(0), staged_.data(), staged_.size_bytes());
    ranker_->forward(stream_, weights_.view(), 0);
    return logits_.read(stream_, *ranker_, batch, actions_);
  }
  int outputs() const override { return ranker_->outputs(); }

 private:
  explicit CudaScorer(int actions) : actions_(actions) {}

  int actions_;
  device::Stream stream_{"scores"};
  std::unique_ptr<model::RankerCuda<T>> ranker_;
  device::Memory memory_;
  DeviceWeights<T> weights_;
  device::PinnedBuffer staged_;
  Logits<T> logits_;
};

template <typename T>
class CudaEngine final : public StepEngine {
 public:
  static Result<std::unique_ptr<StepEngine>> create(const StepEngineOptions& o) {
    std::unique_ptr<CudaEngine> made(new CudaEngine(o));
    PL_TRY_VOID(made->allocate(o));
    made->begin(o);
    return std::unique_ptr<StepEngine>(std::move(made));
  }
  ~CudaEngine() override {
    // Graphs and copies may still read what is freed next.
    copy_.synchronize();
    compute_.synchronize();
  }

  Result<void> submit(const features::Batch& batch, double factor) override;
  StepResult take() override;
  int lag() const override { return 1; }
  Result<void> to_host() override;

  Result<std::vector<device::KernelTime>> profile(const features::Batch& batch,
                                                  double factor) override;
  std::span<const float> score(const features::Batch& batch) override;
  int outputs() const override { return ranker_->outputs(); }
  std::size_t host_bytes() const override {
    std::size_t bytes = logits_.host_bytes() + results_.size_bytes();
    for (const Slot& slot : slots_) bytes += slot.staged.size_bytes();
    return bytes;
  }
  std::size_t device_bytes() const override {
    return ranker_->memory_bytes() + memory_.size_bytes();
  }
  ops::LinearAlgorithms algorithms() const override { return ranker_->algorithms(); }

 private:
  // A batch on its way: written by the host, copied and sorted on one stream, read by the other.
  struct Slot {
    device::PinnedBuffer staged;
    ops::TableIndexCuda index;
    device::Event prepared, done;
    device::Graph prepare, step;
  };
  // When a step began and ended. One more than slots: when a result is taken, the marks of the step
  // before must still be there although the step after is under way.
  struct Marks {
    device::Event begin{true}, end{true};
    bool follows = false;  // nothing but the step before ran before it
  };

  explicit CudaEngine(const StepEngineOptions& o)
      : config_(o.config), state_(o.state), hooks_(o.hooks), before_work_(o.before_work) {}
  Result<void> allocate(const StepEngineOptions& o);
  void place(Arena& arena);
  void begin(const StepEngineOptions& o);
  void mark_begin();
  void mark_end();
  double idle_s() const;  // before the step whose result is taken next
  Marks& marks(std::int64_t step) { return marks_[static_cast<std::size_t>(step % (kSlots + 1))]; }
  const Marks& marks(std::int64_t step) const {
    return marks_[static_cast<std::size_t>(step % (kSlots + 1))];
  }
  void hand_over(int slot, const features::Batch& batch, double factor);
  void prepare(int slot);
  void step(int slot);
  void update(int slot);
  ops::StepDecision* result(int slot) {
    return reinterpret_cast<ops::StepDecision*>(results_.data()) + slot;
  }
  Slot& at(int slot) { return slots_[static_cast<std::size_t>(slot)]; }
  bool has_table() const { return ranker_->table_places() > 0; }
  Result<void> touch(const features::Batch& batch);

  const TrainConfig& config_;
  ModelState& state_;
  SaveHooks hooks_;
  std::function<void(const device::Stream&)> before_work_;
  device::Stream compute_{"steps"}, copy_{"batches"};
  std::unique_ptr<model::RankerCuda<T>> ranker_;
  device::Memory memory_;
  DeviceWeights<T> weights_;
  float* adam_m_ = nullptr;
  float* adam_v_ = nullptr;
  float* table_acc_ = nullptr;
  float* dense_grad_ = nullptr;
  ops::TableSumsCuda sums_;
  double* partials_ = nullptr;
  double* norm_ = nullptr;
  std::int64_t* adam_steps_ = nullptr;
  ops::StepDecision* decision_ = nullptr;
  device::PinnedBuffer results_;  // StepDecision by slot
  std::array<Slot, kSlots> slots_;
  Logits<T> logits_;
  std::int64_t submitted_ = 0, taken_ = 0;
  std::array<Marks, kSlots + 1> marks_;
  bool follows_ = false;  // the next step follows another without a copy or scores between
};

template <typename T>
void CudaEngine<T>::place(Arena& arena) {
  const std::int64_t dense = ranker_->layout().size();
  weights_.place(arena, dense, state_.table_rows * state_.table_width);
  adam_m_ = arena.take<float>(dense);
  adam_v_ = arena.take<float>(dense);
  table_acc_ = arena.take<float>(state_.table_rows);
  dense_grad_ = arena.take<float>(dense);
  if (has_table()) {
    for (Slot& slot : slots_) {
      slot.index = ops::place_table_index(arena, ranker_->table_places(),
                                          static_cast<std::int32_t>(state_.table_rows));
    }
    sums_ = ops::place_table_sums(arena, slots_[0].index, state_.table_width);
  }
  partials_ = arena.take<double>(ops::kGlobalNormPartials);
  norm_ = arena.take<double>(1);
  adam_steps_ = arena.take<std::int64_t>(1);
  decision_ = arena.take<ops::StepDecision>(1);
}

template <typename T>
Result<void> CudaEngine<T>::allocate(const StepEngineOptions& o) {
  constexpr std::int64_t kMostRows = std::numeric_limits<std::int32_t>::max() - 1;
  if (state_.table_rows > kMostRows) {
    return Error(Code::kInvalidArgument,
                 fmt::format("features.rows: {} table rows in all; on the GPU at most {}",
                             state_.table_rows, kMostRows));
  }
  PL_TRY(ranker_, model::RankerCuda<T>::create(config_.model, config_.schema, config_.limits,
                                               o.device.name, kSlots, true, o.known));
  Arena counting;
  place(counting);
  PL_TRY(memory_,
         device::Memory::create(counting.used(), "weights, their gradients and optimizer state"));
  Arena arena(memory_);
  place(arena);
  for (Slot& slot : slots_) {
    PL_TRY(slot.staged, device::PinnedBuffer::create(ranker_->slot_bytes(), "a batch"));
  }
  PL_TRY(results_,
         device::PinnedBuffer::create(kSlots * sizeof(ops::StepDecision), "results of steps"));
  return logits_.allocate(*ranker_);
}

// Uploads the state; runs every product once on an empty batch, so that each has its algorithm
// before a weight changes; captures the graphs.
template <typename T>
void CudaEngine<T>::begin(const StepEngineOptions& o) {
  weights_.upload(compute_, state_);
  to_device(compute_, adam_m_, state_.adam_m());
  to_device(compute_, adam_v_, state_.adam_v());
  to_device(compute_, table_acc_, state_.table_acc());
  device::copy_to_device(compute_, adam_steps_, &state_.adam_steps, sizeof(state_.adam_steps));
  ranker_->set_tuning(kTunedAlgorithms);
  ranker_->forward(compute_, weights_.view(), 0);
  ranker_->loss(compute_, 0);
  ranker_->backward(compute_, weights_.view(), 0, dense_grad_);
  ranker_->set_tuning(0);
  compute_.synchronize();
  if (!o.config.loop.graph) return;
  for (int s = 0; s < kSlots; ++s) {
    at(s).prepare = device::Graph::capture(copy_, [&] { prepare(s); });
    at(s).step = device::Graph::capture(compute_, [&] { step(s); });
  }
}

// On the copy stream: the batch, and its lookups by table row.
template <typename T>
void CudaEngine<T>::prepare(int slot) {
  const auto& staged = at(slot).staged;
  device::copy_to_device(copy_, ranker_->slot_data(slot), staged.data(), staged.size_bytes());
  if (has_table()) ops::table_index_cuda(copy_, ranker_->table_sources(slot), at(slot).index);
}

template <typename T>
void CudaEngine<T>::step(int slot) {
  ranker_->forward(compute_, weights_.view(), slot);
  ranker_->loss(compute_, slot);
  ranker_->backward(compute_, weights_.view(), slot, dense_grad_);
  update(slot);
  device::copy_to_host(compute_, result(slot), decision_, sizeof(ops::StepDecision));
}

template <typename T>
void CudaEngine<T>::update(int slot) {
  const OptimizerConfig& c = config_.optimizer;
  const auto& index = at(slot).index;
  if (has_table()) {
    ops::table_reduce_cuda<T>(compute_, {ranker_->table_sources(slot), index, sums_});
  }
  ops::global_norm_cuda(compute_, weights_.dense_size, dense_grad_, partials_, norm_);
  ops::StepDecideCudaArgs decide;
  decide.lr = c.lr;
  decide.table_lr = c.table_lr;
  decide.beta1 = c.beta1;
  decide.beta2 = c.beta2;
  decide.clip = c.clip;
  decide.factor = ranker_->factor(slot);
  decide.loss = ranker_->loss_value();
  decide.grad_norm = norm_;
  decide.table_not_finite = sums_.not_finite;
  decide.adam_steps = adam_steps_;
  decide.decision = decision_;
  ops::step_decide_cuda(compute_, decide);

  ops::AdamWCudaArgs<T> adam;
  adam.n = weights_.dense_size;
  adam.decay_end = ranker_->layout().decay_end();
  adam.p = weights_.dense;
  adam.grad = dense_grad_;
  adam.m = adam_m_;
  adam.v = adam_v_;
  adam.shadow = weights_.rounded;
  adam.beta1 = c.beta1;
  adam.beta2 = c.beta2;
  adam.eps = c.eps;
  adam.weight_decay = c.weight_decay;
  adam.decision = decision_;
  ops::adamw_cuda<T>(compute_, adam);
  if (!has_table()) return;
  ops::TableApplyCudaArgs<float> table;
  table.index = index;
  table.sums = sums_;
  table.decision = decision_;
  table.eps = c.table_eps;
  table.table = weights_.table;
  table.acc = table_acc_;
  ops::table_apply_cuda<float>(compute_, table);
}

// The batch is in the slot, its lookups sorted, before the compute stream goes on.
template <typename T>
void CudaEngine<T>::hand_over(int s, const features::Batch& batch, double factor) {
  Slot& slot = at(s);
  slot.prepared.wait();  // the copy out of pinned memory
  ranker_->stage(batch, factor, slot.staged.data());
  copy_.wait_for(slot.done);
  if (before_work_) before_work_(copy_);
  if (slot.prepare) {
    slot.prepare.launch(copy_);
  } else {
    prepare(s);
  }
  slot.prepared.record(copy_);
  compute_.wait_for(slot.prepared);
}

template <typename T>
Result<void> CudaEngine<T>::submit(const features::Batch& batch, double factor) {
  PL_CHECK(submitted_ - taken_ < kSlots, "a result is taken before its slot is used again");
  const int s = static_cast<int>(submitted_ % kSlots);
  hand_over(s, batch, factor);
  if (before_work_) before_work_(compute_);
  mark_begin();
  if (at(s).step) {
    at(s).step.launch(compute_);
  } else {
    step(s);
  }
  mark_end();
  at(s).done.record(compute_);
  ++submitted_;
  return touch(batch);
}

template <typename T>
Result<std::vector<device::KernelTime>> CudaEngine<T>::profile(const features::Batch& batch,
                                                               double factor) {
  PL_CHECK(submitted_ - taken_ < kSlots, "a result is taken before its slot is used again");
  const int s = static_cast<int>(submitted_ % kSlots);
  hand_over(s, batch, factor);
  compute_.synchronize();
  mark_begin();
  device::Profile profile(compute_);
  step(s);
  auto kernels = profile.finish();
  mark_end();
  at(s).done.record(compute_);
  ++submitted_;
  PL_TRY_VOID(touch(batch));
  return kernels;
}

// Table rows of the step, for saves that write differences.
template <typename T>
Result<void> CudaEngine<T>::touch(const features::Batch& batch) {
  if (config_.checkpoint.table_deltas == 0) return {};
  PL_TRY_VOID(hooks_.before_table_update());
  const auto& kinds = config_.schema.kinds();
  for (std::size_t k = 0; k < kinds.size(); ++k) {
    for (std::size_t f = 0; f < kinds[k].features.size(); ++f) {
      if (kinds[k].features[f].kind != features::Kind::kId) continue;
      hooks_.touch(batch.feature_int(static_cast<int>(k), static_cast<int>(f)));
    }
  }
  return {};
}

template <typename T>
StepResult CudaEngine<T>::take() {
  PL_CHECK(taken_ < submitted_, "a step was submitted");
  const int s = static_cast<int>(taken_ % kSlots);
  at(s).done.wait();
  const ops::StepDecision& decision = *result(s);
  const double idle = idle_s();
  ++taken_;
  return {decision.loss, {decision.applied != 0, decision.grad_norm}, idle};
}

template <typename T>
void CudaEngine<T>::mark_begin() {
  Marks& now = marks(submitted_);
  now.follows = std::exchange(follows_, true);
  now.begin.record(compute_);
}
template <typename T>
void CudaEngine<T>::mark_end() {
  marks(submitted_).end.record(compute_);
}
template <typename T>
double CudaEngine<T>::idle_s() const {
  const Marks& now = marks(taken_);
  if (!now.follows) return 0.0;
  return static_cast<double>(device::elapsed_ms(marks(taken_ - 1).end, now.begin)) * 1e-3;
}

template <typename T>
Result<void> CudaEngine<T>::to_host() {
  follows_ = false;
  PL_TRY_VOID(hooks_.before_table_update());
  train::to_host(compute_, state_.dense(), weights_.dense);
  train::to_host(compute_, state_.adam_m(), adam_m_);
  train::to_host(compute_, state_.adam_v(), adam_v_);
  train::to_host(compute_, state_.table(), weights_.table);
  train::to_host(compute_, state_.table_acc(), table_acc_);
  device::copy_to_host(compute_, &state_.adam_steps, adam_steps_, sizeof(state_.adam_steps));
  compute_.synchronize();
  return {};
}

template <typename T>
std::span<const float> CudaEngine<T>::score(const features::Batch& batch) {
  const int s = static_cast<int>(submitted_ % kSlots);
  Slot& slot = at(s);
  follows_ = false;
  slot.prepared.wait();
  ranker_->stage(batch, 0.0, slot.staged.data());
  device::copy_to_device(compute_, ranker_->slot_data(s), slot.staged.data(),
                         slot.staged.size_bytes());
  ranker_->forward(compute_, weights_.view(), s);
  return logits_.read(compute_, *ranker_, batch, static_cast<int>(config_.schema.actions().size()));
}

}  // namespace

Result<std::unique_ptr<StepEngine>> make_cuda_engine(const StepEngineOptions& options) {
  auto made = options.device.bf16 ? CudaEngine<BFloat16>::create(options)
                                  : CudaEngine<float>::create(options);
  if (!made) return with_advice(std::move(made.error()));
  return made;
}

Result<std::unique_ptr<Scorer>> make_cuda_scorer(const ScorerOptions& options) {
  auto made = options.device.bf16 ? CudaScorer<BFloat16>::create(options)
                                  : CudaScorer<float>::create(options);
  if (!made) return with_advice(std::move(made.error()));
  return made;
}

std::string cuda_engine_name(const DeviceChoice& device) { return ops::linear_device(device.name); }

}  // namespace paceline::train
