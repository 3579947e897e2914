#include "model/parameters.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "core/rng.hpp"

namespace paceline::model {
namespace {

constexpr std::int64_t kTensorAlign = 64;  // elements
constexpr std::string_view kTableName = "table";

// FNV-1a, so that a tensor's initial values depend on its own name and on no other tensor.
constexpr std::uint64_t name_key(std::string_view name) {
  std::uint64_t key = 0xCBF29CE484222325U;
  for (const char c : name) key = (key ^ static_cast<std::uint8_t>(c)) * 0x100000001B3U;
  return key;
}

ParameterSpec matrix(std::string name, std::int64_t rows, std::vector<InitColumns> init) {
  std::int64_t columns = 0;
  for (const auto& i : init) columns += i.columns;
  ParameterSpec spec;
  spec.name = std::move(name);
  spec.shape = {rows, columns};
  spec.count = rows * columns;
  spec.decay = true;
  spec.init = std::move(init);
  return spec;
}

ParameterSpec scale(std::string name, std::int64_t count) {
  ParameterSpec spec;
  spec.name = std::move(name);
  spec.shape = {count};
  spec.count = count;
  return spec;
}

std::vector<InitColumns> token_columns(const ModelConfig& config, const features::TokenKind& kind) {
  const double width = config.width;
  std::vector<InitColumns> init;
  for (const auto& f : kind.features) {
    const double std = f.kind == features::Kind::kId
                           ? 1.0 / std::sqrt(static_cast<double>(config.table_width) * width)
                           : 1.0 / width;
    init.push_back({f.token_width(config.table_width), std});
  }
  return init;
}

void add_block(std::vector<ParameterSpec>& specs, const ModelConfig& c, int layer) {
  const auto fan_in = [](int inputs) {
    return std::vector<InitColumns>{{inputs, 1.0 / std::sqrt(static_cast<double>(inputs))}};
  };
  const std::string block = fmt::format("blocks.{}.", layer);
  const int q = c.query_width();
  const int k = c.key_width();
  specs.push_back(scale(block + "attention.norm.scale", c.width));
  specs.push_back(matrix(block + "attention.qkv.weight", q + 2 * k, fan_in(c.width)));
  specs.push_back(scale(block + "attention.q_norm.scale", q));
  specs.push_back(scale(block + "attention.k_norm.scale", k));
  specs.push_back(matrix(block + "attention.out.weight", c.width, fan_in(q)));
  specs.push_back(scale(block + "mlp.norm.scale", c.width));
  specs.push_back(matrix(block + "mlp.up.weight", c.ffn, fan_in(c.width)));
  specs.push_back(matrix(block + "mlp.down.weight", c.width, fan_in(c.ffn)));
}

}  // namespace

ParameterLayout::ParameterLayout(const ModelConfig& config, const features::Schema& schema) {
  for (const auto& kind : schema.kinds()) {
    if (kind.token_width(config.table_width) == 0) continue;
    specs_.push_back(matrix(fmt::format("tokens.{}.weight", kind.name), config.width,
                            token_columns(config, kind)));
  }
  for (int layer = 0; layer < config.layers; ++layer) add_block(specs_, config, layer);
  specs_.push_back(scale("final_norm.scale", config.width));
  const auto outputs = static_cast<std::int64_t>(schema.actions().size() + schema.targets().size());
  specs_.push_back(matrix("head.weight", outputs, {{config.width, 1.0 / config.width}}));

  std::stable_partition(specs_.begin(), specs_.end(), [](const auto& s) { return s.decay; });
  for (auto& spec : specs_) {
    spec.offset = size_;
    size_ += (spec.count + kTensorAlign - 1) / kTensorAlign * kTensorAlign;
    if (spec.decay) decay_end_ = size_;
  }
}

const ParameterSpec& ParameterLayout::find(std::string_view name) const {
  const auto it =
      std::find_if(specs_.begin(), specs_.end(), [&](const auto& s) { return s.name == name; });
  PL_CHECK(it != specs_.end(), fmt::format("a parameter named {}", name));
  return *it;
}

void initialize(const ParameterLayout& layout, std::uint64_t seed, std::span<float> flat) {
  PL_CHECK(static_cast<std::int64_t>(flat.size()) == layout.size(), "one value per parameter");
  std::fill(flat.begin(), flat.end(), 0.0F);
  const CounterRng rng(seed, RngStream::kInit);
  for (const auto& spec : layout.specs()) {
    const auto values =
        flat.subspan(static_cast<std::size_t>(spec.offset), static_cast<std::size_t>(spec.count));
    if (spec.init.empty()) {
      std::fill(values.begin(), values.end(), 1.0F);
      continue;
    }
    const std::uint64_t key = name_key(spec.name);
    std::size_t element = 0;
    while (element < values.size()) {
      for (const auto& columns : spec.init) {
        for (std::int64_t c = 0; c < columns.columns; ++c, ++element) {
          values[element] = static_cast<float>(columns.std * rng.normal(key, element));
        }
      }
    }
  }
}

void initialize_table(std::uint64_t seed, int width, std::span<float> table) {
  const CounterRng rng(seed, RngStream::kInit);
  const double std = 1.0 / std::sqrt(static_cast<double>(width));
  const std::uint64_t key = name_key(kTableName);
  for (std::size_t i = 0; i < table.size(); ++i) {
    table[i] = static_cast<float>(std * rng.normal(key, i));
  }
}

}  // namespace paceline::model
