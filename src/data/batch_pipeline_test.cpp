#include "data/batch_pipeline.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "data/testing/deliveries.hpp"
#include "data/testing/fake_source.hpp"
#include "data/testing/impressions.hpp"

namespace paceline::data {
namespace {

using namespace std::chrono_literals;
using namespace testing;  // NOLINT: this room's test support
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(BatchPipeline, EndAfterAnyNumberOfBatches) {
  const auto schema = fake_schema();
  for (const int depth : {1, 3}) {
    for (const int batches : {0, 1, 2, depth, depth + 1, depth + 4}) {
      // The last batch is short.
      const std::int64_t rows = batches == 0 ? 0 : batches * 4 - 1;
      const FakeSource source({rows});
      auto o = options_of(4);
      o.depth = depth;
      const auto pipeline = open(source, schema, o);
      const Trained run = train(*pipeline);
      EXPECT_EQ(run.state, FetchState::kEnd);
      ASSERT_EQ(run.batches.size(), static_cast<std::size_t>(batches));
      if (batches > 0) {
        EXPECT_EQ(run.batches.back().rows.size(), 3U);
      }
      expect_all_once(rows_of(run.batches), rows, "");
      for (int again = 0; again < 3; ++again) {
        EXPECT_EQ(pipeline->next_batch()->state, FetchState::kEnd);
      }
      EXPECT_TRUE(pipeline->state().exhausted);
      EXPECT_EQ(pipeline->state().current, batches - 1);
    }
  }
}

TEST(BatchPipeline, NoBlocksAndEmptyBlocks) {
  const auto schema = fake_schema();
  for (const std::int64_t window : {0, 1, 5}) {
    const FakeSource none({});
    EXPECT_EQ(train(*open(none, schema, options_of(4, window))).state, FetchState::kEnd);
    const FakeSource empty({0, 0, 0});
    auto o = options_of(4, window);
    o.epochs = 1'000'000'000;
    EXPECT_EQ(train(*open(empty, schema, o)).state, FetchState::kEnd);
    for (const bool overlap : {true, false}) {
      const FakeSource some({0, 5, 0, 0, 7, 0});
      auto p = options_of(4, window);
      p.overlap = overlap;
      p.epochs = 2;
      const Trained run = train(*open(some, schema, p));
      EXPECT_EQ(run.state, FetchState::kEnd);
      expect_all_once(rows_of(run.batches, 0), 12, "");
      expect_all_once(rows_of(run.batches, 1), 12, "");
    }
  }
}

TEST(BatchPipeline, EpochsAreCompleteAndDiffer) {
  const auto schema = fake_schema();
  const FakeSource source({10, 20, 5, 9});
  auto o = options_of(7);
  o.epochs = 3;
  const Trained run = train(*open(source, schema, o));
  for (int e = 0; e < 3; ++e) {
    expect_all_once(rows_of(run.batches, e), 44, "epoch " + std::to_string(e));
  }
  EXPECT_NE(rows_of(run.batches, 0), rows_of(run.batches, 1));
  EXPECT_EQ(
      std::count_if(run.batches.begin(), run.batches.end(), [](const Seen& s) { return s.last; }),
      3);
  EXPECT_EQ(run.batches.back().position.epoch, 3);
  EXPECT_EQ(run.batches.back().position.next_row, 0);
  EXPECT_EQ(run.batches.back().position.rows, 3 * 44);
}

TEST(BatchPipeline, DeliveryDoesNotDependOnTiming) {
  const TempDir dir;
  ImpressionOptions data;
  data.rows = 230;
  data.files = 3;
  data.row_group_rows = 20;
  write_impressions(dir.path(), data);
  const auto schema = schema_of(impression_features());
  const auto source = open_parquet({dir.path().string()}, schema);
  ASSERT_TRUE(source) << source.error().text();
  auto o = options_of(16, 3);
  o.limits.tokens = 90;
  o.epochs = 2;
  o.depth = 1;
  const Trained base = train(*open(**source, schema, o));
  ASSERT_EQ(base.state, FetchState::kEnd);
  expect_all_once(rows_of(base.batches, 1), 230, "");
  for (const int depth : {1, 2, 5}) {
    for (const int readers : {1, 2, 4}) {
      for (const bool overlap : {true, false}) {
        o.depth = depth;
        o.readers = readers;
        o.overlap = overlap;
        EXPECT_EQ(train(*open(**source, schema, o)).batches, base.batches)
            << "depth " << depth << " readers " << readers << " overlap " << overlap;
      }
    }
  }
  o.seed = 4;
  EXPECT_NE(train(*open(**source, schema, o)).batches, base.batches);
}

TEST(BatchPipeline, ResumesAtEveryBatch) {
  const auto schema = fake_schema();
  for (const std::int64_t window : {0, 1, 3, 100}) {
    const FakeSource source({7, 0, 12, 5, 1, 9});
    auto o = options_of(5, window);
    o.epochs = 2;
    const Trained whole = train(*open(source, schema, o));
    for (std::size_t at = 0; at <= whole.batches.size(); ++at) {
      Position start;
      if (at > 0) start = whole.batches[at - 1].position;
      const Trained rest = train(*open(source, schema, o, start));
      const std::vector<Seen> expected(whole.batches.begin() + static_cast<std::ptrdiff_t>(at),
                                       whole.batches.end());
      EXPECT_EQ(rest.batches, expected) << "window " << window << " at " << at;
    }
  }
}

TEST(BatchPipeline, SeekReadsOneWindow) {
  const auto schema = fake_schema();
  const FakeSource source(std::vector<std::int64_t>(40, 10));
  auto o = options_of(10, 4);
  o.overlap = false;
  Position start;
  start.fingerprint = source.fingerprint();
  start.seed = o.seed;
  start.shuffle_window = 4;
  start.next_row = 385;
  const auto pipeline = open(source, schema, o, start);
  EXPECT_EQ(train(*pipeline, 1).batches.size(), 1U);
  EXPECT_LE(source.reads(), 4);
}

TEST(BatchPipeline, WithoutOverlapNothingRunsAhead) {
  const auto schema = fake_schema();
  const FakeSource source(std::vector<std::int64_t>(10, 4));
  auto o = options_of(4, 0);
  o.overlap = false;
  o.readers = 3;
  const auto pipeline = open(source, schema, o);
  std::this_thread::sleep_for(30ms);
  EXPECT_EQ(source.reads(), 0);
  EXPECT_EQ(train(*pipeline, 2).batches.size(), 2U);
  std::this_thread::sleep_for(30ms);
  EXPECT_EQ(source.reads(), 2);
  EXPECT_EQ(pipeline->state().reserve, 0);
}

TEST(BatchPipeline, CutsAheadUpToDepth) {
  const auto schema = fake_schema();
  const FakeSource source(std::vector<std::int64_t>(50, 4));
  auto o = options_of(4, 0);
  o.depth = 3;
  const auto pipeline = open(source, schema, o);
  for (int i = 0; i < 200 && pipeline->state().reserve < 3; ++i) std::this_thread::sleep_for(5ms);
  std::this_thread::sleep_for(20ms);
  EXPECT_EQ(pipeline->state().reserve, 3);
  EXPECT_EQ(pipeline->state().current, -1);
  EXPECT_FALSE(pipeline->state().exhausted);
  EXPECT_LE(source.reads(), 3 + 2);
  EXPECT_EQ(pipeline->offsets_to_commit().batches, 0);
}

TEST(BatchPipeline, CommitsOnlyWhatWasTrained) {
  const auto schema = fake_schema();
  const FakeSource source({40});
  auto o = options_of(4);
  o.leases = 3;
  const auto pipeline = open(source, schema, o);
  EXPECT_EQ(pipeline->offsets_to_commit().fingerprint, source.fingerprint());
  auto first = pipeline->next_batch();
  auto second = pipeline->next_batch();
  EXPECT_EQ(pipeline->offsets_to_commit().rows, 0);
  first->lease.mark_trained();
  EXPECT_EQ(pipeline->offsets_to_commit().rows, 4);
  second->lease.mark_trained();
  EXPECT_EQ(pipeline->offsets_to_commit().rows, 8);
  // Given back in the other order, and from another thread.
  std::thread([&] { second->lease.give_back(); }).join();
  first->lease.give_back();
  EXPECT_EQ(train(*pipeline).batches.size(), 8U);
}

TEST(BatchPipeline, RefusesAnotherPosition) {
  const auto schema = fake_schema();
  const FakeSource source({8, 8});
  const auto o = options_of(4, 2);
  const Position good = open(source, schema, o)->offsets_to_commit();
  const auto refusal = [&](Position p) {
    const auto pipeline = BatchPipeline::create(source, schema, o, p);
    return pipeline ? std::string("accepted") : pipeline.error().text();
  };
  Position p = good;
  EXPECT_EQ(refusal(p), "accepted");
  p.fingerprint = 0xAB;
  EXPECT_THAT(refusal(p), AllOf(HasSubstr("fingerprint"), HasSubstr("00000000000000ab")));
  p = good;
  p.seed = 77;
  EXPECT_THAT(refusal(p), AllOf(HasSubstr("data.seed"), HasSubstr("77"), HasSubstr("3")));
  p = good;
  p.shuffle_window = 9;
  EXPECT_THAT(refusal(p), AllOf(HasSubstr("data.shuffle_window"), HasSubstr("9"), HasSubstr("2")));
  p = good;
  p.next_row = 17;
  EXPECT_THAT(refusal(p), HasSubstr("row 17 of 16"));
  p.next_row = -1;
  EXPECT_THAT(refusal(p), HasSubstr("cannot be"));
}

TEST(BatchPipeline, RefusesOptionsOutOfRange) {
  const auto schema = fake_schema();
  const FakeSource source({8});
  const auto refused = [&](auto&& change) {
    auto o = options_of(4);
    change(o);
    const auto pipeline = BatchPipeline::create(source, schema, o, {});
    return !pipeline && pipeline.error().code() == Code::kInvalidArgument;
  };
  EXPECT_TRUE(refused([](auto& o) { o.depth = 0; }));
  EXPECT_TRUE(refused([](auto& o) { o.readers = 0; }));
  EXPECT_TRUE(refused([](auto& o) { o.leases = 0; }));
  EXPECT_TRUE(refused([](auto& o) { o.shuffle_window = -1; }));
  EXPECT_TRUE(refused([](auto& o) { o.epochs = -1; }));
  EXPECT_TRUE(refused([](auto& o) { o.stall_limit_s = 0; }));
  EXPECT_TRUE(refused([](auto& o) { o.limits.examples = 0; }));
}

TEST(BatchPipeline, CountsCutsAndWaits) {
  const auto schema = fake_schema();
  const FakeSource source({50, 50});
  auto o = options_of(10, 0);
  o.limits.history_len = 2;
  o.limits.candidates = 1;
  const auto pipeline = open(source, schema, o);
  EXPECT_EQ(train(*pipeline).batches.size(), 10U);
  EXPECT_EQ(pipeline->cuts().history_events_cut, 20 * (1 + 2));
  EXPECT_EQ(pipeline->cuts().candidates_cut, 33 + 33 * 2);
  EXPECT_EQ(pipeline->batch_waits().items, 10);
  EXPECT_EQ(pipeline->block_waits().items, 2);
  EXPECT_EQ(pipeline->epoch_rows(), 100);
}

}  // namespace
}  // namespace paceline::data
