// Reads impressions in shuffled, packed batches: the loader without the trainer.
#include <cstdio>

#include "core/config.hpp"
#include "data/batch_pipeline.hpp"

using namespace paceline;

Result<void> load(const char* config_file, const char* path) {
  PL_TRY(auto config, Config::load(config_file));
  PL_TRY(const auto schema, features::Schema::from_config(config));
  data::BatchPipelineOptions options;
  PL_TRY(options.limits, features::BatchLimits::from_config(config, schema));
  options.shuffle_window = 16;
  PL_TRY(const auto source, data::open_parquet({path}, schema));
  PL_TRY(const auto batches, data::BatchPipeline::create(*source, schema, options, {}));
  std::int64_t examples = 0;
  for (;;) {
    PL_TRY(auto fetched, batches->next_batch());
    if (fetched.state != data::FetchState::kBatch) break;
    examples += fetched.lease.batch().examples();  // ... or train on it
    fetched.lease.mark_trained();
  }
  std::printf("%lld examples\n", static_cast<long long>(examples));
  return {};
}

int main(int argc, char** argv) {
  if (argc != 3) return std::fprintf(stderr, "usage: loader CONFIG.toml DATA\n"), 2;
  const auto done = load(argv[1], argv[2]);
  if (!done) std::fprintf(stderr, "%s\n", done.error().text().c_str());
  return done ? 0 : exit_code(done.error());
}
