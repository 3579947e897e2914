#include "core/log.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

namespace paceline::log {
namespace {

using ::testing::MatchesRegex;
using ::testing::internal::CaptureStderr;
using ::testing::internal::GetCapturedStderr;

TEST(Log, ALineHasTimeLevelAndText) {
  CaptureStderr();
  warning("12 rows {skipped} 100%");
  EXPECT_THAT(GetCapturedStderr(), MatchesRegex("[0-9:]+ warning 12 rows \\{skipped\\} 100%\n"));
}

TEST(Log, KeepsWhatIsAtLeastTheLevel) {
  const auto lines = [](Level level) {
    set_level(level);
    CaptureStderr();
    debug("d");
    info("i");
    warning("w");
    error("e");
    const std::string text = GetCapturedStderr();
    return std::count(text.begin(), text.end(), '\n');
  };
  EXPECT_EQ(lines(Level::kDebug), 4);
  EXPECT_EQ(lines(Level::kWarning), 2);
  EXPECT_EQ(lines(Level::kError), 1);
  EXPECT_EQ(lines(Level::kInfo), 3) << "the level at the start";
}

TEST(Log, LinesOfThreadsStayWhole) {
  CaptureStderr();
  std::vector<std::thread> threads;
  for (const char c : {'a', 'b', 'c'}) {
    threads.emplace_back([c] {
      for (int i = 0; i < 50; ++i) info(std::string(100, c));
    });
  }
  for (auto& thread : threads) thread.join();
  const std::string text = GetCapturedStderr();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 150);
  for (const char c : {'a', 'b', 'c'}) {
    std::size_t whole = 0;
    const std::string run = " info " + std::string(100, c) + "\n";
    for (std::size_t at = text.find(run); at != std::string::npos; at = text.find(run, at + 1)) {
      ++whole;
    }
    EXPECT_EQ(whole, 50U) << c;
  }
}

}  // namespace
}  // namespace paceline::log
