// What every fuzz target is: one function of some bytes that must return, whatever they are.
// Links with libFuzzer (preset `fuzz`), or with replay_main.cpp, which runs the kept corpus.
#pragma once

#include <cstddef>
#include <cstdint>

// Returns 0. A crash, a sanitizer's report, a failed PL_CHECK or a hang is a finding.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
