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

// The driver's version line, or empty where there is no NVIDIA driver.
std::string nvidia_driver() {
  std::ifstream in("/proc/driver/nvidia/version");
  std::string line;
  std::getline(in, line);
  return line;
}

// Names of the GPUs that the driver lists.
std::vector<std::string> nvidia_gpus() {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/driver/nvidia/gpus", error)) {
    names.push_back(first_value((entry.path() / "information").c_str(), "Model"));
  }
  return names;
}

void line(const std::string& what, const std::string& value) {
  fmt::print("  {:<18} {}\n", what, value);
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
  line("cuda code", PACELINE_CUDA_BUILT != 0
                        ? "compiled in"
                        : "not compiled in: `make build` does where nvcc is found");
  const std::string driver = nvidia_driver();
  if (driver.empty()) {
    line("cuda", "no NVIDIA driver on this machine: training runs on the CPU");
  } else {
    line("driver", driver);
    for (const auto& name : nvidia_gpus()) {
      line("gpu", name + " (not used: the ranker has no CUDA ops yet)");
    }
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
  if (well) line("all well", "nothing is missing for training on this machine's CPU");
  return 0;
}

}  // namespace

void add_doctor(CLI::App& app, Command& chosen) {
  auto* command = app.add_subcommand(
      "doctor", "The machine, libraries and versions, devices, what is missing and how to get it");
  command->callback([&chosen] { chosen = doctor; });
}

}  // namespace paceline::app
