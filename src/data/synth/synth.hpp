// The synthetic data set: `paceline data synth`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>

#include "core/error.hpp"
#include "data/synth/options.hpp"

namespace paceline::data::synth {

struct Counts {
  std::int64_t rows = 0, files = 0;
  std::int64_t history_events = 0, candidates = 0;
  std::int64_t bytes = 0;
};

// Called now and then with the rows written so far, from one thread at a time; false stops.
using OnProgress = std::function<bool(std::int64_t rows)>;

// Writes OUT/train, OUT/valid and OUT/test with files part-00000.parquet ... (or, in one folder,
// OUT/part-...), and OUT/synth.json, which names what they were made with. The same bytes for the
// same options whatever the threads. Row r is a function of the world's options and r alone; rows
// are in order of time over train, valid and test.
//
// Everything is written to a hidden folder within OUT and appears under its name when all is
// complete; after an error or a stop nothing is left. An OUT that holds anything is refused unless
// `overwrite`, which replaces what an earlier call made once the new data are complete. A hidden
// folder that a killed call left is removed.
// Errors: kInvalidArgument (options, OUT), kIo (disk), kOutOfMemory, kCancelled. Blocks; uses
// options.threads.
Result<Counts> synthesize(const std::filesystem::path& out, const Options& options,
                          const OnProgress& on_progress = {});

}  // namespace paceline::data::synth
