// HostPipeline under seeded schedules: each seed is a scenario and an interleaving. The same search
// must find each verb broken in turn, or it proves nothing.
#include <gtest/gtest.h>

#include <cstdio>

#include "pipeline/testing/scenario.hpp"

namespace paceline::pipeline {
namespace {

using testing::Fault;
using testing::first_seed;
using testing::search;

TEST(HostPipelineSchedule, KeepsItsPromisesUnderAnySchedule) {
  EXPECT_EQ(search<Fault::kNone>(first_seed(1), 1500), "");
}

TEST(HostPipelineSchedule, ASeedIsASchedule) {
  const std::string found = search<Fault::kLookThenAnnounce>(1, 500);
  ASSERT_NE(found, "");
  const std::uint64_t seed = std::strtoull(found.c_str() + found.find('=') + 1, nullptr, 10);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(search<Fault::kLookThenAnnounce>(seed, 1), found);
}

// A broken pipeline may also break one of its own checks, so the search runs in a process of its
// own.
template <Fault fault>
void hunt() {
  const std::string found = search<fault>(first_seed(1), 500);
  if (found.empty()) std::_Exit(0);
  std::fprintf(stderr, "found: %s\n", found.c_str());
  std::_Exit(1);
}

#define EXPECT_FOUND(fault) EXPECT_DEATH(hunt<fault>(), "found: |broken assumption")

TEST(HostPipelineScheduleDeathTest, FindsEachVerbBroken) {
  EXPECT_FOUND(Fault::kAcquireAtOnce);
  EXPECT_FOUND(Fault::kWaitAtOnce);
  EXPECT_FOUND(Fault::kCommitEarly);
  EXPECT_FOUND(Fault::kReleaseEarly);
}

TEST(HostPipelineScheduleDeathTest, FindsLostWakeUps) {
  EXPECT_FOUND(Fault::kCommitSilent);
  EXPECT_FOUND(Fault::kReleaseSilent);
  EXPECT_FOUND(Fault::kStopSilent);
  EXPECT_FOUND(Fault::kLookThenAnnounce);
}

}  // namespace
}  // namespace paceline::pipeline
