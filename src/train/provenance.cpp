#include "train/provenance.hpp"

#include <elf.h>
#include <fmt/format.h>
#include <link.h>
#include <oneapi/dnnl/dnnl.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <random>
#include <utility>

namespace paceline::train {
namespace {

std::string cpu_model() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with("model name")) continue;
    const auto at = line.find_first_not_of(" \t", line.find(':') + 1);
    return at == std::string::npos ? "" : line.substr(at);
  }
  return "unknown";
}

// The note that the linker writes: the same for the same program text, data and options.
int find_build_id(dl_phdr_info* info, std::size_t, void* out) {
  constexpr std::size_t kAlign = 4;
  const auto aligned = [](std::size_t n) { return (n + kAlign - 1) / kAlign * kAlign; };
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& header = info->dlpi_phdr[i];
    if (header.p_type != PT_NOTE) continue;
    const auto* at = reinterpret_cast<const char*>(info->dlpi_addr + header.p_vaddr);
    const char* const end = at + header.p_memsz;
    while (at + sizeof(ElfW(Nhdr)) <= end) {
      ElfW(Nhdr) note;
      std::memcpy(&note, at, sizeof note);
      const char* name = at + sizeof note;
      const char* data = name + aligned(note.n_namesz);
      if (data + note.n_descsz > end) break;
      if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 &&
          std::memcmp(name, "GNU", 4) == 0) {
        auto& id = *static_cast<std::string*>(out);
        for (std::size_t b = 0; b < note.n_descsz; ++b) {
          id += fmt::format("{:02x}", static_cast<unsigned char>(data[b]));
        }
        break;
      }
      at = data + aligned(note.n_descsz);
    }
  }
  return 1;  // the program comes first, libraries after it
}

// What oneDNN may use here.
std::string isa_name() {
  constexpr std::array<std::pair<dnnl_cpu_isa_t, const char*>, 10> kNames{{
      {dnnl_cpu_isa_all, "any"},
      {dnnl_cpu_isa_sse41, "sse41"},
      {dnnl_cpu_isa_avx, "avx"},
      {dnnl_cpu_isa_avx2, "avx2"},
      {dnnl_cpu_isa_avx2_vnni, "avx2_vnni"},
      {dnnl_cpu_isa_avx512_mic, "avx512_mic"},
      {dnnl_cpu_isa_avx512_core, "avx512_core"},
      {dnnl_cpu_isa_avx512_core_vnni, "avx512_core_vnni"},
      {dnnl_cpu_isa_avx512_core_bf16, "avx512_core_bf16"},
      {dnnl_cpu_isa_avx512_core_amx, "avx512_core_amx"},
  }};
  const auto isa = dnnl_get_effective_cpu_isa();
  for (const auto& [value, name] : kNames) {
    if (value == isa) return name;
  }
  return fmt::format("{:#x}", static_cast<unsigned>(isa));
}

// Keys that say when a run ends or what is kept, not what it computes.
bool decides_results(const KeyChange& change) {
  return !change.key.starts_with("checkpoint.") && change.key != "train.max_steps" &&
         change.key != "train.max_bad_steps";
}

}  // namespace

void Provenance::add_ancestor(Ancestor ancestor) {
  lineage.push_back(std::move(ancestor));
  if (lineage.size() <= kMaxAncestors) return;
  auto oldest = std::find_if(lineage.begin(), lineage.end(),
                             [](const Ancestor& a) { return a.why == "resume"; });
  if (oldest == lineage.end()) oldest = lineage.begin();
  lineage.erase(oldest);
}

BuildInfo this_build(std::string version, std::string commit) {
  BuildInfo build;
  build.version = std::move(version);
  build.commit = std::move(commit);
#ifdef __clang__
  build.compiler = std::string("clang ") + __clang_version__;
#else
  build.compiler = std::string("gcc ") + __VERSION__;
#endif
  ::dl_iterate_phdr(find_build_id, &build.build_id);
  return build;
}

MachineInfo this_machine(std::string device) {
  const dnnl_version_t* dnnl = dnnl_version();
  return {.cpu = cpu_model(),
          .onednn = fmt::format("{}.{}.{}", dnnl->major, dnnl->minor, dnnl->patch),
          .isa = isa_name(),
          .device = std::move(device)};
}

std::string draw_run_id() {
  std::random_device random;
  std::string id;
  for (int i = 0; i < 4; ++i) id += fmt::format("{:08x}", static_cast<std::uint32_t>(random()));
  return id;
}

nlohmann::json to_json(const Provenance& p) {
  auto lineage = nlohmann::json::array();
  for (const auto& a : p.lineage) {
    lineage.push_back({{"run", a.run}, {"path", a.path}, {"step", a.step}, {"why", a.why}});
  }
  return {{"run_id", p.run_id},
          {"starts", p.starts},
          {"lineage", std::move(lineage)},
          {"build",
           {{"version", p.build.version},
            {"commit", p.build.commit},
            {"compiler", p.build.compiler},
            {"build_id", p.build.build_id}}},
          {"machine",
           {{"cpu", p.machine.cpu},
            {"onednn", p.machine.onednn},
            {"isa", p.machine.isa},
            {"device", p.machine.device}}}};
}

Provenance provenance_from_json(const nlohmann::json& state) {
  Provenance p;
  state.at("run_id").get_to(p.run_id);
  p.starts = state.at("starts").get<std::int64_t>();
  for (const auto& a : state.at("lineage")) {
    if (p.lineage.size() == Provenance::kMaxAncestors) break;
    p.lineage.push_back({a.at("run").get<std::string>(), a.at("path").get<std::string>(),
                         a.at("step").get<std::int64_t>(), a.at("why").get<std::string>()});
  }
  const auto& build = state.at("build");
  build.at("version").get_to(p.build.version);
  build.at("commit").get_to(p.build.commit);
  build.at("compiler").get_to(p.build.compiler);
  build.at("build_id").get_to(p.build.build_id);
  const auto& machine = state.at("machine");
  machine.at("cpu").get_to(p.machine.cpu);
  machine.at("onednn").get_to(p.machine.onednn);
  machine.at("isa").get_to(p.machine.isa);
  machine.at("device").get_to(p.machine.device);
  return p;
}

std::vector<std::string> reasons_to_differ(const std::vector<KeyChange>& changes,
                                           const Provenance& saved, const Provenance& now) {
  std::vector<std::string> reasons;
  std::string keys;
  for (const auto& change : changes) {
    if (decides_results(change)) keys += (keys.empty() ? "" : ", ") + change.key;
  }
  if (!keys.empty()) reasons.push_back("keys changed (" + keys + ")");
  if (saved.run_id.empty()) {
    reasons.emplace_back("the checkpoint does not say which build and machine wrote it");
    return reasons;
  }
  if (!(saved.build == now.build)) {
    reasons.push_back(fmt::format("other build ({} {}, now {} {})", saved.build.version,
                                  saved.build.compiler, now.build.version, now.build.compiler));
  }
  const auto& was = saved.machine;
  const auto& is = now.machine;
  if (was.cpu != is.cpu) {
    reasons.push_back(fmt::format("other processor ({}, now {})", was.cpu, is.cpu));
  }
  if (was.onednn != is.onednn || was.isa != is.isa) {
    reasons.push_back(fmt::format("other oneDNN ({} for {}, now {} for {})", was.onednn, was.isa,
                                  is.onednn, is.isa));
  }
  if (was.device != is.device) {
    reasons.push_back(fmt::format("other device ({}, now {})", was.device, is.device));
  }
  return reasons;
}

}  // namespace paceline::train
