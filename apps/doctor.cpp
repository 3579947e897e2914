#include <arrow/api.h>
#include <fmt/format.h>
#include <oneapi/dnnl/dnnl.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <thread>

#include "commands.hpp"
#include "device/gpu.hpp"

namespace paceline::app {
namespace {

std::string first_value(const char* file, const std::string& key) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (line.rfind(key, 0) != 0) continue;
    const std::size_t colon = line.find(':');
    const std::size_t start =
        colon == std::string::npos ? key.size() : line.find_first_not_of(" \t", colon + 1);
    return start == std::string::npos ? "" : line.substr(start);
  }
  return "unknown";
}

void line(const std::string& what, const std::string& value) {
  fmt::print("  {:<18} {}\n", what, value);
}

double gib(std::size_t bytes) { return static_cast<double>(bytes) / 1073741824.0; }

// "13.0" from 13000.
std::string cuda_version(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

Result<int> doctor() {
  fmt::print("paceline {}\n\nmachine\n", PACELINE_VERSION);
  line("processor", first_value("/proc/cpuinfo", "model name"));
  line("cores", std::to_string(std::thread::hardware_concurrency()));
  const auto page_bytes = static_cast<double>(sysconf(_SC_PAGESIZE));
  const double memory = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * page_bytes;
  line("memory", fmt::format("{:.1f} GiB", memory / 1073741824.0));
  std::string isa = "AVX2, FMA (needed)";
  if (__builtin_cpu_supports("avx512f") != 0) isa += ", AVX-512 (used by the GEMM library)";
  line("instructions", isa);

  fmt::print("\nlibraries\n");
  line("Arrow, Parquet", arrow::GetBuildInfo().version_string);
  const dnnl_version_t* dnnl = dnnl_version();
  line("oneDNN", fmt::format("{}.{}.{}", dnnl->major, dnnl->minor, dnnl->patch));
  line("fmt",
       fmt::format("{}.{}.{}", FMT_VERSION / 10000, FMT_VERSION / 100 % 100, FMT_VERSION % 100));
  line("nlohmann-json", fmt::format("{}.{}.{}", NLOHMANN_JSON_VERSION_MAJOR,
                                    NLOHMANN_JSON_VERSION_MINOR, NLOHMANN_JSON_VERSION_PATCH));
  line("CLI11", CLI11_VERSION);
  line("compiler", __VERSION__);

  fmt::print("\ndevices\n");
  line("cpu", "usable");
  const auto gpu = device::find_gpu();
  if (gpu) {
    line("gpu", fmt::format("{}, {:.1f} GiB, {:.1f} of them free", device::name_of(*gpu),
                            gib(gpu->memory_bytes), gib(gpu->free_bytes)));
    line("CUDA",
         fmt::format("{}, driver for {}", cuda_version(gpu->runtime), cuda_version(gpu->driver)));
    line("cuda", "usable: training runs there unless train.device = \"cpu\"");
  } else {
    line("cuda", fmt::format("not usable: {}; training runs on the CPU", gpu.error().message()));
  }

  fmt::print("\nchecks\n");
  bool well = true;
  const auto problem = [&](const char* what, const std::string& text) {
    well = false;
    line(what, text);
  };
  if (std::thread::hardware_concurrency() < 2) {
    problem("slow", "one core: reading ahead and training share it");
  }
  if (memory < 2.0 * 1073741824.0) {
    problem("slow", "less than 2 GiB of memory: use small batch limits and data.shuffle_window");
  }
  if (dnnl->major != 2) {
    problem("untested",
            "oneDNN of another major version than 2 (Debian 12: apt-get install libdnnl2)");
  }
  std::error_code error;
  const auto space = std::filesystem::space(".", error);
  if (!error && space.available < 1073741824U) {
    problem("disk", "less than 1 GiB free here: checkpoints may not fit");
  }
  if (gpu && gpu->free_bytes < gpu->memory_bytes / 2) {
    problem("slow", "other programs hold more than half of the GPU's memory");
  }
  if (well) {
    line("all well",
         fmt::format("nothing is missing for training on this machine's {}", gpu ? "GPU" : "CPU"));
  }
  return 0;
}

}  // namespace

void add_doctor(CLI::App& app, Command& chosen) {
  auto* command = app.add_subcommand(
      "doctor", "The machine, libraries and versions, devices, what is missing and how to get it");
  command->callback([&chosen] { chosen = doctor; });
}

}  // namespace paceline::app
