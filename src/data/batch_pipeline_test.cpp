#include "data/batch_pipeline.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <numeric>
#include <set>
#include <thread>

#include "core/rng.hpp"
#include "data/testing/fake_source.hpp"
#include "data/testing/impressions.hpp"

namespace paceline::data {
namespace {

using namespace std::chrono_literals;
using namespace testing;  // NOLINT: this room's test support
using ::testing::AllOf;
using ::testing::HasSubstr;

// What a batch says, byte for byte, and where it stands.
struct Seen {
  std::vector<std::int64_t> rows;
  std::string bytes;
  Position position;
  std::int64_t epoch = 0;
  bool last = false;
  friend bool operator==(const Seen&, const Seen&) = default;
};

template <typename T>
void add_bytes(std::string& to, std::span<const T> values) {
  to.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
}

Seen seen(const BatchPipeline::Lease& lease) {
  const auto& b = lease.batch();
  Seen s{{b.dataset_row().begin(), b.dataset_row().end()},
         {},
         lease.position(),
         lease.epoch(),
         lease.last_of_epoch()};
  add_bytes(s.bytes, b.cu_tokens());
  add_bytes(s.bytes, b.cu_history());
  add_bytes(s.bytes, b.cu_candidates());
  add_bytes(s.bytes, b.positions());
  add_bytes(s.bytes, b.actions());
  add_bytes(s.bytes, b.user_id());
  for (int k = 0; k <= b.layout().prefix_tokens() + 1; ++k) {
    for (int f = 0; f < static_cast<int>(b.layout().features(k).size()); ++f) {
      const auto kind = b.layout().features(k)[static_cast<std::size_t>(f)].kind;
      if (kind == features::Kind::kNumber) {
        add_bytes(s.bytes, b.feature_float(k, f));
      } else if (kind == features::Kind::kMultiHot) {
        add_bytes(s.bytes, b.feature_mask(k, f));
      } else {
        add_bytes(s.bytes, b.feature_int(k, f));
      }
    }
  }
  return s;
}

std::unique_ptr<BatchPipeline> open(const Source& source, const features::Schema& schema,
                                    const BatchPipelineOptions& options,
                                    const Position& start = {}) {
  auto pipeline = BatchPipeline::create(source, schema, options, start);
  PL_CHECK(pipeline.ok(), pipeline.error().text());
  return std::move(*pipeline);
}

// Trains at most `most` batches; what ended it is in `state` or `error`.
struct Trained {
  std::vector<Seen> batches;
  FetchState state = FetchState::kBatch;
  std::optional<Error> error;
};
Trained train(BatchPipeline& pipeline, std::size_t most = SIZE_MAX) {
  Trained run;
  while (run.batches.size() < most) {
    auto fetched = pipeline.next_batch();
    if (!fetched) {
      run.error = fetched.error();
      break;
    }
    run.state = fetched->state;
    if (fetched->state != FetchState::kBatch) break;
    run.batches.push_back(seen(fetched->lease));
    fetched->lease.mark_trained();
    EXPECT_EQ(pipeline.offsets_to_commit(), run.batches.back().position);
  }
  return run;
}

std::vector<std::int64_t> rows_of(const std::vector<Seen>& batches, std::int64_t epoch = -1) {
  std::vector<std::int64_t> rows;
  for (const auto& b : batches) {
    if (epoch < 0 || b.epoch == epoch) rows.insert(rows.end(), b.rows.begin(), b.rows.end());
  }
  return rows;
}

void expect_all_once(std::vector<std::int64_t> rows, std::int64_t count, const std::string& what) {
  std::sort(rows.begin(), rows.end());
  ASSERT_EQ(static_cast<std::int64_t>(rows.size()), count) << what;
  for (std::int64_t r = 0; r < count; ++r) {
    ASSERT_EQ(rows[static_cast<std::size_t>(r)], r) << what;
  }
}

BatchPipelineOptions options_of(std::int32_t examples, std::int64_t window = 2) {
  BatchPipelineOptions o;
  o.limits = {.examples = examples, .tokens = 0, .history_len = 8, .candidates = 4};
  o.shuffle_window = window;
  o.seed = 3;
  return o;
}

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
  EXPECT_THAT(run.error->text(), AllOf(HasSubstr("row group 1, row 11"), HasSubstr("7 tokens"),
                                       HasSubstr("batch.tokens = 6")));
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

// Random datasets, limits and readers; the run is left and resumed at random places with other
// limits each time: every row once per epoch all the same.
TEST(BatchPipeline, EveryRowOnceAcrossRestarts) {
  std::uint64_t seed = 20;
  if (const char* text = std::getenv("PL_TEST_SEED"); text != nullptr) {
    seed = std::strtoull(text, nullptr, 10);
  }
  const auto schema = fake_schema();
  for (std::uint64_t round = 0; round < 60; ++round) {
    const CounterRng rng(seed, RngStream::kTest);
    std::uint64_t draws = 0;
    const auto draw = [&](std::int64_t low, std::int64_t high) {
      return low + static_cast<std::int64_t>(
                       rng.below(static_cast<std::uint64_t>(high - low + 1), round, draws++));
    };
    std::vector<std::int64_t> blocks(static_cast<std::size_t>(draw(1, 12)));
    for (auto& b : blocks) b = draw(0, 3) == 0 ? draw(0, 1) : draw(0, 40);
    const FakeSource source(blocks);
    const std::int64_t window = draw(0, 14);
    const std::int64_t epochs = draw(1, 2);
    std::vector<Seen> all;
    Position at;
    const std::string what =
        "PL_TEST_SEED=" + std::to_string(seed) + " round " + std::to_string(round);
    for (int life = 0;; ++life) {
      ASSERT_LT(life, 500) << what;
      auto o = options_of(static_cast<std::int32_t>(draw(1, 20)), window);
      o.limits.tokens = draw(0, 1) == 0 ? 0 : static_cast<std::int32_t>(draw(8, 60));
      o.depth = static_cast<int>(draw(1, 5));
      o.readers = static_cast<int>(draw(1, 4));
      o.overlap = draw(0, 3) != 0;
      o.epochs = epochs;
      const auto pipeline = open(source, schema, o, at);
      const Trained run = train(*pipeline, static_cast<std::size_t>(draw(1, 30)));
      ASSERT_FALSE(run.error) << what << ": " << run.error->text();
      all.insert(all.end(), run.batches.begin(), run.batches.end());
      at = pipeline->offsets_to_commit();
      if (run.state == FetchState::kEnd) break;
    }
    for (std::int64_t e = 0; e < epochs; ++e) {
      expect_all_once(rows_of(all, e), source.rows(), what);
    }
    EXPECT_EQ(at.rows, epochs * source.rows()) << what;
  }
}

std::int64_t resident_kib() {
  std::ifstream status("/proc/self/statm");
  std::int64_t size = 0, resident = 0;
  status >> size >> resident;
  return resident * (::sysconf(_SC_PAGESIZE) / 1024);
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
  const std::int64_t before = resident_kib();
  for (int i = 0; i < 5; ++i) use();
  for (int i = 0; i < 20; ++i) open(**source, schema, o);  // abandoned at once
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
