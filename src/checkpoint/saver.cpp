#include "checkpoint/saver.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <utility>

#include "checkpoint/saver_flow.hpp"
#include "checkpoint/streaming_copy.hpp"

namespace paceline::checkpoint {
namespace {

using pipeline::WaitResult;

// How long the destructor waits for the writer; finish() is where a run waits.
constexpr auto kWriterGrace = std::chrono::seconds(1);
// The copier looks for a stop every few milliseconds, and must not outlive the tables it reads.
constexpr auto kCopierGrace = std::chrono::hours(1);

Deadline deadline_in(double seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(
                            std::chrono::duration<double>(std::min(seconds, 1e9)));
}

void check_like(std::span<const TensorView> live, std::span<const TensorView> like) {
  PL_CHECK(live.size() == like.size(), "a saver saves the tensors that it was made for");
  for (std::size_t i = 0; i < live.size(); ++i) {
    PL_CHECK(live[i].name == like[i].name && live[i].bytes.size() == like[i].bytes.size(),
             "a saver saves the tensors that it was made for");
  }
}

void copy_dense(std::span<const TensorView> live, SnapshotBuffer& to) {
  check_like(live, to.views());
  for (std::size_t i = 0; i < live.size(); ++i) {
    if (live[i].bytes.empty()) continue;
    streaming_copy(to.memory(i).data(), live[i].bytes.data(), live[i].bytes.size());
  }
}

}  // namespace

struct Saver::Impl {
  explicit Impl(std::shared_ptr<SaverFlow> f)
      : flow(std::move(f)),
        dense(make_pipeline_state(PipelineUserType::kProducer, flow->dense.num_stages())),
        order(make_pipeline_state(PipelineUserType::kProducer, flow->orders.num_stages())) {}
  ~Impl() {
    flow->stop();
    copier.reset();
    writer.reset();
  }

  void start_threads();
  bool busy();
  // The threads wait for each other, so that one of them hanging shows here.
  Result<void> await(WaitResult result, const char* what) const;
  Result<void> await_copy();
  Result<void> save_now(const Content& live, const SaveOptions& how);
  void absorb();
  // Adds the time since `start` to the exposed wait and to the attempt begun last.
  void add_wait(Clock::time_point start);

  const std::shared_ptr<SaverFlow> flow;
  PipelineState dense, order;
  bool copying = false;        // an order was committed and its release not yet seen
  std::int64_t attempts = 0;   // begun
  std::deque<double> waits_s;  // of attempts without a report, in their order
  std::vector<SaveReport> reports;
  std::unique_ptr<pipeline::Worker> copier, writer;
};

Saver::Saver(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Saver::~Saver() = default;

Result<std::unique_ptr<Saver>> Saver::create(const SaverOptions& options, const Content& live,
                                             std::optional<Base> base,
                                             std::span<const std::int64_t> touched) {
  // Shared without ownership: they live as long as the program.
  std::shared_ptr<FileOps> ops(std::shared_ptr<void>(), &posix_file_ops());
  return create_with(std::move(ops), options, live, base, touched);
}

Result<std::unique_ptr<Saver>> Saver::create_with(std::shared_ptr<FileOps> ops,
                                                  const SaverOptions& options, const Content& live,
                                                  std::optional<Base> base,
                                                  std::span<const std::int64_t> touched) {
  if (options.fail_after < 1 || options.table_deltas < 0 || !(options.finish_limit_s > 0)) {
    return Error(Code::kInvalidArgument,
                 "a saver needs fail_after >= 1, table_deltas >= 0 and finish_limit_s > 0");
  }
  std::unique_ptr<Saver> saver(new Saver(std::make_unique<Impl>(
      std::make_shared<SaverFlow>(std::move(ops), options, live, base, touched))));
  if (!options.background) return saver;
  saver->impl_->start_threads();
  for (const auto* worker : {saver->impl_->copier.get(), saver->impl_->writer.get()}) {
    if (worker->done()) PL_TRY_VOID(worker->result());
  }
  return saver;
}

void Saver::Impl::start_threads() {
  // What a worker runs may be left behind: it owns the flow.
  const auto on_exit = [f = flow](Result<void> result) {
    if (!result) f->stop(std::move(result.error()));
  };
  copier = std::make_unique<pipeline::Worker>(
      "ckpt copier", [f = flow](const pipeline::StopFlag& stop) { return serve_copies(*f, stop); },
      on_exit, kCopierGrace);
  writer = std::make_unique<pipeline::Worker>(
      "ckpt writer", [f = flow](const pipeline::StopFlag&) { return write_saves(*f); }, on_exit,
      kWriterGrace);
}

bool Saver::Impl::busy() {
  // The copier's next slot is that of this attempt.
  const auto table = make_pipeline_state(PipelineUserType::kProducer, flow->tables.num_stages(),
                                         static_cast<std::uint64_t>(order.count));
  const auto now = Clock::now();
  return flow->dense.acquire(dense, now) != WaitResult::kReady ||
         flow->tables.acquire(table, now) != WaitResult::kReady;
}

Result<void> Saver::Impl::await(WaitResult result, const char* what) const {
  switch (result) {
    case WaitResult::kReady:
      return {};
    case WaitResult::kStopped:
      return flow->stopped_error();
    case WaitResult::kTimeout:
      break;
  }
  const std::string report = flow->writer_report();
  return Error(Code::kUnavailable,
               fmt::format("{} did not come within {} s (checkpoint.finish_limit_s): {}", what,
                           flow->options.finish_limit_s,
                           report.empty() ? "the threads that save are at work" : report));
}

Result<void> Saver::Impl::await_copy() {
  if (!copying) return {};
  const Deadline deadline = deadline_in(flow->options.finish_limit_s);
  PL_TRY_VOID(await(flow->orders.acquire(order, deadline), "the copy of the tables"));
  copying = false;
  return {};
}

void Saver::Impl::add_wait(Clock::time_point start) {
  const auto waited = Clock::now() - start;
  flow->wait_ns.fetch_add(std::chrono::nanoseconds(waited).count(), std::memory_order_relaxed);
  if (!waits_s.empty()) waits_s.back() += std::chrono::duration<double>(waited).count();
}

// Only while no copy is under way: the copier reads which rows were touched.
void Saver::Impl::absorb() {
  for (auto& ended : flow->take_ended()) {
    if (ended.id) {
      flow->touched.published(*ended.id);
    } else {
      flow->touched.failed(ended.base_lost);
    }
    ended.report.wait_s = waits_s.front();
    waits_s.pop_front();
    reports.push_back(std::move(ended.report));
  }
}

Result<SaveStart> Saver::save(const Content& live, const SaveOptions& how) {
  Impl& s = *impl_;
  SaverFlow& flow = *s.flow;
  PL_TRY_VOID(before_table_update());
  if (auto failed = flow.last_error(flow.options.fail_after); failed && !how.must) {
    return Error(std::move(*failed));
  }
  const auto start = Clock::now();
  if (!flow.options.background) {
    PL_TRY_VOID(s.save_now(live, how));
    return SaveStart::kStarted;
  }
  if (flow.options.when_busy == WhenBusy::kSkip && !how.must && s.busy()) {
    flow.skipped.fetch_add(1, std::memory_order_relaxed);  // account
    return SaveStart::kSkipped;
  }
  const Deadline deadline = deadline_in(flow.options.finish_limit_s);
  PL_TRY_VOID(s.await(flow.dense.acquire(s.dense, deadline), "a free snapshot"));
  s.absorb();
  DenseSlot& dense = flow.dense.slot(s.dense);
  dense.step = live.step;
  dense.state = live.state;
  dense.prune = how.prune;
  copy_dense(live.model, dense.model);
  copy_dense(live.optimizer, dense.optimizer);
  CopyOrder& order = flow.orders.slot(s.order);
  order.tables.clear();
  for (const auto& table : live.tables) order.tables.push_back(table.bytes);
  order.base = flow.touched.begin();
  flow.dense.commit(s.dense);
  flow.orders.commit(s.order);
  ++s.dense;
  ++s.order;
  s.copying = true;
  ++s.attempts;
  s.waits_s.push_back(0.0);
  s.add_wait(start);
  return SaveStart::kStarted;
}

// Straight from the live tensors; the rows of a difference are put together first.
Result<void> Saver::Impl::save_now(const Content& live, const SaveOptions& how) {
  const auto start = Clock::now();
  absorb();
  SaveParts parts;
  parts.step = live.step;
  parts.model = live.model;
  parts.optimizer = live.optimizer;
  parts.tables = live.tables;
  parts.state = &live.state;
  parts.prune = how.prune;
  ++attempts;
  waits_s.push_back(0.0);
  TableSlot& slot = flow->tables.slot(0);
  CopyOrder rows;
  rows.base = flow->touched.begin();
  if (rows.base) {
    for (const auto& table : live.tables) rows.tables.push_back(table.bytes);
    copy_tables(rows, flow->touched, flow->table_rows, slot, pipeline::StopFlag());
    parts.tables = slot.tables.views();
    parts.delta = TableDelta{*rows.base, slot.rows, flow->table_rows};
  }
  flow->attempt(parts, [] {});
  add_wait(start);
  absorb();
  return {};
}

Result<void> Saver::before_table_update() {
  Impl& s = *impl_;
  if (!s.copying) return {};
  const auto start = Clock::now();
  auto copied = s.await_copy();
  s.add_wait(start);
  return copied;
}

void Saver::touch(std::span<const std::int32_t> rows) {
  PL_CHECK(!impl_->copying, "rows are touched after before_table_update()");
  impl_->flow->touched.touch(rows);
}

Result<void> Saver::finish() {
  Impl& s = *impl_;
  SaverFlow& flow = *s.flow;
  const auto start = Clock::now();
  const Deadline deadline = deadline_in(flow.options.finish_limit_s);
  const auto all_ended = [&] {
    return flow.ended_count.load() == s.attempts || flow.giving_up.requested();
  };
  const bool ended = flow.changed.await(all_ended, deadline);
  flow.wait_ns.fetch_add(std::chrono::nanoseconds(Clock::now() - start).count(),
                         std::memory_order_relaxed);
  if (!ended) return s.await(WaitResult::kTimeout, "the end of the last save");
  if (flow.ended_count.load() != s.attempts) return flow.stopped_error();
  PL_TRY_VOID(before_table_update());
  s.absorb();
  if (auto failed = flow.last_error(1)) return Error(std::move(*failed));
  return {};
}

std::vector<SaveReport> Saver::take_reports() {
  Impl& s = *impl_;
  // A report says what was waited for the tables: it comes after that.
  if (s.copying && s.flow->orders.acquire(s.order, Clock::now()) == WaitResult::kReady) {
    s.copying = false;
  }
  if (!s.copying) s.absorb();
  return std::exchange(s.reports, {});
}

SaverStats Saver::stats() const {
  const SaverFlow& flow = *impl_->flow;
  SaverStats stats;
  stats.saved = flow.saved.load(std::memory_order_relaxed);
  stats.skipped = flow.skipped.load(std::memory_order_relaxed);
  stats.failed = flow.failed.load(std::memory_order_relaxed);
  stats.wait_s = static_cast<double>(flow.wait_ns.load(std::memory_order_relaxed)) * 1e-9;
  stats.snapshots = flow.dense.stats();
  stats.copies = flow.orders.stats();
  stats.table_slots = flow.tables.stats();
  return stats;
}

std::size_t Saver::memory_bytes() const { return impl_->flow->memory_bytes; }

}  // namespace paceline::checkpoint
