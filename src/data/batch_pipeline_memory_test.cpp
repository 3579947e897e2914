// Memory and threads are constant after warm-up.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "data/batch_pipeline.hpp"
#include "data/testing/deliveries.hpp"
#include "data/testing/fake_source.hpp"
#include "data/testing/impressions.hpp"

namespace paceline::data {
namespace {

using namespace std::chrono_literals;
using namespace testing;  // NOLINT: this room's test support
using ::testing::AllOf;
using ::testing::HasSubstr;

std::int64_t resident_kib() {
  std::ifstream status("/proc/self/statm");
  std::int64_t size = 0, resident = 0;
  status >> size >> resident;
  return resident * (::sysconf(_SC_PAGESIZE) / 1024);
}

std::int64_t threads() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return std::distance(begin(tasks), end(tasks));
}

TEST(BatchPipeline, MemoryIsFlatOverEpochsAndPipelines) {
  const TempDir dir;
  ImpressionOptions data;
  data.rows = 2000;
  data.row_group_rows = 100;
  data.max_history = 40;
  write_impressions(dir.path(), data);
  const auto schema = schema_of(impression_features());
  const auto source = open_parquet({dir.path().string()}, schema);
  ASSERT_TRUE(source) << source.error().text();
  auto o = options_of(64, 4);
  o.epochs = 4;
  std::set<const void*> buffers;
  const auto use = [&] {
    const auto pipeline = open(**source, schema, o);
    for (;;) {
      auto fetched = pipeline->next_batch();
      if (!fetched || fetched->state != FetchState::kBatch) break;
      buffers.insert(fetched->lease.batch().data());
    }
  };
  use();
  // depth + leases + 1 slots carry all batches.
  EXPECT_LE(buffers.size(), 4U);
  const std::int64_t before = resident_kib(), threads_before = threads();
  for (int i = 0; i < 5; ++i) use();
  for (int i = 0; i < 100; ++i) {
    const auto abandoned = open(**source, schema, o);
    if (i % 2 == 1) {
      EXPECT_TRUE(abandoned->next_batch());
    }
  }
  EXPECT_EQ(threads(), threads_before);
  const std::int64_t grown = resident_kib() - before;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  // A sanitizer keeps what was freed; the release lane looks at the memory.
  static_cast<void>(grown);
#else
  EXPECT_LT(grown, 8 * 1024);
#endif
}

}  // namespace
}  // namespace paceline::data
