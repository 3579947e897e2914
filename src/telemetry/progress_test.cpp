#include "telemetry/progress.hpp"

#include <gtest/gtest.h>

#include <limits>

namespace paceline::telemetry {
namespace {

std::string written(bool terminal, int updates) {
  char* data = nullptr;
  std::size_t size = 0;
  std::FILE* out = open_memstream(&data, &size);
  {
    Progress progress(out, terminal);
    for (int i = 0; i < updates; ++i) progress.update({.step = i});
    progress.line("saved");
  }
  std::fclose(out);
  std::string text(data, size);
  std::free(data);
  return text;
}

TEST(Progress, PlainLinesEndAndHoldNoControlCharacters) {
  const std::string text = written(false, 3);
  EXPECT_EQ(text.find('\r'), std::string::npos);
  EXPECT_EQ(text.find('\033'), std::string::npos);
  EXPECT_NE(text.find("step 0"), std::string::npos);
  EXPECT_EQ(text.find("step 2"), std::string::npos) << "plain lines are limited in rate";
  EXPECT_NE(text.find("\nsaved\n"), std::string::npos);
}

TEST(Progress, LiveLineShowsTheLastStateAtTheEnd) {
  const std::string text = written(true, 3);
  EXPECT_NE(text.rfind("step 2"), std::string::npos);
  EXPECT_EQ(text.back(), '\n');
}

TEST(Progress, TextNamesEveryNumber) {
  const std::string text = progress_text({.step = 12,
                                          .epoch = 1,
                                          .epochs = 2,
                                          .loss = 0.5,
                                          .examples_per_s = 1234.0,
                                          .wait_share = 0.004,
                                          .fraction = 0.75,
                                          .eta_s = 75.0});
  EXPECT_EQ(text,
            "step 12  epoch 2/2  75 %  loss 0.50000  1234 examples/s  wait 0.4 %  ETA 1 min 15 s");
}

TEST(Progress, Durations) {
  EXPECT_EQ(duration_text(0.4), "0 s");
  EXPECT_EQ(duration_text(3599.6), "1 h 0 min");
  EXPECT_EQ(duration_text(std::numeric_limits<double>::infinity()), "unknown");
}

}  // namespace
}  // namespace paceline::telemetry
