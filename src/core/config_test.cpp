#include "core/config.hpp"
#include "core/config_text.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace paceline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Config parse(std::string_view text) {
  auto config = Config::parse(text, "train.toml", "/data/run");
  EXPECT_TRUE(config.ok()) << config.error().text();
  return std::move(*config);
}

template <typename T>
std::string message(const Result<T>& result) {
  EXPECT_FALSE(result.ok());
  if (result.ok()) return "no error";
  EXPECT_EQ(result.error().code(), Code::kInvalidArgument);
  return result.error().text();
}

TEST(Config, ReadsEachType) {
  auto c = parse(R"(
    top = 1
    [train]
    epochs = 3
    rate = 1.5
    whole = 2
    on = true
    name = "a \"b\""
    device = "cpu"
    tags = ["x", "y"]
    one = "z"
    numbers = [1, 2.5]
  )");
  EXPECT_EQ(*c.get_int("top"), 1);
  EXPECT_EQ(*c.get_int("train.epochs", 1, {.min = 1}), 3);
  EXPECT_EQ(*c.get_number("train.rate"), 1.5);
  EXPECT_EQ(*c.get_number("train.whole"), 2.0) << "an integer is a number";
  EXPECT_TRUE(*c.get_bool("train.on"));
  EXPECT_EQ(*c.get_string("train.name"), "a \"b\"");
  EXPECT_EQ(*c.get_choice("train.device", {"cpu", "cuda"}), "cpu");
  EXPECT_THAT(*c.get_strings("train.tags"), ElementsAre("x", "y"));
  EXPECT_THAT(*c.get_strings("train.one"), ElementsAre("z"));
  EXPECT_THAT(*c.get_numbers("train.numbers"), ElementsAre(1.0, 2.5));
  EXPECT_TRUE(c.finish().ok());
}

TEST(Config, AbsentKeysTakeTheirDefault) {
  auto c = parse("");
  EXPECT_EQ(*c.get_int("a.b", 7), 7);
  EXPECT_EQ(*c.get_number("a.c", 0.5), 0.5);
  EXPECT_FALSE(*c.get_bool("a.d", false));
  EXPECT_EQ(*c.get_string("a.e", "x"), "x");
  EXPECT_EQ(*c.get_choice("a.f", {"p", "q"}, "q"), "q");
  EXPECT_THAT(*c.get_strings("a.g", std::vector<std::string>{"s"}), ElementsAre("s"));
  EXPECT_THAT(*c.get_numbers("a.h", std::vector<double>{1}), ElementsAre(1.0));
  EXPECT_FALSE(c.has("a.b"));
  EXPECT_TRUE(c.finish().ok());
}

TEST(Config, ErrorsNameFileLineKeyFoundAndAllowed) {
  auto c = parse(
      "[train]\nepochs = \"two\"\nsteps = 0\nrate = 2\non = 1\ndevice = \"tpu\"\n"
      "tags = [1]\nnumbers = [true]\nname = 3\nwhen = 1979-05-27\nsub = {}\nf = 1.0\n");
  EXPECT_EQ(message(c.get_int("train.epochs", 1, {.min = 1})),
            "train.toml:2: key train.epochs: found \"two\" (string), allowed: an integer >= 1");
  EXPECT_EQ(message(c.get_int("train.steps", 1, {.min = 1, .max = 9})),
            "train.toml:3: key train.steps: found 0 (integer), allowed: an integer from 1 to 9");
  EXPECT_EQ(message(c.get_number("train.rate", 1.0, {.max = 1.0})),
            "train.toml:4: key train.rate: found 2 (integer), allowed: a number <= 1");
  EXPECT_EQ(message(c.get_bool("train.on")),
            "train.toml:5: key train.on: found 1 (integer), allowed: true or false");
  EXPECT_EQ(message(c.get_choice("train.device", {"cpu", "cuda"})),
            "train.toml:6: key train.device: found \"tpu\" (string), allowed: one of [\"cpu\", "
            "\"cuda\"]");
  EXPECT_EQ(message(c.get_strings("train.tags")),
            "train.toml:7: key train.tags: found 1 (integer), allowed: a string or a list of "
            "strings");
  EXPECT_EQ(message(c.get_numbers("train.numbers")),
            "train.toml:8: key train.numbers: found true (boolean), allowed: a list of numbers");
  EXPECT_EQ(message(c.get_string("train.name")),
            "train.toml:9: key train.name: found 3 (integer), allowed: a string");
  EXPECT_THAT(message(c.get_int("train.when")), HasSubstr("found a date or time"));
  EXPECT_THAT(message(c.get_int("train.sub")), HasSubstr("found a table"));
  EXPECT_THAT(message(c.get_int("train.tags")), HasSubstr("found a list of 1"));
  EXPECT_THAT(message(c.get_int("train.f")), HasSubstr("found 1.0 (number)"))
      << "a number is no integer";
}

TEST(Config, ABooleanIsNoIntegerAndNoNumber) {
  auto c = parse("a = true\nb = nan");
  EXPECT_THAT(message(c.get_int("a")), HasSubstr("found true (boolean)"));
  EXPECT_THAT(message(c.get_number("a")), HasSubstr("found true (boolean)"));
  EXPECT_THAT(message(c.get_number("b")), HasSubstr("found nan"));
}

TEST(Config, MissingKeysAreNamed) {
  auto c = parse("[run]\nx = 1");
  EXPECT_EQ(message(c.get_string("run.dir")),
            "train.toml: key run.dir is missing; allowed: a string");
  EXPECT_EQ(message(c.get_int("run.n", {}, {.min = 1})),
            "train.toml: key run.n is missing; allowed: an integer >= 1");
}

TEST(Config, UnknownKeysAreAllNamedWithTheNearest) {
  auto c = parse("[model]\nwdith = 64\nlayers = 2\n\n[trian]\na = 1\nb = 2\n");
  EXPECT_EQ(*c.get_int("model.width", 128), 128);
  EXPECT_EQ(*c.get_int("model.layers", 1), 2);
  EXPECT_EQ(*c.get_int("train.epochs", 1), 1);
  const std::string text = message(c.finish());
  EXPECT_THAT(text, HasSubstr("train.toml:2: unknown key model.wdith; did you mean model.width?"));
  EXPECT_THAT(text, HasSubstr("unknown key trian; did you mean train?"));
  EXPECT_EQ(text.find("trian.a"), std::string::npos) << "a whole section is named once";
  EXPECT_EQ(text.find("layers"), std::string::npos);
}

TEST(Config, UnknownKeysFarFromAnyGetNoAdvice) {
  auto c = parse("zebra = 1");
  EXPECT_EQ(*c.get_int("model.width", 128), 128);
  EXPECT_EQ(message(c.finish()), "train.toml:1: unknown key zebra");
}

TEST(Config, UnknownKeysInTablesOfAnArray) {
  auto c = parse("[[features]]\nname = \"a\"\nrow = 1\n[[features]]\nname = \"b\"\nrows = 5\n");
  ASSERT_EQ(*c.table_count("features"), 2U);
  EXPECT_EQ(*c.get_string("features[0].name"), "a");
  EXPECT_EQ(*c.get_string("features[1].name"), "b");
  EXPECT_EQ(*c.get_int("features[0].rows", 9), 9);
  EXPECT_EQ(*c.get_int("features[1].rows", 9), 5);
  EXPECT_THAT(message(c.finish()), HasSubstr("train.toml:3: unknown key features[0].row; did you "
                                             "mean features[0].rows?"));
}

TEST(Config, TableCountRefusesWhatIsNoTable) {
  auto c = parse("a = 1\nb = [1, 2]\n");
  EXPECT_THAT(message(c.table_count("a")), HasSubstr("allowed: tables, each under [[a]]"));
  EXPECT_THAT(message(c.table_count("b")), HasSubstr("found a list of 2"));
  EXPECT_EQ(*c.table_count("c"), 0U);
}

TEST(Config, ParseErrorsHaveLineAndColumn) {
  const auto bad = Config::parse("[a]\nb = = 1\n", "bad.toml");
  EXPECT_THAT(message(bad), HasSubstr("bad.toml:2:5: not valid TOML: "));
  EXPECT_THAT(message(Config::parse("a = 1\na = 2\n", "twice.toml")), HasSubstr("twice.toml:2:"));
  EXPECT_THAT(message(Config::parse("[[\nb = 1\n", "torn.toml")), HasSubstr("torn.toml:1:3: "));
  EXPECT_THAT(message(Config::parse("\u00e9 = 1\n", "e.toml")), HasSubstr("e.toml:1:1: "));
  EXPECT_THAT(message(Config::parse("e = 1 \u00e9\n", "e.toml")), HasSubstr("e.toml:1:7: "));
}

TEST(Config, OverridesAreTomlOrElseStrings) {
  auto c = parse("[train]\nepochs = 1\n[[features]]\nrows = 1\n[[features]]\nrows = 2\n");
  for (const char* set :
       {"train.epochs=3", "train.rate=1e-3", "train.on=true", "train.dir=runs/a b", "new.key=\"q\"",
        "train.tags=[\"x\"]", "features[1].rows=7", "train.empty=", "train.eq=a=b",
        "train.line=1\nx = 2"}) {
    ASSERT_TRUE(c.override_with(set).ok()) << set;
  }
  EXPECT_EQ(*c.get_int("train.epochs"), 3);
  EXPECT_EQ(*c.get_number("train.rate"), 1e-3);
  EXPECT_TRUE(*c.get_bool("train.on"));
  EXPECT_EQ(*c.get_string("train.dir"), "runs/a b");
  EXPECT_EQ(*c.get_string("new.key"), "q");
  EXPECT_THAT(*c.get_strings("train.tags"), ElementsAre("x"));
  EXPECT_EQ(*c.get_int("features[0].rows"), 1);
  EXPECT_EQ(*c.get_int("features[1].rows"), 7);
  EXPECT_EQ(*c.get_string("train.empty"), "");
  EXPECT_EQ(*c.get_string("train.eq"), "a=b");
  EXPECT_EQ(*c.get_string("train.line"), "1\nx = 2");
}

TEST(Config, OverridesThatMakeNoSenseAreRefused) {
  auto c = parse("[train]\nepochs = 1\n[[features]]\nrows = 1\n");
  for (const char* set : {"train.epochs", "=3", "train..x=1", "train.=1", "[0].x=1", "a[b].x=1",
                          "a[0=1", "features[1].rows=2", "features[0]=3", "train.epochs.x=1"}) {
    EXPECT_THAT(message(c.override_with(set)), HasSubstr("--set ")) << set;
  }
}

TEST(Config, ErrorsOfOverridesSaySo) {
  auto c = parse("[train]\nepochs = 1\n");
  ASSERT_TRUE(c.override_with("train.epochs=two").ok());
  EXPECT_EQ(message(c.get_int("train.epochs")),
            "--set: key train.epochs: found \"two\" (string), allowed: an integer");
}

TEST(Config, AnOverrideOfAnUnknownKeyIsRefusedAtTheEnd) {
  auto c = parse("");
  ASSERT_TRUE(c.override_with("train.epoch=3").ok());
  EXPECT_EQ(*c.get_int("train.epochs", 1), 1);
  EXPECT_THAT(message(c.finish()),
              HasSubstr("unknown key train.epoch; did you mean train.epochs?"));
}

TEST(Config, PathsAreRelativeToTheFile) {
  auto c = parse(
      "[data]\ntrain = \"a/../b.parquet\"\nabs = \"/x/y\"\ns3 = \"s3://bucket/k\"\n"
      "many = [\"p\", \"q/*\"]\nnone = \"\"\n");
  EXPECT_EQ(*c.get_path("data.train"), "/data/run/b.parquet");
  EXPECT_EQ(*c.get_path("data.abs"), "/x/y");
  EXPECT_EQ(*c.get_path("data.s3"), "s3://bucket/k");
  EXPECT_EQ(*c.get_path("data.absent", "out"), "/data/run/out");
  EXPECT_THAT(*c.get_paths("data.many"), ElementsAre("/data/run/p", "/data/run/q/*"));
  EXPECT_THAT(message(c.get_path("data.none")), HasSubstr("found \"\""));
  EXPECT_THAT(c.resolved(), HasSubstr("train = \"/data/run/b.parquet\""))
      << "what is written out does not depend on where it is read";
}

TEST(Config, LoadsAFile) {
  const auto dir = std::filesystem::temp_directory_path() / "paceline_config_test";
  std::filesystem::create_directories(dir);
  const auto file = dir / "c.toml";
  std::ofstream(file) << "[run]\ndir = \"out\"\n";
  auto c = Config::load(file);
  ASSERT_TRUE(c.ok());
  EXPECT_EQ(*c->get_path("run.dir"), (dir / "out").string());
  EXPECT_EQ(c->name(), file.string());
  EXPECT_EQ(c->base_dir(), dir);
  EXPECT_THAT(message(Config::load(dir / "none.toml")), HasSubstr("none.toml"));
  EXPECT_THAT(message(Config::load(dir)), HasSubstr("is a directory"));
  std::filesystem::remove_all(dir);
}

// Asks for the same keys of the config that was written out and of the one it came from.
TEST(Config, ResolvedReadsBackToTheSameValues) {
  const double odd[] = {0.1, 1e-310, 3.0, -0.0, 1.7976931348623157e308, 2.0 / 3.0, 1e22};
  const std::string nasty = "tab\t quote\" back\\slash\nline \x01 \x7f \xc3\xa9";
  const auto ask = [&](Config& c) {
    EXPECT_EQ(*c.get_int("top", -5), -5);
    EXPECT_EQ(*c.get_int("a.big", INT64_MAX), INT64_MAX);
    for (std::size_t i = 0; i < std::size(odd); ++i) {
      const double read = *c.get_number("a.odd" + std::to_string(i), odd[i]);
      EXPECT_EQ(std::memcmp(&read, &odd[i], sizeof read), 0) << odd[i];
    }
    EXPECT_EQ(*c.get_string("a.b.nasty", nasty), nasty);
    EXPECT_TRUE(*c.get_bool("a.on", true));
    EXPECT_THAT(*c.get_numbers("n.list", std::vector<double>{1, 0.1}), ElementsAre(1.0, 0.1));
    EXPECT_TRUE(c.get_numbers("n.none", std::vector<double>{})->empty());
    EXPECT_THAT(*c.get_strings("n.strings", std::vector<std::string>{"x", nasty}),
                ElementsAre("x", nasty));
    EXPECT_EQ(*c.table_count("features"), 2U);
    EXPECT_EQ(*c.get_string("features[0].name"), "u");
    EXPECT_EQ(*c.get_int("features[0].rows", 10), 10);
    EXPECT_EQ(*c.get_string("features[1].name"), "v");
    EXPECT_EQ(*c.get_int("features[1].rows", 10), 3);
    EXPECT_TRUE(c.finish().ok()) << c.finish().error().text();
  };
  auto first = parse("[[features]]\nname = \"u\"\n[[features]]\nname = \"v\"\nrows = 3\n");
  ask(first);
  const std::string text = first.resolved();
  auto again = Config::parse(text, "resolved.toml");
  ASSERT_TRUE(again.ok()) << again.error().text() << "\n" << text;
  EXPECT_TRUE(again->has("a.odd1")) << "defaults are written out";
  ask(*again);
  EXPECT_EQ(again->resolved(), text);
  EXPECT_EQ(again->values(), first.values());
}

TEST(Config, ResolvedKeepsWhatIsBelowAnEntryOfAnArray) {
  const auto ask = [](Config& c) {
    EXPECT_EQ(*c.table_count("features"), 2U);
    for (const char* i : {"0", "1"}) {
      const std::string entry = std::string("features[") + i + "]";
      EXPECT_EQ(*c.get_string(entry + ".name"), i);
      EXPECT_EQ(*c.get_int(entry + ".sub.x", 7), *i == '0' ? 5 : 7);
      const std::size_t parts = *c.table_count(entry + ".parts");
      EXPECT_EQ(parts, *i == '1' ? 2U : 0U);
      for (std::size_t p = 0; p < parts; ++p) {
        EXPECT_EQ(*c.get_int(entry + ".parts[" + std::to_string(p) + "].y"),
                  static_cast<std::int64_t>(p));
      }
    }
    EXPECT_EQ(*c.table_count("data.from"), 1U);
    EXPECT_EQ(*c.get_bool("data.from[0].on", true), true);
    EXPECT_EQ(*c.get_int("data.n", 1), 1);
    EXPECT_TRUE(c.finish().ok()) << c.finish().error().text();
  };
  auto first = parse(
      "[[data.from]]\n[[features]]\nname = \"0\"\n[features.sub]\nx = 5\n"
      "[[features]]\nname = \"1\"\n[[features.parts]]\ny = 0\n[[features.parts]]\ny = 1\n");
  ask(first);
  auto again = Config::parse(first.resolved(), "resolved.toml");
  ASSERT_TRUE(again.ok()) << again.error().text() << "\n" << first.resolved();
  ask(*again);
  EXPECT_EQ(again->resolved(), first.resolved());
  EXPECT_EQ(config_text(first.values()), first.resolved()) << "from the values alone";
}

TEST(Config, ValuesAreInTheOrderAskedFor) {
  auto c = parse("b = 2");
  EXPECT_EQ(*c.get_int("b"), 2);
  EXPECT_EQ(*c.get_number("a", 1.0), 1.0);
  EXPECT_EQ(*c.get_int("b"), 2);
  EXPECT_THAT(c.values(), ElementsAre(std::pair<std::string, std::string>("b", "2"),
                                      std::pair<std::string, std::string>("a", "1.0")));
}

TEST(Config, InvalidNamesTheKey) {
  auto c = parse("[model]\nhead_dim = 63\n");
  EXPECT_EQ(c.invalid("model.head_dim", "63", "an even number").text(),
            "train.toml:2: key model.head_dim: found 63, allowed: an even number");
  EXPECT_TRUE(c.has("model"));
  EXPECT_FALSE(c.is_string("model.head_dim"));
}

TEST(Nearest, ByEditDistance) {
  const std::vector<std::string> known = {"model.width", "model.layers", "train.epochs"};
  EXPECT_EQ(nearest("model.wdith", known), "model.width");
  EXPECT_EQ(nearest("train.epoch", known), "train.epochs");
  EXPECT_EQ(nearest("completely.else", known), "");
  EXPECT_EQ(nearest("x", {}), "");
}

}  // namespace
}  // namespace paceline
