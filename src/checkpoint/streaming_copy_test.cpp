#include "checkpoint/streaming_copy.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace paceline::checkpoint {
namespace {

TEST(StreamingCopy, CopiesTheseBytesAndNoOthers) {
  constexpr std::size_t kRoom = 512;
  for (const std::size_t bytes : {0, 1, 31, 32, 33, 127, 128, 129, 160, 255, 256, 300}) {
    for (std::size_t to = 0; to < 40; to += 3) {
      for (const std::size_t from : {0, 1, 8, 32, 45}) {
        std::vector<std::byte> source(kRoom), target(kRoom, std::byte{0xEE});
        for (std::size_t i = 0; i < kRoom; ++i) source[i] = static_cast<std::byte>(i * 7 + 1);
        auto expected = target;
        for (std::size_t i = 0; i < bytes; ++i) expected[to + i] = source[from + i];
        streaming_copy(target.data() + to, source.data() + from, bytes);
        ASSERT_EQ(target, expected) << bytes << " bytes from " << from << " to " << to;
      }
    }
  }
}

}  // namespace
}  // namespace paceline::checkpoint
