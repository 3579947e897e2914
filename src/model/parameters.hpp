// The dense parameters as named tensors in one flat fp32 array, so that optimizer, norm and
// checkpoint see one range. Tensors start at multiples of 64 elements; the gaps stay zero.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/buffer.hpp"
#include "features/schema.hpp"
#include "model/model_config.hpp"

namespace paceline::model {

struct ParameterSpec {
  std::string name;                 // "blocks.0.attention.qkv.weight"
  std::vector<std::int64_t> shape;  // row-major
  std::int64_t offset = 0;          // elements into the flat array
  std::int64_t count = 0;
  bool decay = false;     // weight decay applies: matrices
  double init_std = 0.0;  // 0: all ones (norm scales)
};

// Names, shapes and places, from config and schema alone. Decayed tensors come first, so that
// [0, decay_end) is one range with weight decay and [decay_end, size) one without.
class ParameterLayout {
 public:
  ParameterLayout(const ModelConfig& config, const features::Schema& schema);
  const std::vector<ParameterSpec>& specs() const { return specs_; }
  const ParameterSpec& find(std::string_view name) const;  // a missing name is a bug
  std::int64_t size() const { return size_; }
  std::int64_t decay_end() const { return decay_end_; }

 private:
  std::vector<ParameterSpec> specs_;
  std::int64_t size_ = 0;
  std::int64_t decay_end_ = 0;
};

// Fills with the initial values: normal(0, init_std) from (seed, tensor, element), or ones.
void initialize(const ParameterLayout& layout, std::uint64_t seed, std::span<float> flat);
// table [rows, width]: normal(0, 1 / sqrt(width)).
void initialize_table(std::uint64_t seed, int width, std::span<float> table);

}  // namespace paceline::model
