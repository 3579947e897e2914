#include <fmt/format.h>

#include <cstdio>

#include "data/movielens.hpp"
#include "data_commands.hpp"

namespace paceline::app {

void add_data_import(CLI::App& data, Command& chosen) {
  auto* import = data.add_subcommand("import", "Turn a public data set into impressions");
  import->require_subcommand(1);
  auto* movielens = import->add_subcommand(
      "movielens", "MovieLens-100K: writes train, valid and test.parquet to OUT");

  struct Arguments {
    std::string inter, out;
    data::MovieLensOptions options;
  };
  auto args = std::make_shared<Arguments>();
  movielens->add_option("INTER", args->inter, "ml-100k.inter, tab separated with one header line")
      ->required();
  movielens->add_option("OUT", args->out, "folder for the Parquet files")->required();
  movielens->add_option("--history", args->options.history, "events kept before a row")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 20));
  movielens->add_option("--candidates", args->options.candidates, "candidates of a row")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 20));
  movielens
      ->add_option("--min-history", args->options.min_history,
                   "rows with fewer events are left out")
      ->capture_default_str()
      ->check(CLI::Range(0, 1 << 20));
  movielens->callback([args, &chosen] {
    chosen = [args]() -> Result<int> {
      PL_TRY(const auto counts, data::import_movielens(args->inter, args->out, args->options));
      const auto show = [](const char* name, const data::MovieLensCounts::Split& split) {
        fmt::print("{:<6} {:>6} rows {:>7} candidates\n", name, split.rows, split.candidates);
      };
      fmt::print("{} events\n", counts.events);
      show("train", counts.train);
      show("valid", counts.valid);
      show("test", counts.test);
      return 0;
    };
  });
}

}  // namespace paceline::app
