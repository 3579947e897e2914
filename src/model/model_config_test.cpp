#include "model/model_config.hpp"

#include <gtest/gtest.h>

#include <string>

namespace paceline::model {
namespace {

Result<ModelConfig> read(const std::string& toml) {
  auto config = Config::parse(toml, "model.toml");
  if (!config) return Error(std::move(config.error()));
  auto model = ModelConfig::from_config(*config);
  if (model) {
    auto finished = config->finish();
    if (!finished) return Error(std::move(finished.error()));
  }
  return model;
}

TEST(ModelConfig, HasDefaultsForEverything) {
  const auto m = read("");
  ASSERT_TRUE(m.ok());
  EXPECT_EQ(m->width, 128);
  EXPECT_EQ(m->layers, 2);
  EXPECT_EQ(m->query_width(), 128);
  EXPECT_EQ(m->key_width(), 64);
  EXPECT_EQ(m->cap_kind, ops::SoftCap::kNone);
}

TEST(ModelConfig, ReadsEveryKey) {
  const auto m = read(R"(
[model]
width = 96
layers = 3
query_heads = 6
key_heads = 2
head_dim = 16
ffn = 100
table_width = 12
rope_base = 5000.0
norm_eps = 1e-6
causal = true
cap_kind = "soft_sign"
cap = 80.0
)");
  ASSERT_TRUE(m.ok()) << m.error().text();
  EXPECT_EQ(m->width, 96);
  EXPECT_EQ(m->layers, 3);
  EXPECT_EQ(m->query_heads, 6);
  EXPECT_EQ(m->key_heads, 2);
  EXPECT_EQ(m->head_dim, 16);
  EXPECT_EQ(m->ffn, 100);
  EXPECT_EQ(m->table_width, 12);
  EXPECT_EQ(m->rope_base, 5000.0);
  EXPECT_EQ(m->norm_eps, 1e-6);
  EXPECT_TRUE(m->causal);
  EXPECT_EQ(m->cap_kind, ops::SoftCap::kSoftSign);
  EXPECT_EQ(m->cap, 80.0);
}

TEST(ModelConfig, RefusesImpossibleSizesNamingKeyAndAllowed) {
  struct Case {
    const char* toml;
    const char* key;
    const char* allowed;
  };
  for (const Case& c : {Case{"[model]\nwidth = 0", "model.width", "1"},
                        Case{"[model]\nlayers = 0", "model.layers", "1"},
                        Case{"[model]\nlayers = 100000", "model.layers", "1024"},
                        Case{"[model]\nffn = -1", "model.ffn", "1"},
                        Case{"[model]\ntable_width = 0", "model.table_width", "1"},
                        Case{"[model]\nquery_heads = 3\nkey_heads = 2", "model.query_heads",
                             "multiple of model.key_heads = 2"},
                        Case{"[model]\nhead_dim = 7", "model.head_dim", "multiple of 8"},
                        Case{"[model]\nhead_dim = 12", "model.head_dim", "multiple of 8"},
                        Case{"[model]\nwidth = \"wide\"", "model.width", "wide"},
                        Case{"[model]\ncap_kind = \"hard\"", "model.cap_kind", "soft_sign"},
                        Case{"[model]\ncap_kind = \"tanh\"", "model.cap", "above 0"},
                        Case{"[model]\ncap = 3.0", "model.cap", "model.cap_kind"},
                        Case{"[model]\nnorm_eps = 0.0", "model.norm_eps", ""}}) {
    const auto m = read(c.toml);
    ASSERT_FALSE(m.ok()) << c.toml;
    EXPECT_EQ(m.error().code(), Code::kInvalidArgument) << c.toml;
    const std::string text = m.error().text();
    EXPECT_NE(text.find(c.key), std::string::npos) << text;
    EXPECT_NE(text.find(c.allowed), std::string::npos) << text;
    EXPECT_NE(text.find("model.toml"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace paceline::model
