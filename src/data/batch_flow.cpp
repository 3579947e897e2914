#include "data/batch_flow.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace paceline::data {
namespace {

using pipeline::WaitResult;

constexpr std::int64_t kOne = 1;
constexpr std::int64_t kAll = std::numeric_limits<std::int64_t>::max();

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

std::vector<std::unique_ptr<BatchSlot>> allocate(const features::BatchLayout& layout,
                                                 std::int64_t count) {
  std::vector<std::unique_ptr<BatchSlot>> buffers;
  for (std::int64_t i = 0; i < count; ++i) buffers.push_back(std::make_unique<BatchSlot>(layout));
  return buffers;
}

}  // namespace

BatchPipelineMemory reckon_memory(const Source& source, const features::Schema& schema,
                                  const BatchPipelineOptions& o) {
  BatchPipelineMemory m;
  const auto& blocks = source.blocks();
  const auto count = static_cast<std::int64_t>(blocks.size());
  for (const auto& block : blocks) m.block_bytes = std::max(m.block_bytes, block.bytes);
  m.batch_buffers = std::int64_t{o.depth} + o.leases + 1;
  m.batch_bytes = static_cast<std::int64_t>(features::BatchLayout(schema, o.limits).total_bytes());
  const std::int64_t window = std::clamp<std::int64_t>(o.shuffle_window, 1, std::max(count, kOne));
  const std::int64_t least = 2 * window;
  m.block_slots = least;
  if (o.shuffle_window == 0) {
    m.block_slots = std::max<std::int64_t>(least, std::int64_t{o.readers} + 1);
    if (o.memory_limit > 0 && m.block_bytes > 0) {
      const std::int64_t left = o.memory_limit - o.snapshot_bytes - m.batch_buffers * m.batch_bytes;
      const std::int64_t fit = left / m.block_bytes;
      m.block_slots = std::clamp(fit, least, m.block_slots);
    }
  }
  // No more than will ever be read.
  if (count == 0 || o.epochs <= m.block_slots / count) {
    m.block_slots = std::min(m.block_slots, std::max(kOne, o.epochs * count));
  }
  return m;
}

BatchFlow::BatchFlow(const Source& src, const features::Schema& sch,
                     const BatchPipelineOptions& opt, const BatchPipelineMemory& reckoned,
                     const Position& from)
    : source(src),
      schema(sch),
      options(opt),
      memory(reckoned),
      start(from),
      layout(sch, opt.limits),
      sequence(sequence_of(src, opt, from)),
      buffers(allocate(layout, reckoned.batch_buffers)),
      blocks("blocks", static_cast<std::uint32_t>(reckoned.block_slots),
             [](std::uint32_t) { return features::RowBlock(); }),
      // One place more than buffers: the end and errors need none.
      batches("batches", static_cast<std::uint32_t>(reckoned.batch_buffers + 1),
              [](std::uint32_t) { return nullptr; }),
      given_back("buffers given back", static_cast<std::uint32_t>(reckoned.batch_buffers),
                 [](std::uint32_t) { return nullptr; }),
      block_gate(opt.overlap && opt.fetch_at_creation ? kAll : 0),
      batch_gate(opt.overlap && opt.fetch_at_creation ? opt.depth : 0) {
  for (const auto& buffer : buffers) give_back(buffer.get());
  for (int r = 0; r < opt.readers; ++r) readers.push_back(std::make_unique<ReaderStatus>());
}

void BatchFlow::give_back(BatchSlot* buffer) {
  const PipelineState state = given_back.claim();
  // There are as many places as buffers: this waits for nobody.
  if (given_back.acquire(state) != WaitResult::kReady) return;
  given_back.slot(state) = buffer;
  given_back.commit(state);
}

void BatchFlow::stop() {
  block_gate.stop();
  batch_gate.stop();
  blocks.stop();
  given_back.stop();
  batches.stop();
}

std::string BatchFlow::stall_report() const {
  std::string text = batches.stall_report();
  const auto add = [&text](const std::string& part) {
    if (!part.empty()) text += (text.empty() ? "" : "; ") + part;
  };
  add(given_back.stall_report());
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
    features::RowBlock& out = flow.blocks.slot(state);
    out.bad_rows.clear();
    status.since_ns.store(now_ns(), std::memory_order_relaxed);
    status.block.store(block, std::memory_order_relaxed);
    auto read = flow.source.read(block, out);
    status.block.store(-1, std::memory_order_relaxed);
    if (!read && flow.options.skip_bad_blocks == 0) return read;
    status.holding.reset();
    if (read) {
      flow.blocks.commit(state);
    } else {
      flow.blocks.commit_error(state, std::move(read.error()));  // the batcher's to judge
    }
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

}  // namespace paceline::data
