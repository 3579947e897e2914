#include "data/batcher.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/log.hpp"

namespace paceline::data {
namespace {

using pipeline::Filled;
using pipeline::WaitResult;

// The first window of a start; 0 when there are no rows.
std::int64_t first_window(const GlobalOrder& order, std::int64_t next_row) {
  return next_row == 0 ? 0 : order.window_of(next_row);
}

// Damage of the data. Storage that cannot be reached is no bad data: it may come back.
bool may_skip(const Error& error) { return error.code() == Code::kCorruptData; }

Error no_more_skips(const char* key, std::int64_t allowed, const char* what,
                    const std::string& why) {
  return Error(Code::kCorruptData,
               allowed == 0 ? why
                            : fmt::format("{} ({} = {} {} were skipped in this epoch before it)",
                                          why, key, allowed, what));
}

}  // namespace

Batcher::Batcher(BatchFlow& flow)
    : flow_(flow),
      cutter_(flow.schema, flow.layout),
      block_state_(make_pipeline_state(PipelineUserType::kConsumer, flow.blocks.num_stages())),
      batch_state_(make_pipeline_state(PipelineUserType::kProducer, flow.batches.num_stages())),
      buffer_state_(make_pipeline_state(PipelineUserType::kConsumer, flow.given_back.num_stages())),
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
  PL_CHECK(slot_ == nullptr, "no open batch at the end of an epoch");
  if (flow_.batches.acquire(batch_state_) != WaitResult::kReady) return {};
  flow_.skipped_in_all = position_.skipped;
  flow_.batches.commit_end(batch_state_);
  return {};
}

void Batcher::hand_over_error(Error error) {
  // Rows of a batch that is not full yet stay untrained: they come again at a resume.
  slot_ = nullptr;
  if (flow_.batches.acquire(batch_state_) != WaitResult::kReady) return;
  flow_.exhausted.store(true, std::memory_order_relaxed);
  flow_.batches.commit_error(batch_state_, std::move(error));
}

Result<Batcher::Step> Batcher::cut_epoch(std::int64_t epoch, std::int64_t first_row) {
  const auto& o = flow_.options;
  const GlobalOrder order(flow_.source.blocks(), flow_.source.fingerprint(), o.seed, epoch,
                          o.shuffle_window);
  if (epoch != flow_.start.epoch) position_.skipped_rows = position_.skipped_blocks = 0;
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
  const std::int64_t from = std::max<std::int64_t>(0, first_row - span.first_row);
  const auto row_at = [&rows](std::int64_t k) {
    return static_cast<std::int64_t>(rows(static_cast<std::uint64_t>(k)));
  };
  // Blocks that were skipped before this start count once.
  if (std::any_of(held_.begin(), held_.end(), [](const Held& h) { return h.broken; })) {
    for (std::int64_t k = 0; k < from; ++k) held_at(row_at(k)).counted = true;
  }
  for (std::int64_t k = from; k < span.rows; ++k) {
    const std::int64_t row = row_at(k);
    Held& held = held_at(row);
    PL_TRY(const Step taken, take_row(held, row - held.first_row));
    if (taken == Step::kStop) return taken;
  }
  for (const Held& held : held_) flow_.blocks.release(held.state);
  return Step::kGoOn;
}

Batcher::Held& Batcher::held_at(std::int64_t window_row) {
  const auto after =
      std::upper_bound(held_.begin(), held_.end(), window_row,
                       [](std::int64_t row, const Held& h) { return row < h.first_row; });
  return *(after - 1);
}

Result<Batcher::Step> Batcher::take_blocks(const GlobalOrder& order,
                                           const GlobalOrder::Window& window) {
  held_.clear();
  std::int64_t rows = 0;
  const auto count = window.last_place - window.first_place;
  flow_.block_gate.open_to(static_cast<std::int64_t>(block_state_.count) + count);
  for (std::int64_t place = window.first_place; place < window.last_place; ++place) {
    if (flow_.blocks.wait(block_state_) != WaitResult::kReady) return Step::kStop;
    Held held{block_state_, order.block_at(place), rows, false, false, {}};
    const auto& info = flow_.source.blocks()[static_cast<std::size_t>(held.block)];
    if (flow_.blocks.filled(block_state_) == Filled::kError) {
      Error error = flow_.blocks.take_error(block_state_);
      if (flow_.options.skip_bad_blocks == 0 || !may_skip(error)) return error;
      held.broken = true;
      held.why = error.text();
    } else {
      PL_CHECK(flow_.blocks.slot(block_state_).rows == info.rows,
               "a source reads as many rows as it lists");
    }
    rows += info.rows;
    held_.push_back(std::move(held));
    ++block_state_;
  }
  return Step::kGoOn;
}

Batcher::Step Batcher::open() {
  if (slot_ != nullptr) return Step::kGoOn;
  if (!flow_.batch_gate.pass(static_cast<std::int64_t>(batch_state_.count))) return Step::kStop;
  if (flow_.given_back.wait(buffer_state_) != WaitResult::kReady) return Step::kStop;
  slot_ = flow_.given_back.slot(buffer_state_);
  flow_.given_back.release(buffer_state_);
  ++buffer_state_;
  if (slot_->until_free) {
    slot_->until_free();
    slot_->until_free = nullptr;
  }
  cutter_.begin(slot_->batch);
  return Step::kGoOn;
}

std::string Batcher::refusal(const Held& held, std::int64_t row) const {
  const auto& block = flow_.blocks.slot(held.state);
  const auto bad =
      std::lower_bound(block.bad_rows.begin(), block.bad_rows.end(), row,
                       [](const features::BadRow& b, std::int64_t r) { return b.row < r; });
  if (bad != block.bad_rows.end() && bad->row == row) return bad->why;
  const std::int64_t tokens = cutter_.tokens_of(block, row);
  if (tokens <= flow_.layout.limits().tokens) return {};
  const auto& info = flow_.source.blocks()[static_cast<std::size_t>(held.block)];
  return fmt::format(
      "{}, row {} (rows count from 0): found an example of {} tokens, allowed are batch.tokens = "
      "{}; a larger batch.tokens or a smaller batch.history_len makes it fit",
      info.where, info.row_of_file + row, tokens, flow_.layout.limits().tokens);
}

Result<Batcher::Step> Batcher::take_row(Held& held, std::int64_t row) {
  if (held.broken) {
    if (!held.counted) PL_TRY_VOID(skip_block(held));
    ++position_.skipped.rows_of_bad_blocks;
    pass();
    return Step::kGoOn;
  }
  if (const std::string why = refusal(held, row); !why.empty()) {
    PL_TRY_VOID(skip_row(why));
    pass();
    return Step::kGoOn;
  }
  return append(flow_.blocks.slot(held.state), row);
}

Result<void> Batcher::skip_row(const std::string& why) {
  const std::int64_t allowed = flow_.options.skip_bad_rows;
  if (position_.skipped_rows >= allowed) {
    return no_more_skips("data.skip_bad_rows", allowed, "bad rows", why);
  }
  ++position_.skipped_rows;
  ++position_.skipped.bad_rows;
  log::warning(fmt::format("row skipped ({} of data.skip_bad_rows = {} in this epoch): {}",
                           position_.skipped_rows, allowed, why));
  return {};
}

Result<void> Batcher::skip_block(Held& held) {
  const std::int64_t allowed = flow_.options.skip_bad_blocks;
  if (position_.skipped_blocks >= allowed) {
    return no_more_skips("data.skip_bad_blocks", allowed, "bad blocks", held.why);
  }
  held.counted = true;
  ++position_.skipped_blocks;
  ++position_.skipped.bad_blocks;
  log::warning(fmt::format(
      "row group of {} rows skipped ({} of data.skip_bad_blocks = {} in this epoch): {}",
      flow_.source.blocks()[static_cast<std::size_t>(held.block)].rows, position_.skipped_blocks,
      allowed, held.why));
  return {};
}

Result<Batcher::Step> Batcher::append(const features::RowBlock& block, std::int64_t row) {
  if (open() == Step::kStop) return Step::kStop;
  if (!cutter_.append(block, row)) {
    commit();
    if (open() == Step::kStop) return Step::kStop;
    PL_CHECK(cutter_.append(block, row), "an empty batch takes any example within its limit");
  }
  pass();
  const auto& limits = flow_.layout.limits();
  if (slot_ != nullptr &&
      (slot_->batch.examples() == limits.examples || slot_->batch.tokens() == limits.tokens)) {
    commit();
  }
  return Step::kGoOn;
}

// The next row of the order was cut or skipped.
void Batcher::pass() {
  ++position_.next_row;
  ++position_.rows;
  if (position_.next_row == epoch_rows_ && slot_ != nullptr) commit();
}

void Batcher::commit() {
  BatchSlot& slot = *slot_;
  if (slot.batch.examples() == 0) {
    // The rest of the epoch was skipped: the buffer goes back unused.
    slot_ = nullptr;
    flow_.give_back(&slot);
    return;
  }
  ++position_.batches;
  slot.epoch = epoch_;
  slot.number = static_cast<std::int64_t>(batch_state_.count);
  slot.last_of_epoch = position_.next_row == epoch_rows_;
  slot.position = position_;
  if (slot.last_of_epoch) {
    slot.position.epoch = epoch_ + 1;
    slot.position.next_row = 0;
    slot.position.skipped_rows = slot.position.skipped_blocks = 0;
    if (epoch_ + 1 == flow_.options.epochs) flow_.exhausted.store(true, std::memory_order_relaxed);
  }
  slot.global = {slot.batch.examples(), slot.batch.tokens(), slot.batch.candidate_tokens()};
  slot.cuts = slot.batch.cuts();
  keep_share(slot);
  slot_ = nullptr;
  // A place is free: there are more places than buffers.
  if (flow_.batches.acquire(batch_state_) != WaitResult::kReady) return;
  flow_.batches.slot(batch_state_) = &slot;
  flow_.batches.commit(batch_state_);
  ++batch_state_;
}

void Batcher::keep_share(BatchSlot& slot) const {
  const std::int64_t ranks = flow_.options.ranks;
  if (ranks == 1) return;
  // An example belongs to rank floor(ranks x its first token / tokens of the batch).
  const auto starts = slot.batch.cu_tokens();
  const std::int64_t tokens = slot.batch.tokens();
  const auto first_of = [&](std::int64_t rank) {
    const auto* at = std::lower_bound(
        starts.data(), starts.data() + slot.batch.examples(), rank,
        [&](std::int32_t start, std::int64_t r) { return start * ranks / tokens < r; });
    return static_cast<std::int32_t>(at - starts.data());
  };
  const std::int64_t rank = flow_.options.rank;
  features::keep_examples(slot.batch, first_of(rank), first_of(rank + 1));
}

}  // namespace paceline::data
