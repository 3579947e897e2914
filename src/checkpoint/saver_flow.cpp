#include "checkpoint/saver_flow.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <new>
#include <utility>

#include "checkpoint/layout.hpp"
#include "checkpoint/streaming_copy.hpp"
#include "core/log.hpp"

namespace paceline::checkpoint {
namespace {

using pipeline::WaitResult;

constexpr std::uint32_t kDenseSnapshots = 2;
// Between two looks for a stop: some milliseconds of copying.
constexpr std::size_t kCopyBlockBytes = std::size_t{8} << 20;

double thread_cpu_s() {
  timespec t{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

std::int64_t rows_of(std::span<const TensorView> tables) {
  if (tables.empty()) return 0;
  for (const auto& t : tables) {
    PL_CHECK(!t.shape.empty() && t.shape[0] == tables[0].shape[0],
             "tensors of a table have one entry per row");
  }
  return tables[0].shape[0];
}

// False at a stop.
bool copy_blocks(std::span<const std::byte> from, std::span<std::byte> to,
                 const pipeline::StopFlag& stop) {
  for (std::size_t at = 0; at < from.size(); at += kCopyBlockBytes) {
    if (stop.requested()) return false;
    const std::size_t n = std::min(kCopyBlockBytes, from.size() - at);
    streaming_copy(to.data() + at, from.data() + at, n);
  }
  return true;
}

// Entries rows[i] of `from`, neighbours in one copy.
bool gather_rows(std::span<const std::byte> from, std::size_t row_bytes,
                 std::span<const std::int64_t> rows, std::span<std::byte> to,
                 const pipeline::StopFlag& stop) {
  for (std::size_t i = 0; i < rows.size();) {
    std::size_t end = i + 1;
    while (end < rows.size() && rows[end] == rows[end - 1] + 1) ++end;
    const std::size_t bytes = (end - i) * row_bytes;
    if (!copy_blocks(from.subspan(static_cast<std::size_t>(rows[i]) * row_bytes, bytes),
                     to.subspan(i * row_bytes, bytes), stop)) {
      return false;
    }
    i = end;
  }
  return true;
}

}  // namespace

SnapshotBuffer::SnapshotBuffer(std::span<const TensorView> like, std::optional<std::int64_t> rows) {
  std::size_t total = 0;
  for (const auto& tensor : like) {
    TensorView view = tensor;
    std::size_t bytes = tensor.bytes.size();
    std::size_t row_bytes = 0;
    if (rows) {
      row_bytes = view.shape[0] > 0 ? bytes / static_cast<std::size_t>(view.shape[0]) : 0;
      bytes = row_bytes * static_cast<std::size_t>(*rows);
    }
    offsets_.push_back(total);
    row_bytes_.push_back(row_bytes);
    total += align_up(bytes);
    view.bytes = {static_cast<const std::byte*>(nullptr), bytes};
    views_.push_back(std::move(view));
  }
  bytes_ = HostBuffer(total);
  for (std::size_t i = 0; i < views_.size(); ++i) {
    views_[i].bytes = {bytes_.data() + offsets_[i], views_[i].bytes.size()};
  }
  if (rows) set_rows(*rows);
}

void SnapshotBuffer::set_rows(std::int64_t rows) {
  for (std::size_t i = 0; i < views_.size(); ++i) {
    views_[i].shape[0] = rows;
    views_[i].bytes = {bytes_.data() + offsets_[i], row_bytes_[i] * static_cast<std::size_t>(rows)};
  }
}

std::span<std::byte> SnapshotBuffer::memory(std::size_t tensor) {
  return {bytes_.data() + offsets_[tensor], views_[tensor].bytes.size()};
}

SaverFlow::SaverFlow(std::shared_ptr<FileOps> file_ops, const SaverOptions& opt,
                     const Content& live, std::optional<Base> base,
                     std::span<const std::int64_t> known)
    : options(opt),
      ops(std::move(file_ops)),
      table_rows(rows_of(live.tables)),
      touched(table_rows, opt.table_deltas, base, known),
      orders("table copies", 1,
             [&](std::uint32_t) {
               CopyOrder order;
               order.tables.reserve(live.tables.size());
               return order;
             }),
      dense("dense snapshots", opt.background ? kDenseSnapshots : 1,
            [&](std::uint32_t) {
              DenseSlot slot;
              if (!opt.background) return slot;
              slot.model = SnapshotBuffer(live.model);
              slot.optimizer = SnapshotBuffer(live.optimizer);
              return slot;
            }),
      tables("table snapshots", 1, [&](std::uint32_t) {
        TableSlot slot;
        const std::int64_t most = TouchedRows::most_rows(table_rows);
        if (opt.table_deltas > 0) slot.rows.reserve(static_cast<std::size_t>(most));
        // Without snapshots only the rows of a difference are put together.
        if (opt.background) {
          slot.tables = SnapshotBuffer(live.tables, table_rows);
        } else if (opt.table_deltas > 0) {
          slot.tables = SnapshotBuffer(live.tables, most);
        }
        return slot;
      }) {
  memory_bytes = touched.memory_bytes() + tables.slot(0).tables.memory_bytes() +
                 tables.slot(0).rows.capacity() * sizeof(std::int64_t);
  for (std::uint32_t i = 0; i < dense.num_stages(); ++i) {
    memory_bytes += dense.slot(i).model.memory_bytes() + dense.slot(i).optimizer.memory_bytes();
  }
}

std::vector<Ended> SaverFlow::take_ended() {
  const std::lock_guard lock(mutex_);
  return std::exchange(ended_, {});
}

std::optional<Error> SaverFlow::last_error(int at_least_in_a_row) const {
  const std::lock_guard lock(mutex_);
  if (failed_in_a_row_ < at_least_in_a_row || !last_error_) return {};
  if (failed_in_a_row_ == 1) return last_error_;
  return Error(*last_error_).context(fmt::format("{} saves in a row failed", failed_in_a_row_));
}

std::string SaverFlow::writer_report() const {
  const std::lock_guard lock(mutex_);
  if (doing_ == nullptr) return {};
  return fmt::format("checkpoint writer: {} of step {} in {} for {:.1f} s", doing_, doing_step_,
                     options.dir.string(), static_cast<double>(now_ns() - doing_since_ns_) * 1e-9);
}

void SaverFlow::stop(std::optional<Error> why) {
  {
    const std::lock_guard lock(mutex_);
    if (why && !why_stopped_) why_stopped_ = std::move(why);
  }
  giving_up.request();
  orders.stop();
  dense.stop();
  tables.stop();
  changed.notify();
}

Error SaverFlow::stopped_error() const {
  const std::lock_guard lock(mutex_);
  if (why_stopped_) return *why_stopped_;
  return Error(Code::kCancelled, "the saver was stopped");
}

void SaverFlow::doing(const char* what, std::int64_t step) {
  const std::lock_guard lock(mutex_);
  doing_ = what;
  doing_step_ = step;
  doing_since_ns_ = now_ns();
}

Result<Publication> SaverFlow::begin(const SaveParts& parts, bool& base_lost) {
  if (parts.delta) {
    // Somebody may have removed it by hand; then the next checkpoint is a full one.
    const auto base = read_base(*ops, options.dir / step_name(parts.step), parts.delta->base);
    base_lost = !base;
    if (base_lost) {
      return Error(Code::kCorruptData,
                   fmt::format("the full checkpoint that the next is a difference to is gone: {}",
                               base.error().text()));
    }
  }
  PL_TRY(auto publication, Publication::begin(*ops, options.dir, parts.step));
  doing("writing the tables", parts.step);
  PL_TRY_VOID(publication.write_tables(parts.tables, parts.delta ? &*parts.delta : nullptr,
                                       options.shard_bytes));
  return publication;
}

Result<Published> SaverFlow::publish(const SaveParts& parts,
                                     const std::function<void()>& tables_done, bool& base_lost) {
  auto publication = begin(parts, base_lost);
  tables_done();
  if (!publication) return Error(std::move(publication.error()));
  if (giving_up.requested()) return Error(Code::kCancelled, "the save was given up");
  doing("writing the dense state", parts.step);
  PL_TRY_VOID(publication->write_dense(parts.model, parts.optimizer));
  doing("publishing the state", parts.step);
  return publication->finish(*parts.state);
}

// The state is safe; that an old one cannot be removed ends no run.
void SaverFlow::prune(const SaveParts& parts) {
  if (!parts.prune) return;
  doing("removing older checkpoints after the save", parts.step);
  if (auto pruned = prune_with(*ops, options.dir, options.retention); !pruned) {
    log::warning(pruned.error().text());
  }
}

void SaverFlow::attempt(const SaveParts& parts, const std::function<void()>& tables_done) {
  const auto start = Clock::now();
  const double cpu_start = thread_cpu_s();
  Ended ended;
  ended.report.step = parts.step;
  ended.report.delta = parts.delta.has_value();
  bool tables_read = false;
  const auto once = [&] {
    if (!std::exchange(tables_read, true)) tables_done();
  };
  std::optional<Error> error;
  doing("beginning the save", parts.step);
  try {
    auto published = publish(parts, once, ended.base_lost);
    if (published) {
      ended.id = published->id;
      ended.report.path = published->path;
      ended.report.bytes = published->bytes;
      prune(parts);
    } else {
      error = std::move(published.error());
    }
  } catch (const std::bad_alloc&) {
    if (!ended.id) {
      error.emplace(Code::kOutOfMemory, fmt::format("saving step {}: out of memory", parts.step));
    }
  }
  once();
  ended.report.write_s = seconds_since(start);
  ended.report.write_cpu_s = thread_cpu_s() - cpu_start;
  record(std::move(ended), std::move(error));
}

void SaverFlow::record(Ended ended, std::optional<Error> error) {
  {
    const std::lock_guard lock(mutex_);
    doing_ = nullptr;
    failed_in_a_row_ = error ? failed_in_a_row_ + 1 : 0;
    (error ? failed : saved).fetch_add(1, std::memory_order_relaxed);  // account
    ended.report.failed_in_a_row = failed_in_a_row_;
    if (error) ended.report.error = error->text();
    last_error_ = std::move(error);
    ended_.push_back(std::move(ended));
  }
  ended_count.fetch_add(1);  // pairs with the load in Saver::finish()
  changed.notify();
}

bool copy_tables(const CopyOrder& order, const TouchedRows& touched, std::int64_t table_rows,
                 TableSlot& slot, const pipeline::StopFlag& stop) {
  slot.base = order.base;
  if (!order.base) {
    slot.rows.clear();
    slot.tables.set_rows(table_rows);
    for (std::size_t i = 0; i < order.tables.size(); ++i) {
      if (!copy_blocks(order.tables[i], slot.tables.memory(i), stop)) return false;
    }
    return true;
  }
  slot.rows.resize(static_cast<std::size_t>(touched.since_base().size()));
  touched.since_base().list(slot.rows);
  slot.tables.set_rows(static_cast<std::int64_t>(slot.rows.size()));
  for (std::size_t i = 0; i < order.tables.size(); ++i) {
    if (!gather_rows(order.tables[i], slot.tables.row_bytes(i), slot.rows, slot.tables.memory(i),
                     stop)) {
      return false;
    }
  }
  return true;
}

Result<void> serve_copies(SaverFlow& flow, const pipeline::StopFlag& stop) {
  auto order = make_pipeline_state(PipelineUserType::kConsumer, flow.orders.num_stages());
  auto slot = make_pipeline_state(PipelineUserType::kProducer, flow.tables.num_stages());
  for (;; ++order, ++slot) {
    if (flow.orders.wait(order) != WaitResult::kReady) return {};
    if (flow.tables.acquire(slot) != WaitResult::kReady) return {};
    const bool whole = copy_tables(flow.orders.slot(order), flow.touched, flow.table_rows,
                                   flow.tables.slot(slot), stop);
    flow.orders.release(order);
    if (!whole) return {};
    flow.tables.commit(slot);
  }
}

Result<void> write_saves(SaverFlow& flow) {
  auto dense = make_pipeline_state(PipelineUserType::kConsumer, flow.dense.num_stages());
  auto table = make_pipeline_state(PipelineUserType::kConsumer, flow.tables.num_stages());
  for (; !flow.giving_up.requested(); ++dense, ++table) {
    if (flow.dense.wait(dense) != WaitResult::kReady) return {};
    if (flow.tables.wait(table) != WaitResult::kReady) return {};
    DenseSlot& d = flow.dense.slot(dense);
    TableSlot& t = flow.tables.slot(table);
    SaveParts parts;
    parts.step = d.step;
    parts.model = d.model.views();
    parts.optimizer = d.optimizer.views();
    parts.tables = t.tables.views();
    if (t.base) parts.delta = TableDelta{*t.base, t.rows, flow.table_rows};
    parts.state = &d.state;
    parts.prune = d.prune;
    flow.attempt(parts, [&] { flow.tables.release(table); });
    flow.dense.release(dense);
  }
  return {};
}

}  // namespace paceline::checkpoint
