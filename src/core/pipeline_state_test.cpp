#include "core/pipeline_state.hpp"

#include <gtest/gtest.h>

namespace paceline {
namespace {

TEST(PipelineState, WalksSlotsAndLaps) {
  for (const std::uint32_t stages : {1U, 2U, 3U, 7U}) {
    auto producer = make_pipeline_state(PipelineUserType::kProducer, stages);
    auto consumer = make_pipeline_state(PipelineUserType::kConsumer, stages);
    for (std::uint64_t count = 0; count < 40; ++count, ++producer, ++consumer) {
      EXPECT_EQ(consumer.count, count);
      EXPECT_EQ(consumer.index, count % stages);
      EXPECT_EQ(consumer.phase, count / stages % 2);
      EXPECT_EQ(producer.index, consumer.index);
      EXPECT_EQ(producer.phase, consumer.phase ^ 1U);
    }
  }
}

TEST(PipelineState, AnyCountIsReachedWithoutStepping) {
  for (const auto user : {PipelineUserType::kProducer, PipelineUserType::kConsumer}) {
    for (const std::uint32_t stages : {1U, 2U, 5U}) {
      auto stepped = make_pipeline_state(user, stages);
      for (std::uint64_t count = 0; count < 30; ++count, ++stepped) {
        const auto direct = make_pipeline_state(user, stages, count);
        EXPECT_EQ(direct.index, stepped.index);
        EXPECT_EQ(direct.phase, stepped.phase);
        EXPECT_EQ(direct.count, stepped.count);
        EXPECT_EQ(direct.num_stages, stages);
      }
    }
  }
}

// What a barrier with a phase bit does: a wait for phase p passes once the barrier's own phase is
// no longer p. A fresh barrier has phase 0.
TEST(PipelineState, FirstLapOfAProducerPassesAConsumerWaits) {
  constexpr std::uint32_t kBarrierPhase = 0;
  auto producer = make_pipeline_state(PipelineUserType::kProducer, 3);
  for (int i = 0; i < 3; ++i, ++producer) EXPECT_NE(producer.phase, kBarrierPhase);
  EXPECT_EQ(producer.phase, kBarrierPhase) << "the second lap waits for a release";
  EXPECT_EQ(make_pipeline_state(PipelineUserType::kConsumer, 3).phase, kBarrierPhase);
}

}  // namespace
}  // namespace paceline
