// After warm-up nothing of a batch's size is allocated: every operator new of this program counts.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "data/batch_pipeline.hpp"
#include "data/testing/deliveries.hpp"
#include "data/testing/impressions.hpp"
#include "data/testing/schemas.hpp"

namespace {

std::atomic<std::size_t> large_from{SIZE_MAX};  // bytes
std::atomic<std::int64_t> large{0};

[[gnu::noinline]] void* counted(std::size_t bytes, std::size_t align) {
  if (bytes >= large_from.load(std::memory_order_relaxed)) large.fetch_add(1);
  const std::size_t whole = (bytes + align - 1) / align * align;
  void* p = align <= alignof(std::max_align_t) ? std::malloc(bytes == 0 ? 1 : bytes)
                                               : std::aligned_alloc(align, whole);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}

[[gnu::noinline]] void give_back(void* p) { std::free(p); }

}  // namespace

void* operator new(std::size_t bytes) { return counted(bytes, 1); }
void* operator new[](std::size_t bytes) { return counted(bytes, 1); }
void* operator new(std::size_t bytes, std::align_val_t align) {
  return counted(bytes, static_cast<std::size_t>(align));
}
void* operator new[](std::size_t bytes, std::align_val_t align) {
  return counted(bytes, static_cast<std::size_t>(align));
}
void operator delete(void* p) noexcept { give_back(p); }
void operator delete[](void* p) noexcept { give_back(p); }
void operator delete(void* p, std::size_t) noexcept { give_back(p); }
void operator delete[](void* p, std::size_t) noexcept { give_back(p); }
void operator delete(void* p, std::align_val_t) noexcept { give_back(p); }
void operator delete[](void* p, std::align_val_t) noexcept { give_back(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { give_back(p); }
void operator delete[](void* p, std::size_t, std::align_val_t) noexcept { give_back(p); }

namespace paceline {
namespace {

using namespace data::testing;  // NOLINT: test support

TEST(Allocations, NothingOfABatchsSizeAfterWarmUp) {
  const TempDir dir;
  ImpressionOptions data;
  data.rows = 4000;
  data.row_group_rows = 250;
  data.max_history = 60;
  write_impressions(dir.path(), data);
  const auto schema = schema_of(impression_features());
  const auto source = data::open_parquet({dir.path().string()}, schema);
  ASSERT_TRUE(source) << source.error().text();
  auto o = options_of(64, 4);
  o.limits.history_len = 64;
  o.epochs = 48;
  o.readers = 2;
  const auto pipeline = open(**source, schema, o);
  const std::size_t batch_bytes = pipeline->layout().total_bytes();
  std::int64_t batches = 0;
  for (bool end = false; !end;) {
    auto fetched = pipeline->next_batch();
    ASSERT_TRUE(fetched) << fetched.error().text();
    end = fetched->state == data::FetchState::kEnd;
    if (end) break;
    ++batches;
    // Blocks come to other slots in each epoch; until every slot has met the largest one, slots
    // grow. The rest is counted.
    if (fetched->lease.epoch() == 36 && large_from.load() == SIZE_MAX) large_from = batch_bytes / 8;
  }
  large_from = SIZE_MAX;
  EXPECT_EQ(batches, 48 * ((4000 + 63) / 64));
  EXPECT_EQ(large.load(), 0) << "allocations of " << batch_bytes / 8 << " bytes or more";
}

// The counter counts, or the test above proves nothing.
TEST(Allocations, AreCounted) {
  large = 0;
  large_from = 1000;
  delete[] new char[1000];
  { const HostBuffer buffer(5000); }
  large_from = SIZE_MAX;
  EXPECT_EQ(large.load(), 2);
  large = 0;
}

}  // namespace
}  // namespace paceline
