#include "train/ranking.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "data/score_writer.hpp"
#include "data/source.hpp"
#include "model/ranker.hpp"

namespace paceline::train {
namespace {

constexpr std::int32_t kTokensPerBatch = 8192;
constexpr std::int32_t kExamplesPerBatch = 256;

// One column of the output: an action's probability or a target's prediction.
struct Output {
  std::string name;
  int index = 0;        // of the model's outputs
  double weight = 0.0;  // in `score`
};

Result<std::vector<Output>> outputs_of(const features::Schema& schema, const RankOptions& options) {
  std::vector<Output> outputs;
  for (std::size_t a = 0; a < schema.actions().size(); ++a) {
    const auto& action = schema.actions()[a];
    if (!action.train) continue;
    outputs.push_back({"score_" + action.name, static_cast<int>(a),
                       options.weights.empty() ? action.score : 0.0});
  }
  for (const auto& wanted : options.weights) {
    const std::string& name = wanted.first;
    const auto it = std::find_if(outputs.begin(), outputs.end(),
                                 [&](const Output& o) { return o.name == "score_" + name; });
    if (it == outputs.end()) {
      std::string known;
      for (const auto& o : outputs) known += (known.empty() ? "" : ", ") + o.name.substr(6);
      return Error(Code::kInvalidArgument,
                   fmt::format("weight of action \"{}\": the trained actions are {}", name, known));
    }
    it->weight = wanted.second;
  }
  for (std::size_t t = 0; t < schema.targets().size(); ++t) {
    outputs.push_back({"predicted_" + schema.targets()[t].name,
                       static_cast<int>(schema.actions().size() + t), 0.0});
  }
  return outputs;
}

Error stopped() { return Error(Code::kCancelled, "ranking was stopped; nothing was written"); }

// Writing the scores over what they are made from would lose the input.
Result<void> keep_input(const std::vector<std::string>& input,
                        const std::filesystem::path& output) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const fs::path folder =
      fs::weakly_canonical(fs::absolute(output, ignored).parent_path(), ignored);
  for (const auto& path : input) {
    const bool glob = path.find_first_of("*?[") != std::string::npos;
    const fs::path read = fs::weakly_canonical(
        fs::absolute(glob ? fs::path(path).parent_path() : fs::path(path), ignored), ignored);
    const bool below =
        std::mismatch(read.begin(), read.end(), folder.begin(), folder.end()).first == read.end();
    if (fs::equivalent(path, output, ignored) ||
        (below && (glob || fs::is_directory(read, ignored)))) {
      return Error(Code::kInvalidArgument,
                   fmt::format("{} is or lies within the input {}; allowed: an output elsewhere",
                               output.string(), path));
    }
  }
  if (!fs::is_directory(folder, ignored)) {
    return Error(Code::kNotFound, fmt::format("cannot write {}: the folder {} does not exist",
                                              output.string(), folder.string()));
  }
  if (fs::exists(output, ignored) && !fs::is_regular_file(output, ignored)) {
    return Error(
        Code::kInvalidArgument,
        fmt::format("{} is not a regular file; allowed: a file to write", output.string()));
  }
  return {};
}

// A scorer and batch large enough for the examples seen so far.
class BlockScorer {
 public:
  BlockScorer(const LoadedRun& run, const features::Schema& schema) : run_(run), schema_(schema) {}

  // Scores every candidate of the block into `scores`, one vector per output.
  Result<void> score(const features::RowBlock& block, const std::vector<Output>& outputs,
                     const StopRequest& stop, std::vector<std::vector<float>>& scores,
                     RankCounts& counts) {
    PL_TRY_VOID(grow(block));
    for (auto& column : scores) column.clear();
    for (std::int64_t row = 0; row < block.rows;) {
      if (stop.requested()) return stopped();
      cutter_->begin(*batch_);
      const std::int64_t first = row;
      while (row < block.rows && cutter_->append(block, row)) ++row;
      PL_CHECK(row > first, "a batch that takes any single example");
      counts.cuts += batch_->cuts();
      PL_TRY_VOID(score_batch(outputs, scores));
    }
    return {};
  }

 private:
  Result<void> grow(const features::RowBlock& block) {
    std::int64_t most = 1;
    for (std::int64_t r = 0; r < block.rows; ++r) {
      const auto i = static_cast<std::size_t>(r);
      most = std::max(most, block.candidate_offsets[i + 1] - block.candidate_offsets[i]);
    }
    if (scorer_ && most <= limits_.candidates) return {};
    limits_.candidates =
        static_cast<std::int32_t>(std::max<std::int64_t>(most, run_.config.limits.candidates));
    limits_.history_len = run_.config.limits.history_len;
    limits_.examples = kExamplesPerBatch;
    limits_.tokens = std::max(kTokensPerBatch,
                              schema_.prefix_tokens() + limits_.history_len + limits_.candidates);
    cutter_.reset();
    batch_.reset();
    scorer_.reset();
    layout_ = std::make_unique<features::BatchLayout>(schema_, limits_);
    PL_TRY(scorer_, run_.scorer(schema_, limits_));
    batch_ = std::make_unique<features::Batch>(*layout_);
    cutter_ = std::make_unique<features::BatchCutter>(schema_, *layout_);
    return {};
  }

  Result<void> score_batch(const std::vector<Output>& outputs,
                           std::vector<std::vector<float>>& scores) {
    const auto logits = scorer_->score(*batch_);
    const auto width = static_cast<std::size_t>(scorer_->outputs());
    for (std::size_t c = 0; c < static_cast<std::size_t>(batch_->candidate_tokens()); ++c) {
      double sum = 0.0;
      for (std::size_t o = 0; o < outputs.size(); ++o) {
        const float value =
            model::activate(schema_, outputs[o].index,
                            logits[c * width + static_cast<std::size_t>(outputs[o].index)]);
        if (!std::isfinite(value)) {
          return Error(
              Code::kCorruptData,
              fmt::format("the model gives a score that is not finite ({})", outputs[o].name));
        }
        sum += outputs[o].weight * static_cast<double>(value);
        scores[o].push_back(value);
      }
      if (scores.size() > outputs.size()) scores.back().push_back(static_cast<float>(sum));
    }
    return {};
  }

  const LoadedRun& run_;
  const features::Schema& schema_;
  features::BatchLimits limits_;
  std::unique_ptr<features::BatchLayout> layout_;
  std::unique_ptr<Scorer> scorer_;
  std::unique_ptr<features::Batch> batch_;
  std::unique_ptr<features::BatchCutter> cutter_;
};

}  // namespace

Result<RankCounts> rank_file(const LoadedRun& run, const std::vector<std::string>& input,
                             const std::filesystem::path& output, const RankOptions& options,
                             const StopRequest& stop) {
  PL_TRY_VOID(keep_input(input, output));
  const features::Schema schema = run.config.schema.without_labels();
  PL_TRY(const auto outputs, outputs_of(schema, options));
  PL_TRY(const auto source, data::open_parquet(input, schema));

  std::vector<std::string> names;
  for (const auto& o : outputs) names.push_back(o.name);
  const bool weighted =
      !options.weights.empty() ||
      std::any_of(outputs.begin(), outputs.end(), [](const Output& o) { return o.weight != 0.0; });
  if (weighted) names.emplace_back("score");
  PL_TRY(auto writer, data::ScoreWriter::create(output, schema, names));

  RankCounts counts;
  counts.weighted = weighted;
  BlockScorer scorer(run, schema);
  features::RowBlock block;
  std::vector<std::vector<float>> scores(names.size());
  for (std::size_t b = 0; b < source->blocks().size(); ++b) {
    if (stop.requested()) return stopped();
    PL_TRY_VOID(source->read(static_cast<std::int64_t>(b), block));
    PL_TRY_VOID(scorer.score(block, outputs, stop, scores, counts));
    PL_TRY_VOID(writer->append(block, scores));
    counts.rows += block.rows;
    counts.candidates += block.rows > 0 ? block.candidate_offsets.back() : 0;
  }
  PL_TRY_VOID(writer->finish());
  PL_CHECK(counts.rows == source->rows(), "as many rows scored as read");
  return counts;
}

}  // namespace paceline::train
