// The reader of safetensors files: any bytes are tensors that fill the file, or an error.
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <string>

#include "checkpoint/checkpoint.hpp"
#include "fuzz/memory_file.hpp"
#include "fuzz/target.hpp"

namespace {

using namespace paceline;
using checkpoint::Tensor;

const std::filesystem::path& second_file() {
  static const auto path = std::filesystem::path("/dev/shm") /
                           ("paceline-fuzz-" + std::to_string(::getpid()) + ".safetensors");
  return path;
}

void check_sizes(const std::vector<Tensor>& tensors, const std::uint8_t* data, std::size_t size) {
  std::uint64_t header = 0, bytes = 0;
  std::memcpy(&header, data, sizeof(header));
  for (const auto& t : tensors) {
    std::uint64_t elements = 1;
    for (const auto n : t.shape) elements *= static_cast<std::uint64_t>(n);
    PL_CHECK(t.bytes.size_bytes() == elements * size_of(t.dtype), "a shape fits its bytes");
    bytes += t.bytes.size_bytes();
  }
  PL_CHECK(sizeof(header) + header + bytes == size, "tensors fill the file");
}

// Not to this file: another may have spaces and an order that ours has not.
void check_reads_back(const std::vector<Tensor>& tensors, const checkpoint::Metadata& metadata) {
  std::filesystem::remove(second_file());
  std::vector<checkpoint::TensorView> views;
  for (const auto& t : tensors) {
    views.push_back({t.name, t.dtype, t.shape, {t.bytes.data(), t.bytes.size_bytes()}});
  }
  PL_CHECK(checkpoint::write_safetensors(second_file(), views, metadata).ok(), "it is written");
  const auto header = checkpoint::read_safetensors_header(second_file());
  PL_CHECK(header.ok() && header->metadata == metadata, "metadata read back");
  const auto again = checkpoint::read_safetensors(second_file());
  PL_CHECK(again.ok() && again->size() == tensors.size(), "tensors read back");
  for (const auto& t : tensors) {
    bool found = false;
    for (const auto& o : *again) {
      if (o.name != t.name) continue;
      const auto bytes = t.bytes.size_bytes();
      found = o.dtype == t.dtype && o.shape == t.shape && o.bytes.size_bytes() == bytes &&
              (bytes == 0 || std::memcmp(o.bytes.data(), t.bytes.data(), bytes) == 0);
    }
    PL_CHECK(found, "a tensor reads back");
  }
  std::filesystem::remove(second_file());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string file = fuzz::as_file(data, size);
  const auto header = checkpoint::read_safetensors_header(file);
  const auto tensors = checkpoint::read_safetensors(file);
  PL_CHECK(header.ok() == tensors.ok(), "a header that is refused has no tensors");
  if (!tensors) return 0;
  check_sizes(*tensors, data, size);
  check_reads_back(*tensors, header->metadata);
  return 0;
}
