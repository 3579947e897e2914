#include "model/ranker_cuda.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "model/ranker_cuda_impl.hpp"

namespace paceline::model {
namespace {

constexpr std::size_t kWorkspaceBytes = std::size_t{64} << 20;
constexpr int kLane = 8;  // values of one access
constexpr std::int64_t kMaxExamples = 65534;
constexpr int kMaxNormWidth = 8192;

std::int64_t pad(std::int64_t n) { return (n + kLane - 1) / kLane * kLane; }

template <typename V>
void upload(const device::Stream& stream, V* to, const std::vector<V>& from) {
  if (!from.empty()) device::copy_to_device(stream, to, from.data(), from.size() * sizeof(V));
}

Error refused(const char* key, std::int64_t is, const std::string& allowed) {
  return Error(Code::kInvalidArgument,
               fmt::format("{} = {}: on the GPU it is {}; train.device = \"cpu\" takes others", key,
                           is, allowed));
}

Result<void> check_sizes(const ModelConfig& c, const features::BatchLimits& limits, bool bf16) {
  if (c.width % kLane != 0 || c.width > kMaxNormWidth) {
    return refused("model.width", c.width,
                   fmt::format("a multiple of {} up to {}", kLane, kMaxNormWidth));
  }
  if (c.ffn % kLane != 0)
    return refused("model.ffn", c.ffn, fmt::format("a multiple of {}", kLane));
  if (bf16 && c.head_dim != 64 && c.head_dim != 128) {
    return refused("model.head_dim", c.head_dim,
                   "64 or 128 with train.precision = \"bf16\", else a multiple of 16 up to 128");
  }
  if (c.head_dim % 16 != 0 || c.head_dim > 128) {
    return refused("model.head_dim", c.head_dim, "a multiple of 16 up to 128");
  }
  if (c.query_width() > kMaxNormWidth) {
    return refused("model.query_heads", c.query_heads,
                   fmt::format("at most {} / model.head_dim", kMaxNormWidth));
  }
  if (limits.examples > kMaxExamples) {
    return refused("batch.examples", limits.examples, fmt::format("at most {}", kMaxExamples));
  }
  return {};
}

}  // namespace

template <typename T>
RankerCuda<T>::Impl::Impl(const ModelConfig& c, const features::Schema& s,
                          const features::BatchLimits& l, int slot_count, bool train)
    : config(c),
      schema(s),
      limits(l),
      batch_layout(s, l),
      training(train),
      actions(static_cast<int>(s.actions().size())),
      targets(static_cast<int>(s.targets().size())),
      eps(static_cast<float>(c.norm_eps)),
      multiplier(std::sqrt(static_cast<float>(c.width))),
      action_scale(static_cast<float>(model::action_scale(c.width))),
      layout(c, s),
      offsets(block_offsets(layout, c.layers)),
      token_weights(token_weight_offsets(layout, s, c.table_width)),
      final_norm_scale(layout.find("final_norm.scale").offset),
      head_weight(layout.find("head.weight").offset),
      sizes{Capacity(s, l), 0, pad(actions + targets), {}, {}, {}},
      slots(static_cast<std::size_t>(slot_count)) {
  for (int kind = 0; kind < static_cast<int>(s.kinds().size()); ++kind) {
    std::vector<ops::TokenInput> inputs;
    for (const auto& f : s.kinds()[static_cast<std::size_t>(kind)].features) {
      inputs.push_back(input_of(f));
    }
    columns.emplace_back(inputs, c.table_width);
    sizes.entries.push_back(sizes.capacity.entries(s, kind));
    sizes.k_padded.push_back(columns.back().k_padded);
    sizes.lookups.push_back(ops::lookups_per_entry(inputs));
    sizes.kind_rows += sizes.entries.back();
    table_places += sizes.entries.back() * sizes.lookups.back();
  }
}

template <typename T>
std::int64_t RankerCuda<T>::Impl::first_row(int kind) const {
  std::int64_t row = 0;
  for (int k = 0; k < kind; ++k) row += sizes.entries[static_cast<std::size_t>(k)];
  return row;
}

template <typename T>
const std::int32_t* RankerCuda<T>::Impl::count_of(const SlotCuda& slot, int kind) const {
  const std::int32_t* counts = slot.tail->counts;
  if (kind == schema.history_kind()) return counts + 2;
  return kind == schema.candidate_kind() ? counts + 3 : counts;
}

template <typename T>
void RankerCuda<T>::Impl::place(device::Arena& arena) {
  act = place_activations<T>(arena, config, sizes, training);
  const std::int64_t rope_values = sizes.capacity.positions * (config.head_dim / 2);
  rope_cos = arena.take<float>(rope_values);
  rope_sin = arena.take<float>(rope_values);
  action_bits = arena.take<std::int32_t>(actions);
  action_weights = arena.take<float>(actions);
  weight_column.clear();
  padded_column.clear();
  std::int64_t with_lookups = 0, lookups = 0;
  for (std::size_t k = 0; k < columns.size(); ++k) {
    weight_column.push_back(arena.take<std::int32_t>(columns[k].k_padded));
    padded_column.push_back(arena.take<std::int32_t>(columns[k].width));
    for (const auto& f : schema.kinds()[k].features) {
      lookups += f.kind == features::Kind::kId ? f.hashes : 0;
    }
    with_lookups += sizes.lookups[k] > 0 ? 1 : 0;
  }
  workspace = arena.take<std::byte>(static_cast<std::int64_t>(kWorkspaceBytes));
  for (auto& slot : slots) {
    slot.inputs.clear();
    slot.batch = arena.take<std::byte>(
        static_cast<std::int64_t>(batch_layout.total_bytes() + sizeof(SlotTail)));
    for (const auto& kind : schema.kinds()) {
      slot.inputs.push_back(
          arena.take<ops::TokenInputCuda>(static_cast<std::int64_t>(kind.features.size())));
    }
    slot.table_kinds = arena.take<ops::TableKindCuda>(with_lookups);
    slot.table_lookups = arena.take<ops::TableLookupCuda>(lookups);
    slot.heads = arena.take<ops::RegressionHead>(targets);
    if (slot.batch != nullptr) {
      slot.tail = reinterpret_cast<SlotTail*>(slot.batch + batch_layout.total_bytes());
    }
  }
}

template <typename T>
void RankerCuda<T>::Impl::describe_slot(const device::Stream& stream, SlotCuda& slot) {
  std::vector<ops::TableKindCuda> table_kinds;
  std::vector<ops::TableLookupCuda> lookups;
  std::int64_t place = 0;
  for (std::size_t k = 0; k < columns.size(); ++k) {
    const int kind = static_cast<int>(k);
    std::vector<ops::TokenInputCuda> inputs;
    ops::TableKindCuda table;
    table.count = count_of(slot, kind);
    table.capacity = static_cast<std::int32_t>(sizes.entries[k]);
    table.per_entry = static_cast<std::int32_t>(sizes.lookups[k]);
    table.first_place = static_cast<std::int32_t>(place);
    table.first_lookup = static_cast<std::int32_t>(lookups.size());
    table.dx = act.kinds[k].dx;
    table.k_padded = sizes.k_padded[k];
    for (std::size_t f = 0; f < schema.kinds()[k].features.size(); ++f) {
      const auto& feature = schema.kinds()[k].features[f];
      const ops::TokenInput input = input_of(feature);
      const std::int32_t first = columns[k].first_column[f];
      std::byte* values = at<std::byte>(slot, batch_layout.features(kind)[f].array);
      inputs.push_back({input.column, input.width, first, values});
      if (feature.kind != features::Kind::kId) continue;
      const auto* ids = reinterpret_cast<const std::int32_t*>(values);
      for (std::int32_t h = 0; h < feature.hashes; ++h) {
        lookups.push_back({ids + h, feature.hashes, first + h * config.table_width});
      }
    }
    upload(stream, slot.inputs[k], inputs);
    if (sizes.lookups[k] > 0) table_kinds.push_back(table);
    place += sizes.entries[k] * sizes.lookups[k];
  }
  upload(stream, slot.table_kinds, table_kinds);
  upload(stream, slot.table_lookups, lookups);
  std::vector<ops::RegressionHead> heads;
  for (std::size_t t = 0; t < schema.targets().size(); ++t) {
    heads.push_back(head_of(schema.targets()[t]));
    heads.back().target = at<float>(slot, batch_layout.targets[t]);
  }
  upload(stream, slot.heads, heads);
}

template <typename T>
void RankerCuda<T>::Impl::describe(const device::Stream& stream) {
  const ops::RopeTable table =
      ops::rope_table(sizes.capacity.positions, config.head_dim, config.rope_base);
  upload(stream, rope_cos, table.cos);
  upload(stream, rope_sin, table.sin);
  std::vector<std::int32_t> bits;
  std::vector<float> weights;
  for (const auto& action : schema.actions()) {
    bits.push_back(action.bit);
    weights.push_back(action.train ? static_cast<float>(action.weight) : 0.0F);
  }
  upload(stream, action_bits, bits);
  upload(stream, action_weights, weights);
  for (std::size_t k = 0; k < columns.size(); ++k) {
    upload(stream, weight_column[k], columns[k].weight_column);
    upload(stream, padded_column[k], columns[k].padded_column);
  }
  for (auto& slot : slots) describe_slot(stream, slot);
}

template <typename T>
Result<LinearLayerCuda> RankerCuda<T>::Impl::layer(std::int64_t rows, std::int64_t in,
                                                   std::int64_t out, std::int64_t y_stride,
                                                   bool residual, ops::LinearEpilogue forward,
                                                   ops::LinearEpilogue data) {
  constexpr auto kType = kBf16 ? ops::LinearType::kBFloat16 : ops::LinearType::kFloat;
  ops::LinearCudaShape shape;
  shape.rows = rows;
  shape.in = in;
  shape.out = out;
  shape.x_stride = in;
  shape.y_stride = y_stride;
  shape.type = shape.result = kType;
  shape.split = training;
  shape.epilogue = kBf16 ? forward : ops::LinearEpilogue::kNone;
  shape.add = residual;
  LinearLayerCuda made;
  PL_TRY(made.forward, linear->prepare(shape));
  if (!training) return made;
  shape.add = false;
  shape.kind = ops::LinearKind::kDataGrad;
  shape.epilogue = kBf16 ? data : ops::LinearEpilogue::kNone;
  PL_TRY(made.data, linear->prepare(shape));
  shape.kind = ops::LinearKind::kWeightGrad;
  shape.epilogue = ops::LinearEpilogue::kNone;
  shape.result = ops::LinearType::kFloat;
  PL_TRY(made.weight, linear->prepare(shape));
  return made;
}

template <typename T>
Result<void> RankerCuda<T>::Impl::prepare_products() {
  using enum ops::LinearEpilogue;
  const std::int64_t width = config.width, ffn = config.ffn, q = config.query_width(),
                     kv = 2 * config.key_width();
  const std::int64_t tokens = sizes.capacity.tokens, candidates = sizes.capacity.candidates;
  for (int l = 0; l < config.layers; ++l) {
    BlockProductsCuda& p = products.emplace_back();
    const std::int64_t rows = rows_of(l);
    if (is_last(l)) {
      PL_TRY(p.qkv, layer(tokens, width, kv, kv, false, kNone, kNone));
      PL_TRY(p.query, layer(candidates, width, q, q, false, kNone, kNone));
    } else {
      PL_TRY(p.qkv, layer(tokens, width, q + kv, q + kv, false, kNone, kNone));
    }
    PL_TRY(p.out, layer(rows, q, width, width, true, kNone, kNone));
    PL_TRY(p.up, layer(rows, width, ffn, ffn, false, kGelu, kNone));
    PL_TRY(p.down, layer(rows, ffn, width, width, true, kNone, kGeluGrad));
  }
  // Logits are fp32, their gradient is not.
  PL_TRY(head, layer(candidates, width, actions + targets, sizes.head_stride, false, kNone, kNone));
  ops::LinearCudaShape logits;
  logits.rows = candidates;
  logits.in = logits.x_stride = width;
  logits.out = actions + targets;
  logits.y_stride = sizes.head_stride;
  logits.type = kBf16 ? ops::LinearType::kBFloat16 : ops::LinearType::kFloat;
  logits.result = ops::LinearType::kFloat;
  logits.split = training;
  PL_TRY(head.forward, linear->prepare(logits));
  for (std::size_t k = 0; k < columns.size(); ++k) {
    LinearLayerCuda& p = kind_products.emplace_back();
    if (token_weights[k] < 0 || sizes.entries[k] == 0) continue;
    PL_TRY(p, layer(sizes.entries[k], columns[k].k_padded, width, width, false, kNone, kNone));
  }
  return {};
}

template <typename T>
Result<void> RankerCuda<T>::Impl::allocate(const std::string& device,
                                           const ops::LinearAlgorithms& known) {
  device::Arena counting;
  place(counting);
  PL_TRY(memory, device::Memory::create(counting.used(), "the ranker's activations and batches"));
  device::Arena arena(memory);
  place(arena);
  const device::Stream stream("set-up");
  describe(stream);
  stream.synchronize();
  linear = std::make_unique<ops::LinearCuda>(device, workspace, kWorkspaceBytes, known);
  return prepare_products();
}

template <typename T>
RankerCuda<T>::RankerCuda(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
template <typename T>
RankerCuda<T>::~RankerCuda() = default;

template <typename T>
Result<std::unique_ptr<RankerCuda<T>>> RankerCuda<T>::create(
    const ModelConfig& config, const features::Schema& schema, const features::BatchLimits& limits,
    const std::string& device, int slots, bool training, const ops::LinearAlgorithms& known) {
  PL_CHECK(slots >= 1, "a ranker has a batch on the device");
  PL_TRY_VOID(check_sizes(config, limits, Impl::kBf16));
  auto impl = std::make_unique<Impl>(config, schema, limits, slots, training);
  PL_TRY_VOID(impl->allocate(device, known));
  return std::unique_ptr<RankerCuda>(new RankerCuda(std::move(impl)));
}

template <typename T>
std::size_t RankerCuda<T>::slot_bytes() const {
  return impl_->batch_layout.total_bytes() + sizeof(SlotTail);
}
template <typename T>
std::byte* RankerCuda<T>::slot_data(int slot) const {
  return impl_->slots[static_cast<std::size_t>(slot)].batch;
}

template <typename T>
void RankerCuda<T>::stage(const features::Batch& batch, double factor, std::byte* host) const {
  const std::size_t bytes = impl_->batch_layout.total_bytes();
  // Targets are a batch's last arrays: those that the ranker does not know are left out.
  PL_CHECK(batch.layout().total_bytes() >= bytes &&
               batch.layout().dataset_row.offset == impl_->batch_layout.dataset_row.offset,
           "the batch was cut with the ranker's limits");
  std::memcpy(host, batch.data(), bytes);
  const SlotTail tail{
      {batch.examples(), batch.tokens(), batch.history_tokens(), batch.candidate_tokens()}, factor};
  std::memcpy(host + bytes, &tail, sizeof(tail));
}

template <typename T>
const double* RankerCuda<T>::factor(int slot) const {
  return &impl_->slots[static_cast<std::size_t>(slot)].tail->factor;
}

template <typename T>
const double* RankerCuda<T>::loss_value() const {
  return impl_->act.loss;
}
template <typename T>
const float* RankerCuda<T>::logits() const {
  return impl_->act.head;
}
template <typename T>
std::int64_t RankerCuda<T>::logit_stride() const {
  return impl_->sizes.head_stride;
}
template <typename T>
std::int64_t RankerCuda<T>::candidate_capacity() const {
  return impl_->sizes.capacity.candidates;
}
template <typename T>
float RankerCuda<T>::action_scale() const {
  return impl_->action_scale;
}

template <typename T>
ops::TableSourcesCuda RankerCuda<T>::table_sources(int slot) const {
  const SlotCuda& s = impl_->slots[static_cast<std::size_t>(slot)];
  int kinds = 0;
  for (const std::int64_t n : impl_->sizes.lookups) kinds += n > 0 ? 1 : 0;
  return {s.table_kinds, kinds, s.table_lookups};
}
template <typename T>
std::int64_t RankerCuda<T>::table_places() const {
  return impl_->table_places;
}

template <typename T>
void RankerCuda<T>::set_tuning(int candidates) {
  impl_->tuning = candidates;
}
template <typename T>
ops::LinearAlgorithms RankerCuda<T>::algorithms() const {
  return impl_->linear->algorithms();
}
template <typename T>
int RankerCuda<T>::outputs() const {
  return impl_->actions + impl_->targets;
}
template <typename T>
const ParameterLayout& RankerCuda<T>::layout() const {
  return impl_->layout;
}
template <typename T>
std::size_t RankerCuda<T>::memory_bytes() const {
  return impl_->memory.size_bytes();
}

template class RankerCuda<float>;
template class RankerCuda<device::BFloat16>;

}  // namespace paceline::model
