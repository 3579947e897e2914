// What the device room promises, on the GPU.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "device/gpu.hpp"
#include "device/graph.hpp"
#include "device/memory.hpp"
#include "device/testing/gpu_test.hpp"

namespace paceline::device {
namespace {

class Device : public testing::GpuTest {};

TEST_F(Device, IsNamed) {
  const auto gpu = find_gpu();
  ASSERT_TRUE(gpu.ok());
  EXPECT_FALSE(gpu->name.empty());
  EXPECT_EQ(gpu->major, 9);
  EXPECT_GT(gpu->multiprocessors, 0);
  EXPECT_LE(gpu->free_bytes, gpu->memory_bytes);
}

TEST_F(Device, MemoryThatIsNotThereIsAnErrorWithTheBytes) {
  const auto memory = Memory::create(std::size_t{1} << 50, "the test");
  ASSERT_FALSE(memory.ok());
  EXPECT_EQ(memory.error().code(), Code::kOutOfMemory);
  EXPECT_NE(memory.error().text().find("1024 TiB"), std::string::npos) << memory.error().text();
  EXPECT_TRUE(Memory::create(1024, "the test").ok()) << "the error before does not stay";
}

TEST_F(Device, CopiesRunInStreamOrder) {
  constexpr std::size_t kBytes = 1 << 20;
  auto host = PinnedBuffer::create(kBytes, "the test");
  auto back = PinnedBuffer::create(kBytes, "the test");
  auto memory = Memory::create(kBytes, "the test");
  ASSERT_TRUE(host.ok() && back.ok() && memory.ok());
  const Stream up("up"), down("down");
  Event copied;
  for (int round = 0; round < 50; ++round) {
    std::memset(host->data(), round, kBytes);
    copy_to_device(up, memory->data(), host->data(), kBytes);
    copied.record(up);
    down.wait_for(copied);
    copy_to_host(down, back->data(), memory->data(), kBytes);
    down.synchronize();
    ASSERT_EQ(std::memcmp(host->data(), back->data(), kBytes), 0) << round;
  }
}

TEST_F(Device, AnArenaOfTwoPassesFits) {
  const auto place = [](Arena& arena) {
    return std::pair(arena.take<float>(3), arena.take<std::int64_t>(100));
  };
  Arena counting;
  place(counting);
  auto memory = Memory::create(counting.used(), "the test");
  ASSERT_TRUE(memory.ok());
  Arena arena(*memory);
  const auto [a, b] = place(arena);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(a) % kBufferAlign, 0U);
  EXPECT_GE(reinterpret_cast<std::byte*>(b) - reinterpret_cast<std::byte*>(a), 12);
  EXPECT_EQ(arena.used(), memory->size_bytes());
}

TEST_F(Device, AGraphRunsWhatWasCapturedAsOftenAsItIsLaunched) {
  auto memory = Memory::create(64, "the test");
  auto host = PinnedBuffer::create(64, "the test");
  auto back = PinnedBuffer::create(64, "the test");
  ASSERT_TRUE(memory.ok() && host.ok() && back.ok());
  const Stream stream("test");
  const auto launches = [&] {
    copy_to_device(stream, memory->data(), host->data(), 64);
    copy_to_host(stream, back->data(), memory->data(), 64);
  };
  std::memset(host->data(), 1, 64);
  const Graph graph = Graph::capture(stream, launches);
  stream.synchronize();
  EXPECT_EQ(back->data()[0], std::byte{0}) << "capturing runs nothing";
  for (int round = 2; round < 6; ++round) {
    std::memset(host->data(), round, 64);
    graph.launch(stream);
    stream.synchronize();
    EXPECT_EQ(std::memcmp(host->data(), back->data(), 64), 0) << round;
  }
}

TEST_F(Device, ADelayHoldsUpItsStreamAlone) {
  const Stream slow("slow"), fast("fast");
  Event late, early;
  delay(slow, 200'000);
  late.record(slow);
  early.record(fast);
  early.wait();
  EXPECT_FALSE(late.done());
  late.wait();
}

}  // namespace
}  // namespace paceline::device
