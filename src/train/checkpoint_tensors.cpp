#include "train/checkpoint_tensors.hpp"

#include <iterator>
#include <set>
#include <utility>

#include "train/run_checkpoints.hpp"

namespace paceline::train {
namespace fs = std::filesystem;
namespace {

using checkpoint::Part;
using checkpoint::Tensor;

// The optimizer's state of the rows lies beside them.
bool is_weight(Part part, const checkpoint::TensorInfo& tensor) {
  return part == Part::kModel || (part == Part::kTables && tensor.name == "table.rows");
}

void move_to(std::vector<Tensor>& all, std::vector<Tensor>& some) {
  all.insert(all.end(), std::move_iterator(some.begin()), std::move_iterator(some.end()));
}

}  // namespace

Result<ReadTensors> read_tensors(const std::string& name, Take take) {
  ReadTensors read;
  std::error_code failed;
  if (name.ends_with(".safetensors") && !fs::is_directory(name, failed)) {
    read.path = name;
    PL_TRY(read.tensors, checkpoint::read_safetensors(name));
    return read;
  }
  PL_TRY(const auto path, find_checkpoint(name));
  PL_TRY(auto loaded,
         take == Take::kAll ? checkpoint::load(path) : checkpoint::load(path, is_weight));
  read.path = std::move(loaded.path);
  PL_TRY(read.run, state_from_json(loaded.state).context(read.path.string()));
  move_to(read.tensors, loaded.model);
  move_to(read.tensors, loaded.optimizer);
  move_to(read.tensors, loaded.tables);
  return read;
}

Result<Comparison> compare(const std::string& a, const std::string& b, Take take) {
  PL_TRY(auto first, read_tensors(a, take));
  PL_TRY(auto second, read_tensors(b, take));
  Comparison result;
  result.path_a = std::move(first.path);
  result.path_b = std::move(second.path);
  if (first.run) result.step_a = first.run->counters.step;
  if (second.run) result.step_b = second.run->counters.step;
  std::set<std::string> names;
  for (const auto& t : first.tensors) names.insert(t.name);
  for (const auto& t : second.tensors) names.insert(t.name);
  result.tensors = static_cast<std::int64_t>(names.size());
  result.differences = checkpoint::compare_tensors(first.tensors, second.tensors);
  if (first.run && second.run) result.keys = changed_keys(first.run->config, second.run->config);
  return result;
}

}  // namespace paceline::train
