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

// Initial standard deviation of a run of columns of a matrix.
struct InitColumns {
  std::int64_t columns = 0;
  double std = 0.0;
};

struct ParameterSpec {
  std::string name;                 // "blocks.0.attention.qkv.weight"
  std::vector<std::int64_t> shape;  // row-major
  std::int64_t offset = 0;          // elements into the flat array
  std::int64_t count = 0;
  bool decay = false;             // weight decay applies: matrices
  std::vector<InitColumns> init;  // covers the last dimension; empty: all ones (norm scales)
};

// Names, shapes and places, from config and schema alone. Decayed tensors come first, so that
// [0, decay_end) is one range with weight decay and [decay_end, size) one without.
//
//   tokens.<kind>.weight [width, columns of the kind's features]; none for a kind without features
//   blocks.<l>.attention.norm.scale [width], .qkv.weight [(query_heads + 2 key_heads) head_dim,
//     width] (rows: queries, keys, values), .q_norm.scale, .k_norm.scale, .out.weight
//   blocks.<l>.mlp.norm.scale, .up.weight [ffn, width], .down.weight [width, ffn]
//   final_norm.scale [width], head.weight [actions + targets, width]
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

// Fills with the initial values, a function of (seed, tensor name, element) alone: normal with the
// column's std, or ones. Gaps become zero.
//
// std: blocks 1 / sqrt(inputs); head 1 / width; token columns that project a table row
// 1 / sqrt(table_width width), all other token columns 1 / width.
void initialize(const ParameterLayout& layout, std::uint64_t seed, std::span<float> flat);
// table [rows, width]: normal(0, 1 / sqrt(width)).
void initialize_table(std::uint64_t seed, int width, std::span<float> table);

}  // namespace paceline::model
