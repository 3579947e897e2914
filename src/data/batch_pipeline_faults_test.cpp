// Errors, stops and hangs: each in its turn, each bounded.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

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

TEST(BatchPipeline, ErrorComesInItsTurn) {
  const auto schema = fake_schema();
  for (const int readers : {1, 4}) {
    for (const bool overlap : {true, false}) {
      const FakeSource source(std::vector<std::int64_t>(10, 8), [](std::int64_t b) -> Result<void> {
        if (b == 6) return Error(Code::kCorruptData, "fake, row group 6: broken");
        return {};
      });
      auto o = options_of(4, 0);
      o.readers = readers;
      o.overlap = overlap;
      o.depth = 4;
      const auto pipeline = open(source, schema, o);
      const Trained run = train(*pipeline);
      EXPECT_EQ(run.batches.size(), 12U);
      ASSERT_TRUE(run.error);
      EXPECT_EQ(run.error->code(), Code::kCorruptData);
      EXPECT_THAT(run.error->text(), HasSubstr("row group 6"));
      EXPECT_EQ(pipeline->offsets_to_commit().rows, 48);
      // It stays the answer.
      EXPECT_FALSE(pipeline->next_batch());
    }
  }
}

TEST(BatchPipeline, ABatchThatIsNotFullYetWaitsForTheRepair) {
  const auto schema = fake_schema();
  const std::vector<std::int64_t> blocks{6, 6, 6};
  auto o = options_of(4, 0);
  const FakeSource good(blocks);
  const Trained whole = train(*open(good, schema, o));
  const FakeSource broken(blocks, [](std::int64_t b) -> Result<void> {
    if (b == 1) return Error(Code::kIo, "gone");
    return {};
  });
  const auto pipeline = open(broken, schema, o);
  Trained run = train(*pipeline);
  ASSERT_TRUE(run.error);
  EXPECT_EQ(run.batches.size(), 1U);
  const Trained rest = train(*open(good, schema, o, pipeline->offsets_to_commit()));
  run.batches.insert(run.batches.end(), rest.batches.begin(), rest.batches.end());
  EXPECT_EQ(run.batches, whole.batches);
}

TEST(BatchPipeline, ExceptionsBecomeErrorsInTheirTurn) {
  const auto schema = fake_schema();
  const auto run_with = [&](FakeSource::Hook hook) {
    const FakeSource source({8, 8, 8}, std::move(hook));
    return train(*open(source, schema, options_of(4, 0)));
  };
  Trained run = run_with([](std::int64_t b) -> Result<void> {
    if (b == 1) throw std::bad_alloc();
    return {};
  });
  ASSERT_TRUE(run.error);
  EXPECT_EQ(run.error->code(), Code::kOutOfMemory);
  EXPECT_EQ(run.batches.size(), 2U);
  run = run_with([](std::int64_t b) -> Result<void> {
    if (b == 2) throw std::runtime_error("surprise");
    return {};
  });
  ASSERT_TRUE(run.error);
  EXPECT_EQ(run.error->code(), Code::kInternal);
  EXPECT_THAT(run.error->text(), HasSubstr("surprise"));
  EXPECT_EQ(run.batches.size(), 4U);
}

TEST(BatchPipeline, BrokenFileStopsAfterTheRowGroupsBefore) {
  const TempDir dir;
  ImpressionOptions data;
  data.rows = 400;
  data.row_group_rows = 100;
  const auto paths = write_impressions(dir.path(), data);
  corrupt_row_group(paths[0], 1);
  const auto schema = schema_of(impression_features());
  const auto source = open_parquet(paths, schema);
  ASSERT_TRUE(source) << source.error().text();
  for (const int depth : {1, 5}) {
    auto o = options_of(20, 0);
    o.depth = depth;
    const Trained run = train(*open(**source, schema, o));
    EXPECT_EQ(run.batches.size(), 5U);
    ASSERT_TRUE(run.error);
    EXPECT_EQ(run.error->code(), Code::kCorruptData);
    EXPECT_THAT(run.error->text(), HasSubstr("part-0000.parquet, row group 1"));
  }
}

TEST(BatchPipeline, RefusesAnExampleThatFitsNoBatch) {
  const auto schema = fake_schema();
  const FakeSource source({3, 30});
  auto o = options_of(4, 0);
  o.limits.tokens = 6;  // row 14 has 4 events and 3 candidates
  const Trained run = train(*open(source, schema, o));
  ASSERT_TRUE(run.error);
  EXPECT_THAT(run.error->text(), AllOf(HasSubstr("row group 1, row 11 (rows count from 0)"),
                                       HasSubstr("7 tokens"), HasSubstr("batch.tokens = 6")));
}

TEST(BatchPipeline, StopsInEveryState) {
  const auto schema = fake_schema();
  const auto stops_at_once = [](BatchPipeline& p) {
    const auto start = Clock::now();
    p.stop();
    EXPECT_EQ(p.next_batch()->state, FetchState::kStopped);
    EXPECT_LT(seconds_since(start), 1.0);
  };
  const FakeSource source(std::vector<std::int64_t>(20, 8));
  for (const bool overlap : {true, false}) {
    auto o = options_of(4, 2);
    o.overlap = overlap;
    stops_at_once(*open(source, schema, o));  // just opened
    const auto full = open(source, schema, o);
    std::this_thread::sleep_for(20ms);
    stops_at_once(*full);
    const auto held = open(source, schema, o);
    auto lease = held->next_batch();
    stops_at_once(*held);
    lease->lease.give_back();
    const auto dropped = open(source, schema, o);  // the consumer goes without a stop
  }
}

TEST(BatchPipeline, StopWakesACallThatWaits) {
  const auto schema = fake_schema();
  const FakeSource slow({8, 8}, [](std::int64_t) -> Result<void> {
    std::this_thread::sleep_for(300ms);
    return {};
  });
  const auto pipeline = open(slow, schema, options_of(4, 2));
  std::thread stopper([&] {
    std::this_thread::sleep_for(30ms);
    pipeline->stop();
  });
  const auto start = Clock::now();
  EXPECT_EQ(pipeline->next_batch()->state, FetchState::kStopped);
  EXPECT_LT(seconds_since(start), 0.25);
  stopper.join();
}

TEST(BatchPipeline, AReadThatHangsIsNamedAndLeftBehind) {
  const auto schema = fake_schema();
  std::atomic<bool> go{false}, left{false};
  {
    const FakeSource source({8, 8, 8}, [&](std::int64_t b) -> Result<void> {
      for (int i = 0; b == 1 && !go && i < 2000; ++i) std::this_thread::sleep_for(5ms);
      if (b == 1) left = true;
      return {};
    });
    auto o = options_of(4, 0);
    o.stall_limit_s = 0.1;
    const auto pipeline = open(source, schema, o);
    const Trained run = train(*pipeline);
    EXPECT_EQ(run.batches.size(), 2U);
    ASSERT_TRUE(run.error);
    EXPECT_EQ(run.error->code(), Code::kTimeout);
    EXPECT_THAT(run.error->text(), AllOf(HasSubstr("reader 0"), HasSubstr("row group 1")));
    const auto start = Clock::now();
    pipeline->stop();
    EXPECT_EQ(pipeline->next_batch()->state, FetchState::kStopped);
    EXPECT_LT(seconds_since(start), 1.0);
  }
  // The call returns after its pipeline and its source are gone.
  go = true;
  for (int i = 0; i < 1000 && !left; ++i) std::this_thread::sleep_for(2ms);
  EXPECT_TRUE(left);
  std::this_thread::sleep_for(20ms);
}

}  // namespace
}  // namespace paceline::data
