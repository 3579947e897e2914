#include "train/train_config.hpp"

#include <gtest/gtest.h>

namespace paceline::train {
namespace {

TEST(KeyClass, FollowsTheDesign) {
  for (const char* key :
       {"data.depth", "data.readers", "train.threads", "train.overlap", "train.graph",
        "train.log_every", "eval.every_steps", "run.dir", "data.train"}) {
    EXPECT_EQ(key_class(key), KeyClass::kFree) << key;
  }
  for (const char* key :
       {"batch.examples", "batch.tokens", "train.device", "train.precision", "schedule.kind",
        "checkpoint.keep_last", "train.epochs", "optimizer.lr"}) {
    EXPECT_EQ(key_class(key), KeyClass::kReported) << key;
  }
  for (const char* key :
       {"features[0].rows", "actions[1].bit", "targets[0].cap", "model.width", "train.seed",
        "data.seed", "data.shuffle_window", "data.user_column", "something.new"}) {
    EXPECT_EQ(key_class(key), KeyClass::kFixed) << key;
  }
}

TEST(ChangedKeys, NamesBothValuesAndLeavesFreeKeysOut) {
  const auto changes =
      changed_keys({{"model.width", "128"}, {"data.depth", "2"}, {"features[1].rows", "8"}},
                   {{"model.width", "64"}, {"data.depth", "5"}, {"batch.examples", "3"}});
  ASSERT_EQ(changes.size(), 3U);
  EXPECT_EQ(changes[0].key, "batch.examples");
  EXPECT_EQ(changes[0].was, "not set");
  EXPECT_EQ(changes[1].key, "features[1].rows");
  EXPECT_EQ(changes[1].is, "not set");
  EXPECT_EQ(changes[2].key, "model.width");
  EXPECT_EQ(changes[2].was, "128");
  EXPECT_EQ(changes[2].is, "64");
}

}  // namespace
}  // namespace paceline::train
