// Shares of ranks, bad data that is let pass, leases, memory limits: what the options say.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>

#include "data/batch_pipeline.hpp"
#include "data/testing/deliveries.hpp"
#include "data/testing/fake_source.hpp"

namespace paceline::data {
namespace {

using namespace std::chrono_literals;
using namespace testing;  // NOLINT: this room's test support
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(BatchPipelineRanks, SharesAreTheBatchInOrder) {
  const auto schema = fake_schema();
  const FakeSource source({30, 20, 41});
  auto o = options_of(16, 2);
  const Trained whole = train(*open(source, schema, o));
  for (const int ranks : {2, 3, 5, 20}) {
    std::vector<Trained> shares;
    for (int r = 0; r < ranks; ++r) {
      o.ranks = ranks;
      o.rank = r;
      shares.push_back(train(*open(source, schema, o)));
      ASSERT_EQ(shares.back().batches.size(), whole.batches.size());
    }
    for (std::size_t b = 0; b < whole.batches.size(); ++b) {
      std::vector<std::int64_t> rows;
      for (const auto& share : shares) {
        EXPECT_EQ(share.batches[b].position, whole.batches[b].position);
        rows.insert(rows.end(), share.batches[b].rows.begin(), share.batches[b].rows.end());
      }
      EXPECT_EQ(rows, whole.batches[b].rows) << ranks << " ranks, batch " << b;
    }
  }
}

// An example says the same in its rank's share as in the whole batch.
TEST(BatchPipelineRanks, AShareIsWhatABatchOfItsExamplesWouldBe) {
  const auto schema = fake_schema();
  const FakeSource source({12});
  auto o = options_of(12, 0);
  o.ranks = 3;
  std::int64_t first = 0;
  for (o.rank = 0; o.rank < 3; ++o.rank) {
    const Trained share = train(*open(source, schema, o));
    ASSERT_EQ(share.batches.size(), 1U);
    const auto examples = static_cast<std::int64_t>(share.batches[0].rows.size());
    ASSERT_GT(examples, 0);
    // The same rows as a batch of their own, from the same place in the order.
    auto alone = options_of(static_cast<std::int32_t>(examples), 0);
    Position start = open(source, schema, alone)->offsets_to_commit();
    start.next_row = first;
    const Trained own = train(*open(source, schema, alone, start), 1);
    EXPECT_EQ(own.batches[0].rows, share.batches[0].rows);
    EXPECT_EQ(own.batches[0].bytes, share.batches[0].bytes);
    first += examples;
  }
  EXPECT_EQ(first, 12);
}

TEST(BatchPipelineSkips, BadRowsEndTheRunUnlessLetPass) {
  const auto schema = fake_schema();
  FakeSource source({20, 20});
  source.set_bad_rows({3, 25, 39});
  auto o = options_of(4, 0);
  for (const std::int64_t allowed : {0, 2, 3}) {
    o.skip_bad_rows = allowed;
    const auto pipeline = open(source, schema, o);
    const Trained run = train(*pipeline);
    const auto rows = rows_of(run.batches);
    EXPECT_EQ(pipeline->skipped().bad_rows, allowed);
    if (allowed == 3) {
      EXPECT_EQ(run.state, FetchState::kEnd);
      EXPECT_EQ(rows.size(), 37U);
      continue;
    }
    ASSERT_TRUE(run.error);
    EXPECT_THAT(run.error->text(), HasSubstr(allowed == 0 ? "row 3" : "row 39"));
    // The batch of rows 0 to 2 was not full; that of 34 to 38 was cut in fours.
    EXPECT_EQ(rows.size(), allowed == 0 ? 0U : 36U);
    if (allowed > 0) {
      EXPECT_THAT(run.error->text(), HasSubstr("data.skip_bad_rows = 2"));
    }
  }
}

TEST(BatchPipelineSkips, TheBoundHoldsPerEpochAndAcrossRestarts) {
  const auto schema = fake_schema();
  FakeSource source({10, 10, 10}, [](std::int64_t b) -> Result<void> {
    if (b == 1) return Error(Code::kCorruptData, "fake, row group 1: broken");
    return {};
  });
  source.set_bad_rows({0, 1, 28});
  auto o = options_of(3, 2);
  o.epochs = 2;
  o.skip_bad_rows = 3;
  o.skip_bad_blocks = 1;
  const auto pipeline = open(source, schema, o);
  const Trained whole = train(*pipeline);
  EXPECT_EQ(whole.state, FetchState::kEnd);
  EXPECT_EQ(rows_of(whole.batches, 0).size(), 17U);
  EXPECT_EQ(rows_of(whole.batches, 1).size(), 17U);
  EXPECT_EQ(pipeline->skipped().bad_rows, 6);
  EXPECT_EQ(pipeline->skipped().bad_blocks, 2);
  EXPECT_EQ(pipeline->skipped().rows_of_bad_blocks, 20);
  // What was skipped before a position is remembered by it: no resume skips more or less.
  for (std::size_t at = 1; at < whole.batches.size(); ++at) {
    const Trained rest = train(*open(source, schema, o, whole.batches[at - 1].position));
    EXPECT_FALSE(rest.error) << rest.error->text();
    EXPECT_TRUE(std::equal(rest.batches.begin(), rest.batches.end(),
                           whole.batches.begin() + static_cast<std::ptrdiff_t>(at),
                           whole.batches.end()))
        << at;
  }
  o.skip_bad_blocks = 0;
  EXPECT_TRUE(train(*open(source, schema, o)).error);
  o.skip_bad_blocks = 1;
  o.skip_bad_rows = 2;
  EXPECT_TRUE(train(*open(source, schema, o)).error);
}

// What may come back is not skipped.
TEST(BatchPipelineSkips, NeitherNoMemoryNorNoStorageIsABadBlock) {
  const auto schema = fake_schema();
  for (const Code code : {Code::kOutOfMemory, Code::kIo, Code::kNotFound, Code::kUnavailable}) {
    const FakeSource source({10, 10}, [code](std::int64_t b) -> Result<void> {
      if (b == 1) return Error(code, "not now");
      return {};
    });
    auto o = options_of(5, 0);
    o.skip_bad_blocks = 9;
    const Trained run = train(*open(source, schema, o));
    ASSERT_TRUE(run.error);
    EXPECT_EQ(run.error->code(), code);
    EXPECT_EQ(run.batches.size(), 2U);
  }
}

TEST(BatchPipelineSkips, EverythingBadIsAnEmptyEpoch) {
  const auto schema = fake_schema();
  FakeSource source({3});
  source.set_bad_rows({0, 1, 2});
  auto o = options_of(2, 0);
  o.skip_bad_rows = 3;
  o.epochs = 2;
  const Trained run = train(*open(source, schema, o));
  EXPECT_EQ(run.state, FetchState::kEnd);
  EXPECT_TRUE(run.batches.empty());
}

TEST(BatchPipelineLeases, SeveralAreOutInAnyOrder) {
  const auto schema = fake_schema();
  const FakeSource source({400});
  auto o = options_of(4, 0);
  o.leases = 3;
  const auto pipeline = open(source, schema, o);
  auto kept = pipeline->next_batch();
  const auto rows = seen(kept->lease);
  auto other = pipeline->next_batch();
  // Held for the whole epoch: the pipeline goes round it.
  std::int64_t batches = 2;
  for (;; ++batches) {
    auto fetched = pipeline->next_batch();
    ASSERT_TRUE(fetched) << fetched.error().text();
    if (fetched->state == FetchState::kEnd) break;
    if (batches % 2 == 0) std::swap(other->lease, fetched->lease);
  }
  EXPECT_EQ(batches, 100);
  EXPECT_EQ(seen(kept->lease), rows);
}

TEST(BatchPipelineLeases, OneTooManyIsAStallThatSaysSo) {
  const auto schema = fake_schema();
  const FakeSource source({400});
  auto o = options_of(4, 0);
  o.depth = 1;
  o.stall_limit_s = 0.2;
  const auto pipeline = open(source, schema, o);
  std::vector<BatchPipeline::Lease> held;
  for (int i = 0; i < 10; ++i) {
    auto fetched = pipeline->next_batch();
    if (!fetched) {
      EXPECT_EQ(fetched.error().code(), Code::kTimeout);
      EXPECT_THAT(fetched.error().text(), HasSubstr("buffers given back"));
      EXPECT_LE(i, 3);
      return;
    }
    held.push_back(std::move(fetched->lease));
  }
  FAIL() << "more leases than buffers";
}

TEST(BatchPipelineLeases, ABufferWaitsForWhatStillReadsIt) {
  const auto schema = fake_schema();
  const FakeSource source({80});
  auto o = options_of(4, 0);
  o.depth = 1;
  const auto pipeline = open(source, schema, o);
  std::atomic<int> pending{0}, waited{0}, late{0};
  for (int i = 0;; ++i) {
    auto fetched = pipeline->next_batch();
    ASSERT_TRUE(fetched);
    if (fetched->state == FetchState::kEnd) break;
    // A copy that takes a while, of the buffer as it is.
    const auto* data = fetched->lease.batch().data();
    const auto before = *reinterpret_cast<const std::int32_t*>(data + 4);
    const auto copied_at = Clock::now() + 5ms;
    pending.fetch_add(1);
    fetched->lease.give_back_when([&, data, before, copied_at] {
      std::this_thread::sleep_until(copied_at);
      if (*reinterpret_cast<const std::int32_t*>(data + 4) != before) late.fetch_add(1);
      waited.fetch_add(1);
    });
    EXPECT_FALSE(fetched->lease);
  }
  EXPECT_EQ(late.load(), 0);
  EXPECT_GE(waited.load(), pending.load() - 3);
}

TEST(BatchPipelineLeases, WhatFailsWhileABufferIsStillReadComesInItsTurn) {
  const auto schema = fake_schema();
  const FakeSource source({80});
  auto o = options_of(4, 0);
  o.depth = 1;
  const auto pipeline = open(source, schema, o);
  auto first = pipeline->next_batch();
  first->lease.mark_trained();
  first->lease.give_back_when([] { throw std::runtime_error("the copy failed"); });
  const Trained rest = train(*pipeline);
  ASSERT_TRUE(rest.error);
  EXPECT_THAT(rest.error->text(), HasSubstr("the copy failed"));
  // Buffers that were cut before it was met.
  EXPECT_LE(rest.batches.size(), 3U);
}

TEST(BatchPipelineLeases, NoBufferGoesWhileSomethingReadsIt) {
  const auto schema = fake_schema();
  const FakeSource source({80});
  std::atomic<int> freed{0};
  {
    auto o = options_of(4, 0);
    o.leases = 3;
    const auto pipeline = open(source, schema, o);
    for (int i = 0; i < 3; ++i) {
      auto fetched = pipeline->next_batch();
      if (i == 2) pipeline->stop();
      fetched->lease.give_back_when([&] { freed.fetch_add(1); });
    }
  }
  EXPECT_EQ(freed.load(), 3);
}

TEST(BatchPipelineStart, PositionsThatNoRunReachesAreRefused) {
  const auto schema = fake_schema();
  const FakeSource source({8, 8});
  auto o = options_of(4, 2);
  const Position good = open(source, schema, o)->offsets_to_commit();
  constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();
  for (const bool changed : {false, true}) {
    o.allow_changed_data = changed;
    for (std::int64_t Position::*field :
         {&Position::epoch, &Position::next_row, &Position::rows, &Position::batches,
          &Position::skipped_rows, &Position::skipped_blocks}) {
      for (const std::int64_t value : {std::int64_t{-1}, kHuge}) {
        Position p = good;
        p.*field = value;
        if (changed) p.fingerprint = 1;
        EXPECT_FALSE(BatchPipeline::create(source, schema, o, p)) << value;
      }
    }
    Position p = good;
    p.seed = 9;
    if (changed) p.fingerprint = 1;
    EXPECT_FALSE(BatchPipeline::create(source, schema, o, p));
  }
}

// What the hand-off reports is what the caller lost in next_batch().
TEST(BatchPipelineWaits, AddUpToTheTimeThatTheCallerLost) {
  const auto schema = fake_schema();
  const FakeSource source(std::vector<std::int64_t>(20, 4), [](std::int64_t) -> Result<void> {
    std::this_thread::sleep_for(8ms);
    return {};
  });
  const auto pipeline = open(source, schema, options_of(4, 0));
  std::int64_t lost_ns = 0;
  for (bool end = false; !end;) {
    const std::int64_t start = now_ns();
    auto fetched = pipeline->next_batch();
    lost_ns += now_ns() - start;
    ASSERT_TRUE(fetched);
    end = fetched->state == FetchState::kEnd;
    std::this_thread::sleep_for(2ms);
  }
  const auto reported_ns = pipeline->batch_waits().consumer_wait_ns;
  EXPECT_LE(reported_ns, lost_ns);
  EXPECT_GE(reported_ns, lost_ns - 20'000'000);
  EXPECT_GE(reported_ns, 40'000'000);
}

TEST(BatchPipelineStart, APositionCostsNothingMeasurable) {
  const auto schema = fake_schema();
  const FakeSource source({4000});
  const auto pipeline = open(source, schema, options_of(2, 0));
  std::vector<std::int64_t> ns;
  for (;;) {
    auto fetched = pipeline->next_batch();
    if (!fetched || fetched->state != FetchState::kBatch) break;
    const std::int64_t start = now_ns();
    fetched->lease.mark_trained();
    static_cast<void>(pipeline->offsets_to_commit());
    ns.push_back(now_ns() - start);
  }
  ASSERT_EQ(ns.size(), 2000U);
  std::nth_element(ns.begin(), ns.begin() + 1000, ns.end());
  EXPECT_LT(ns[1000], 10'000);  // 0.1 % of a step of 10 ms
}

TEST(BatchPipelineStart, NothingIsReadFromAnotherPlaceThanItsOwn) {
  const auto schema = fake_schema();
  std::mutex mutex;
  std::set<std::int64_t> read;
  const FakeSource source(std::vector<std::int64_t>(10, 8), [&](std::int64_t b) -> Result<void> {
    const std::lock_guard lock(mutex);
    read.insert(b);
    return {};
  });
  const auto o = options_of(4, 0);
  Position start = open(source, schema, o)->offsets_to_commit();
  start.next_row = 9 * 8;
  read.clear();
  EXPECT_EQ(train(*open(source, schema, o, start)).batches.size(), 2U);
  EXPECT_EQ(read, std::set<std::int64_t>{9});
}

TEST(BatchPipelineMemory, ALimitThatTwoWindowsExceedIsRefused) {
  const auto schema = fake_schema();
  const FakeSource source(std::vector<std::int64_t>(20, 100));
  auto o = options_of(8, 3);
  const auto m = reckon_memory(source, schema, o);
  EXPECT_EQ(m.block_slots, 6);
  EXPECT_EQ(m.batch_buffers, 4);
  EXPECT_EQ(m.block_bytes, 12800);
  o.memory_limit = m.total();
  EXPECT_EQ(train(*open(source, schema, o)).state, FetchState::kEnd);
  o.memory_limit = m.total() - 1;
  const auto refused = BatchPipeline::create(source, schema, o, {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(refused.error().text(),
              AllOf(HasSubstr("data.memory_limit"), HasSubstr("data.shuffle_window")));
}

TEST(BatchPipelineMemory, ReadersStopAtTheLimitInFileOrder) {
  const auto schema = fake_schema();
  const FakeSource source(std::vector<std::int64_t>(20, 100));
  auto o = options_of(8, 0);
  o.readers = 8;
  EXPECT_EQ(reckon_memory(source, schema, o).block_slots, 9);
  o.readers = 1;
  const std::int64_t two = reckon_memory(source, schema, o).total();
  o.readers = 8;
  o.memory_limit = two + 12800;
  EXPECT_EQ(reckon_memory(source, schema, o).block_slots, 3);
  const auto pipeline = open(source, schema, o);
  std::this_thread::sleep_for(30ms);
  EXPECT_LE(source.reads(), 3 + 1);
  EXPECT_EQ(train(*pipeline).batches.size(), 250U);
}

TEST(BatchPipelineMemory, FirstFetchAtTheFirstCallWhenAskedFor) {
  const auto schema = fake_schema();
  const FakeSource source(std::vector<std::int64_t>(4, 10));
  auto o = options_of(5, 1);
  o.fetch_at_creation = false;
  const auto pipeline = open(source, schema, o);
  std::this_thread::sleep_for(30ms);
  EXPECT_EQ(source.reads(), 0);
  EXPECT_EQ(train(*pipeline).batches.size(), 8U);
}

TEST(BatchPipelineStart, ChangedDataBeginsTheEpochAgainWhenAllowed) {
  const auto schema = fake_schema();
  const FakeSource before({10, 10}), after({10, 10, 10});
  auto o = options_of(5, 1);
  o.epochs = 3;
  const auto first = open(before, schema, o);
  train(*first, 6);  // in the second epoch
  const Position at = first->offsets_to_commit();
  EXPECT_FALSE(BatchPipeline::create(after, schema, o, at));
  o.allow_changed_data = true;
  const auto second = open(after, schema, o, at);
  EXPECT_EQ(second->offsets_to_commit().rows, 30);
  const Trained rest = train(*second);
  EXPECT_EQ(rest.batches.front().position.batches, 7);
  expect_all_once(rows_of(rest.batches, 1), 30, "");
  expect_all_once(rows_of(rest.batches, 2), 30, "");
  // With the same data it changes nothing.
  const Trained same = train(*open(before, schema, o, at));
  EXPECT_EQ(rows_of(same.batches, 1).size(), 10U);
}

}  // namespace
}  // namespace paceline::data
