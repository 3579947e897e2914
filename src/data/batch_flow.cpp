#include "data/batch_flow.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace paceline::data {
namespace {

using pipeline::Filled;
using pipeline::WaitResult;

constexpr std::int64_t kAll = std::numeric_limits<std::int64_t>::max();

std::int64_t window_blocks(const Source& source, std::int64_t shuffle_window) {
  const auto blocks = static_cast<std::int64_t>(source.blocks().size());
  return std::clamp<std::int64_t>(shuffle_window, 1, std::max<std::int64_t>(1, blocks));
}

// The first window of a start; 0 when there are no rows.
std::int64_t first_window(const GlobalOrder& order, std::int64_t next_row) {
  return next_row == 0 ? 0 : order.window_of(next_row);
}

BlockSequence sequence_of(const Source& source, const BatchPipelineOptions& o,
                          const Position& start) {
  std::int64_t place = 0;
  if (start.next_row > 0) {
    const GlobalOrder order(source.blocks(), source.fingerprint(), o.seed, start.epoch,
                            o.shuffle_window);
    place = order.window(order.window_of(start.next_row)).first_place;
  }
  const auto blocks = static_cast<std::int64_t>(source.blocks().size());
  return {blocks, source.fingerprint(), o.seed, o.shuffle_window, start.epoch, place, o.epochs};
}

// Two windows, or in file order one block more than readers; no more than will ever be read.
std::uint32_t block_slots(const Source& source, const BatchPipelineOptions& o,
                          std::int64_t tickets) {
  const std::int64_t window = window_blocks(source, o.shuffle_window);
  const std::int64_t wanted =
      o.shuffle_window == 0 ? std::max<std::int64_t>(2, o.readers + 1) : 2 * window;
  return static_cast<std::uint32_t>(
      std::clamp<std::int64_t>(wanted, 1, std::max<std::int64_t>(1, tickets)));
}

}  // namespace

BatchFlow::BatchFlow(const Source& src, const features::Schema& sch,
                     const BatchPipelineOptions& opt, const Position& from)
    : source(src),
      schema(sch),
      options(opt),
      start(from),
      layout(sch, opt.limits),
      sequence(sequence_of(src, opt, from)),
      blocks("blocks", block_slots(src, opt, sequence.total()),
             [](std::uint32_t) { return features::RowBlock(); }),
      batches("batches", static_cast<std::uint32_t>(opt.depth + opt.leases + 1),
              [this](std::uint32_t) { return BatchSlot(layout); }),
      block_gate(opt.overlap ? kAll : 0),
      batch_gate(opt.overlap ? opt.depth : 0) {
  for (int r = 0; r < opt.readers; ++r) readers.push_back(std::make_unique<ReaderStatus>());
}

void BatchFlow::stop() {
  block_gate.stop();
  batch_gate.stop();
  blocks.stop();
  batches.stop();
}

std::string BatchFlow::stall_report() const {
  std::string text = batches.stall_report();
  const auto add = [&text](const std::string& part) {
    if (!part.empty()) text += (text.empty() ? "" : "; ") + part;
  };
  add(blocks.stall_report());
  for (std::size_t r = 0; r < readers.size(); ++r) {
    const std::int64_t block = readers[r]->block.load(std::memory_order_relaxed);
    if (block < 0) continue;
    const std::int64_t since = readers[r]->since_ns.load(std::memory_order_relaxed);
    add(fmt::format("reader {} has been reading {} for {:.1f} s", r,
                    source.blocks()[static_cast<std::size_t>(block)].where,
                    static_cast<double>(now_ns() - since) * 1e-9));
  }
  return text;
}

Result<void> read_blocks(BatchFlow& flow, ReaderStatus& status, const pipeline::StopFlag& stop) {
  while (!stop.requested()) {
    const PipelineState state = flow.blocks.claim();
    const auto ticket = static_cast<std::int64_t>(state.count);
    if (ticket >= flow.sequence.total()) return {};
    if (!flow.block_gate.pass(ticket)) return {};
    if (flow.blocks.acquire(state) != WaitResult::kReady) return {};
    status.holding = state;
    const std::int64_t block = flow.sequence.block(ticket);
    status.since_ns.store(now_ns(), std::memory_order_relaxed);
    status.block.store(block, std::memory_order_relaxed);
    auto read = flow.source.read(block, flow.blocks.slot(state));
    status.block.store(-1, std::memory_order_relaxed);
    if (!read) return read;
    status.holding.reset();
    flow.blocks.commit(state);
  }
  return {};
}

void hand_over_error(BatchFlow& flow, ReaderStatus& status, Error error) {
  status.block.store(-1, std::memory_order_relaxed);
  if (!status.holding) {
    // Not even started: the error takes the turn of the read that will not happen.
    const PipelineState state = flow.blocks.claim();
    if (static_cast<std::int64_t>(state.count) >= flow.sequence.total()) return;
    if (flow.blocks.acquire(state) != WaitResult::kReady) return;
    status.holding = state;
  }
  flow.blocks.commit_error(*status.holding, std::move(error));
  status.holding.reset();
}

Batcher::Batcher(BatchFlow& flow)
    : flow_(flow),
      cutter_(flow.schema, flow.layout),
      block_state_(make_pipeline_state(PipelineUserType::kConsumer, flow.blocks.num_stages())),
      batch_state_(make_pipeline_state(PipelineUserType::kProducer, flow.batches.num_stages())),
      position_(flow.start) {}

Result<void> Batcher::run() {
  std::int64_t first_row = flow_.start.next_row;
  // Without rows there is nothing to cut, however many epochs.
  if (flow_.source.rows() > 0) {
    for (std::int64_t e = flow_.start.epoch; e < flow_.options.epochs; ++e) {
      PL_TRY(const Step step, cut_epoch(e, first_row));
      if (step == Step::kStop) return {};
      first_row = 0;
    }
  }
  flow_.exhausted.store(true, std::memory_order_relaxed);
  PL_CHECK(!open_, "no open batch at the end of an epoch");
  if (flow_.batches.acquire(batch_state_) != WaitResult::kReady) return {};
  flow_.batches.commit_end(batch_state_);
  return {};
}

void Batcher::hand_over_error(Error error) {
  // Rows of a batch that is not full yet stay untrained: they come again at a resume.
  if (!open_ && flow_.batches.acquire(batch_state_) != WaitResult::kReady) return;
  open_ = false;
  flow_.exhausted.store(true, std::memory_order_relaxed);
  flow_.batches.commit_error(batch_state_, std::move(error));
}

Result<Batcher::Step> Batcher::cut_epoch(std::int64_t epoch, std::int64_t first_row) {
  const auto& o = flow_.options;
  const GlobalOrder order(flow_.source.blocks(), flow_.source.fingerprint(), o.seed, epoch,
                          o.shuffle_window);
  epoch_ = epoch;
  epoch_rows_ = order.rows();
  position_.epoch = epoch;
  position_.next_row = first_row;
  for (std::int64_t w = first_window(order, first_row); w < order.windows(); ++w) {
    PL_TRY(const Step step, cut_window(order, w, first_row));
    if (step == Step::kStop) return step;
  }
  return Step::kGoOn;
}

Result<Batcher::Step> Batcher::cut_window(const GlobalOrder& order, std::int64_t window,
                                          std::int64_t first_row) {
  const auto span = order.window(window);
  // Asked for before anything is read, so that without overlap nothing runs ahead. Windows behind
  // the last row of an epoch are empty: they are passed without a batch.
  if (span.rows > 0 && open() == Step::kStop) return Step::kStop;
  PL_TRY(const Step step, take_blocks(order, span));
  if (step == Step::kStop) return step;
  const Permutation rows = order.rows_of(window);
  for (std::int64_t k = std::max<std::int64_t>(0, first_row - span.first_row); k < span.rows; ++k) {
    const auto local = static_cast<std::int64_t>(rows(static_cast<std::uint64_t>(k)));
    const auto after =
        std::upper_bound(held_.begin(), held_.end(), local,
                         [](std::int64_t row, const Held& h) { return row < h.first_row; });
    const Held& held = *(after - 1);
    PL_TRY(const Step appended,
           append(flow_.blocks.slot(held.state), held.block, local - held.first_row));
    if (appended == Step::kStop) return appended;
  }
  for (const Held& held : held_) flow_.blocks.release(held.state);
  return Step::kGoOn;
}

Result<Batcher::Step> Batcher::take_blocks(const GlobalOrder& order,
                                           const GlobalOrder::Window& window) {
  held_.clear();
  std::int64_t rows = 0;
  const auto count = window.last_place - window.first_place;
  flow_.block_gate.open_to(static_cast<std::int64_t>(block_state_.count) + count);
  for (std::int64_t place = window.first_place; place < window.last_place; ++place) {
    if (flow_.blocks.wait(block_state_) != WaitResult::kReady) return Step::kStop;
    if (flow_.blocks.filled(block_state_) == Filled::kError) {
      return flow_.blocks.take_error(block_state_);
    }
    const std::int64_t index = order.block_at(place);
    const auto& block = flow_.blocks.slot(block_state_);
    PL_CHECK(block.rows == flow_.source.blocks()[static_cast<std::size_t>(index)].rows,
             "a source reads as many rows as it lists");
    held_.push_back({block_state_, index, rows});
    rows += block.rows;
    ++block_state_;
  }
  return Step::kGoOn;
}

Batcher::Step Batcher::open() {
  if (open_) return Step::kGoOn;
  if (!flow_.batch_gate.pass(static_cast<std::int64_t>(batch_state_.count))) return Step::kStop;
  if (flow_.batches.acquire(batch_state_) != WaitResult::kReady) return Step::kStop;
  cutter_.begin(flow_.batches.slot(batch_state_).batch);
  open_ = true;
  return Step::kGoOn;
}

Result<Batcher::Step> Batcher::append(const features::RowBlock& block, std::int64_t block_index,
                                      std::int64_t row) {
  const std::int64_t tokens = cutter_.tokens_of(block, row);
  const auto& limits = flow_.layout.limits();
  if (tokens > limits.tokens) {
    return Error(
        Code::kCorruptData,
        fmt::format("{}, row {} of this row group (rows count from 0): found an example of "
                    "{} tokens, allowed are batch.tokens = {}; a larger batch.tokens or a "
                    "smaller batch.history_len makes it fit",
                    flow_.source.blocks()[static_cast<std::size_t>(block_index)].where, row, tokens,
                    limits.tokens));
  }
  if (open() == Step::kStop) return Step::kStop;
  if (!cutter_.append(block, row)) {
    commit();
    if (open() == Step::kStop) return Step::kStop;
    PL_CHECK(cutter_.append(block, row), "an empty batch takes any example within its limit");
  }
  ++position_.next_row;
  ++position_.rows;
  const auto& batch = flow_.batches.slot(batch_state_).batch;
  const bool full = batch.examples() == limits.examples || batch.tokens() == limits.tokens;
  if (full || position_.next_row == epoch_rows_) commit();
  return Step::kGoOn;
}

void Batcher::commit() {
  BatchSlot& slot = flow_.batches.slot(batch_state_);
  ++position_.batches;
  slot.epoch = epoch_;
  slot.number = static_cast<std::int64_t>(batch_state_.count);
  slot.last_of_epoch = position_.next_row == epoch_rows_;
  slot.position = position_;
  if (slot.last_of_epoch) {
    slot.position.epoch = epoch_ + 1;
    slot.position.next_row = 0;
    if (epoch_ + 1 == flow_.options.epochs) flow_.exhausted.store(true, std::memory_order_relaxed);
  }
  open_ = false;
  flow_.batches.commit(batch_state_);
  ++batch_state_;
}

}  // namespace paceline::data
