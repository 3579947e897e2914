#include "data/batch_pipeline.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "core/bytes.hpp"
#include "core/log.hpp"
#include "data/batch_flow.hpp"
#include "data/batcher.hpp"

namespace paceline::data {
namespace {

using pipeline::Filled;
using pipeline::WaitResult;

// How long the destructor waits for reads that are under way, all together and then each.
constexpr auto kGrace = std::chrono::milliseconds(1500);
constexpr auto kGraceEach = std::chrono::milliseconds(50);
constexpr int kMaxDepth = 1 << 16;
constexpr auto kBetweenLooks = std::chrono::milliseconds(100);

Error bad_option(const char* name, std::int64_t found, const char* allowed) {
  return Error(Code::kInvalidArgument,
               fmt::format("batch pipeline: {} is {}, allowed is {}", name, found, allowed));
}

Result<void> check_options(const BatchPipelineOptions& o) {
  if (o.depth < 1 || o.depth > kMaxDepth) return bad_option("depth", o.depth, "1 to 65536");
  if (o.readers < 1 || o.readers > 1024) return bad_option("readers", o.readers, "1 to 1024");
  if (o.leases < 1 || o.leases > kMaxDepth) return bad_option("leases", o.leases, "1 to 65536");
  if (o.shuffle_window < 0) return bad_option("shuffle_window", o.shuffle_window, "0 or more");
  if (o.epochs < 0) return bad_option("epochs", o.epochs, "0 or more");
  if (o.memory_limit < 0) return bad_option("memory_limit", o.memory_limit, "0 or more");
  if (o.snapshot_bytes < 0) return bad_option("snapshot_bytes", o.snapshot_bytes, "0 or more");
  if (o.skip_bad_rows < 0) return bad_option("skip_bad_rows", o.skip_bad_rows, "0 or more");
  if (o.skip_bad_blocks < 0) return bad_option("skip_bad_blocks", o.skip_bad_blocks, "0 or more");
  if (o.ranks < 1) return bad_option("ranks", o.ranks, "1 or more");
  if (o.rank < 0 || o.rank >= o.ranks) return bad_option("rank", o.rank, "0 to ranks - 1");
  if (!(o.stall_limit_s > 0)) {
    return Error(Code::kInvalidArgument,
                 fmt::format("batch pipeline: stall_limit_s is {}, allowed is more than 0",
                             o.stall_limit_s));
  }
  if (o.limits.examples < 1 || o.limits.candidates < 1 || o.limits.history_len < 0 ||
      o.limits.tokens < 0) {
    return Error(Code::kInvalidArgument, "batch pipeline: batch limits below their minimum");
  }
  return {};
}

// Counts that a run can reach; far from overflow when more is added.
bool possible(const Position& p) {
  constexpr std::int64_t kMost = std::int64_t{1} << 53;
  const auto in_range = [](std::int64_t n) { return n >= 0 && n <= kMost; };
  return p.epoch >= 0 && p.epoch <= (std::int64_t{1} << 31) && in_range(p.next_row) &&
         in_range(p.rows) && in_range(p.batches) && in_range(p.skipped_rows) &&
         in_range(p.skipped_blocks) && in_range(p.skipped.bad_rows) &&
         in_range(p.skipped.bad_blocks) && in_range(p.skipped.rows_of_bad_blocks);
}

// The place to start from, with what a default position leaves out filled in.
Result<Position> resolve_start(const Source& source, const BatchPipelineOptions& o,
                               const Position& start) {
  Position p = start;
  if (p == Position{}) {
    p.fingerprint = source.fingerprint();
    p.seed = o.seed;
    p.shuffle_window = o.shuffle_window;
    return p;
  }
  const auto refuse = [](const char* what, auto saved, auto now, const char* advice) {
    return Error(
        Code::kInvalidArgument,
        fmt::format("the saved position belongs to another {}: it has {}, this run has {}; "
                    "{}",
                    what, saved, now, advice));
  };
  if (p.seed == o.seed && p.shuffle_window == o.shuffle_window && possible(p) &&
      p.fingerprint != source.fingerprint() && o.allow_changed_data) {
    // Rows of another order say nothing about this one: the epoch begins again.
    p = Position{};
    p.fingerprint = source.fingerprint();
    p.seed = o.seed;
    p.shuffle_window = o.shuffle_window;
    p.epoch = start.epoch;
    p.rows = static_cast<std::int64_t>(
        std::min(static_cast<double>(start.epoch) * static_cast<double>(source.rows()), 9.0e15));
    p.batches = start.batches;
    p.skipped = start.skipped;
    if (p.epoch >= o.epochs) return p;
    log::warning(
        fmt::format("the data changed since the position was saved: epoch {} begins again with "
                    "its {} rows",
                    p.epoch + 1, source.rows()));
    return p;
  }
  if (p.fingerprint != source.fingerprint()) {
    return refuse("dataset (fingerprint)", fmt::format("{:016x}", p.fingerprint),
                  fmt::format("{:016x}", source.fingerprint()),
                  "go on with the same files, start a new run, or allow changed data");
  }
  if (p.seed != o.seed) {
    return refuse("order (data.seed)", p.seed, o.seed, "set data.seed back, or start a new run");
  }
  if (p.shuffle_window != o.shuffle_window) {
    return refuse("order (data.shuffle_window)", p.shuffle_window, o.shuffle_window,
                  "set data.shuffle_window back, or start a new run");
  }
  if (!possible(p) || p.next_row > source.rows()) {
    return Error(Code::kCorruptData,
                 fmt::format("the saved position cannot be: epoch {}, row {} of {}, {} rows and {} "
                             "batches consumed",
                             p.epoch, p.next_row, source.rows(), p.rows, p.batches));
  }
  if (p.next_row == source.rows() && p.next_row > 0) {
    ++p.epoch;
    p.next_row = p.skipped_rows = p.skipped_blocks = 0;
  }
  return p;
}

Result<void> check_memory(const BatchPipelineMemory& m, const BatchPipelineOptions& o) {
  if (o.memory_limit == 0 || m.total() <= o.memory_limit - o.snapshot_bytes) return {};
  const std::string snapshots =
      o.snapshot_bytes == 0
          ? ""
          : fmt::format(", beside {} of snapshots for checkpoints", bytes_text(o.snapshot_bytes));
  return Error(
      Code::kInvalidArgument,
      fmt::format(
          "data.memory_limit is {}, but {} decoded row groups of up to {} and {} batches of "
          "{} may take {}{}; allowed is at least that, or a smaller data.shuffle_window, "
          "data.depth or batch.*, or smaller row groups",
          bytes_text(o.memory_limit), m.block_slots, bytes_text(m.block_bytes), m.batch_buffers,
          bytes_text(m.batch_bytes), bytes_text(m.total()), snapshots));
}

}  // namespace

std::string skipped_text(const SkippedData& s) {
  if (s.bad_rows == 0 && s.bad_blocks == 0) return {};
  return fmt::format("bad data skipped: {} row{}, {} row group{} of {} rows", s.bad_rows,
                     s.bad_rows == 1 ? "" : "s", s.bad_blocks, s.bad_blocks == 1 ? "" : "s",
                     s.rows_of_bad_blocks);
}

struct BatchPipeline::Impl {
  std::shared_ptr<BatchFlow> flow;
  std::int64_t epoch_rows = 0;

  // The caller's thread only.
  PipelineState consumer;
  bool ended = false;
  std::optional<Error> failed;

  mutable std::mutex mutex;
  Position committed;
  std::int64_t handed_out = 0;
  std::int64_t trained = 0;
  features::CutCounts cuts;
  SkippedData skipped;

  // Last, so that the threads go first.
  std::vector<std::unique_ptr<pipeline::Worker>> workers;

  void start_workers();
  WaitResult await_batch(Deadline deadline, const std::function<void()>& while_waiting);
  Result<Fetched> hand_out(BatchPipeline* owner);
  Error stalled() const;
};

BatchPipeline::BatchPipeline(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Result<std::unique_ptr<BatchPipeline>> BatchPipeline::create(const Source& source,
                                                             const features::Schema& schema,
                                                             const BatchPipelineOptions& options,
                                                             const Position& start) {
  PL_TRY_VOID(check_options(options));
  PL_TRY(const Position from, resolve_start(source, options, start));
  const BatchPipelineMemory memory = reckon_memory(source, schema, options);
  PL_TRY_VOID(check_memory(memory, options));
  auto impl = std::make_unique<Impl>();
  impl->flow = std::make_shared<BatchFlow>(source, schema, options, memory, from);
  impl->epoch_rows = source.rows();
  impl->consumer =
      make_pipeline_state(PipelineUserType::kConsumer, impl->flow->batches.num_stages());
  impl->committed = from;
  impl->skipped = from.skipped;
  impl->start_workers();
  return std::unique_ptr<BatchPipeline>(new BatchPipeline(std::move(impl)));
}

void BatchPipeline::Impl::start_workers() {
  // What a worker runs may be left behind: it owns the flow.
  const auto batcher = std::make_shared<Batcher>(*flow);
  workers.push_back(std::make_unique<pipeline::Worker>(
      "batcher", [f = flow, batcher](const pipeline::StopFlag&) { return batcher->run(); },
      [f = flow, batcher](Result<void> result) {
        if (!result) batcher->hand_over_error(std::move(result.error()));
      },
      kGraceEach));
  for (std::size_t r = 0; r < flow->readers.size(); ++r) {
    workers.push_back(std::make_unique<pipeline::Worker>(
        fmt::format("reader {}", r),
        [f = flow, r](const pipeline::StopFlag& stop) {
          return read_blocks(*f, *f->readers[r], stop);
        },
        [f = flow, r](Result<void> result) {
          if (!result) hand_over_error(*f, *f->readers[r], std::move(result.error()));
        },
        kGraceEach));
  }
}

namespace {

void run_quietly(const std::function<void()>& until_free) {
  try {
    until_free();
  } catch (const std::exception& e) {
    log::warning(fmt::format("a buffer that was still read at the end: {}", e.what()));
  }
}

}  // namespace

BatchPipeline::~BatchPipeline() {
  stop();
  for (auto& worker : impl_->workers) worker->request_stop();
  const Deadline deadline = Clock::now() + kGrace;
  bool all = true;
  for (auto& worker : impl_->workers) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    all = worker->join_for(std::max(left, std::chrono::milliseconds(0))) && all;
  }
  // A batcher that is still there has the buffers with it.
  if (impl_->workers.front()->done()) {
    for (const auto& buffer : impl_->flow->buffers) {
      if (buffer->until_free) run_quietly(buffer->until_free);
    }
  }
  if (!all) log::warning("batch pipeline left behind at a stop: " + impl_->flow->stall_report());
}

Error BatchPipeline::Impl::stalled() const {
  const std::string report = flow->stall_report();
  return Error(Code::kTimeout, fmt::format("no batch came within {} s (data.stall_limit_s): {}",
                                           flow->options.stall_limit_s,
                                           report.empty() ? "the batcher is at work" : report));
}

WaitResult BatchPipeline::Impl::await_batch(Deadline deadline,
                                            const std::function<void()>& while_waiting) {
  if (!while_waiting) return flow->batches.wait(consumer, deadline);
  while (true) {
    const auto result =
        flow->batches.wait(consumer, std::min(deadline, Clock::now() + kBetweenLooks));
    if (result != WaitResult::kTimeout || Clock::now() >= deadline) return result;
    while_waiting();
  }
}

Result<BatchPipeline::Fetched> BatchPipeline::next_batch(
    const std::function<void()>& while_waiting) {
  Impl& p = *impl_;
  if (p.failed) return *p.failed;
  if (p.ended) return Fetched{};
  Fetched stopped;
  stopped.state = FetchState::kStopped;
  if (p.flow->batches.stopped()) return stopped;
  const auto& o = p.flow->options;
  const auto next = static_cast<std::int64_t>(p.consumer.count);
  if (o.overlap) p.flow->block_gate.open_to(std::numeric_limits<std::int64_t>::max());
  p.flow->batch_gate.open_to(next + (o.overlap ? o.depth : 1));
  const auto limit = std::chrono::duration<double>(std::min(o.stall_limit_s, 1e9));
  const Deadline deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(limit);
  switch (p.await_batch(deadline, while_waiting)) {
    case WaitResult::kTimeout:
      return p.stalled();
    case WaitResult::kStopped:
      return stopped;
    case WaitResult::kReady:
      break;
  }
  switch (p.flow->batches.filled(p.consumer)) {
    case Filled::kEnd: {
      const std::lock_guard lock(p.mutex);
      p.skipped = p.flow->skipped_in_all;
    }
      p.flow->batches.release(p.consumer);
      p.ended = true;
      return Fetched{};
    case Filled::kError:
      p.failed = p.flow->batches.take_error(p.consumer);
      p.flow->batches.release(p.consumer);
      return *p.failed;
    case Filled::kItem:
      break;
  }
  return p.hand_out(this);
}

Result<BatchPipeline::Fetched> BatchPipeline::Impl::hand_out(BatchPipeline* owner) {
  BatchSlot* slot = flow->batches.slot(consumer);
  flow->batches.release(consumer);
  {
    const std::lock_guard lock(mutex);
    cuts += slot->cuts;
    skipped = slot->position.skipped;
    ++handed_out;
  }
  Fetched fetched;
  fetched.state = FetchState::kBatch;
  fetched.lease.owner_ = owner;
  fetched.lease.slot_ = slot;
  ++consumer;
  if (flow->options.overlap) {
    flow->batch_gate.open_to(static_cast<std::int64_t>(consumer.count) + flow->options.depth);
  }
  return fetched;
}

Position BatchPipeline::offsets_to_commit() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->committed;
}

BatchPipelineState BatchPipeline::state() const {
  BatchPipelineState s;
  const std::int64_t full = impl_->flow->batches.full_slots();
  s.exhausted = impl_->flow->exhausted.load(std::memory_order_relaxed);
  s.reserve = std::clamp<std::int64_t>(full, 0, impl_->flow->options.depth);
  const std::lock_guard lock(impl_->mutex);
  s.current = impl_->handed_out - 1;
  return s;
}

void BatchPipeline::stop() { impl_->flow->stop(); }

std::int64_t BatchPipeline::epoch_rows() const { return impl_->epoch_rows; }

const features::BatchLayout& BatchPipeline::layout() const { return impl_->flow->layout; }

features::CutCounts BatchPipeline::cuts() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->cuts;
}

pipeline::WaitStats BatchPipeline::block_waits() const {
  auto stats = impl_->flow->blocks.stats();
  stats.acquire_wait_ns += impl_->flow->block_gate.waited_ns();
  return stats;
}

pipeline::WaitStats BatchPipeline::batch_waits() const {
  // The batcher waits for its turn, and then for a buffer.
  auto stats = impl_->flow->batches.stats();
  stats.acquire_wait_ns +=
      impl_->flow->batch_gate.waited_ns() + impl_->flow->given_back.stats().consumer_wait_ns;
  return stats;
}

SkippedData BatchPipeline::skipped() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->skipped;
}

BatchPipelineMemory BatchPipeline::memory() const { return impl_->flow->memory; }

BatchPipeline::Lease::Lease(Lease&& other) noexcept
    : owner_(std::exchange(other.owner_, nullptr)), slot_(std::exchange(other.slot_, nullptr)) {}

BatchPipeline::Lease& BatchPipeline::Lease::operator=(Lease&& other) noexcept {
  if (this != &other) {
    give_back();
    owner_ = std::exchange(other.owner_, nullptr);
    slot_ = std::exchange(other.slot_, nullptr);
  }
  return *this;
}

BatchPipeline::Lease::~Lease() { give_back(); }

const features::Batch& BatchPipeline::Lease::batch() const { return slot_->batch; }
const GlobalBatch& BatchPipeline::Lease::global() const { return slot_->global; }
const Position& BatchPipeline::Lease::position() const { return slot_->position; }
std::int64_t BatchPipeline::Lease::epoch() const { return slot_->epoch; }
bool BatchPipeline::Lease::last_of_epoch() const { return slot_->last_of_epoch; }

void BatchPipeline::Lease::mark_trained() {
  Impl& p = *owner_->impl_;
  const std::lock_guard lock(p.mutex);
  PL_CHECK(slot_->number == p.trained,
           "batches are marked trained in the order of their handing out");
  ++p.trained;
  p.committed = slot_->position;
}

void BatchPipeline::Lease::give_back() {
  if (owner_ == nullptr) return;
  std::exchange(owner_, nullptr)->impl_->flow->give_back(std::exchange(slot_, nullptr));
}

void BatchPipeline::Lease::give_back_when(std::function<void()> until_free) {
  if (owner_ == nullptr) return;
  slot_->until_free = std::move(until_free);
  give_back();
}

}  // namespace paceline::data
