// What a user gets wrong: refused before any work, with a message that says where, what and what is
// allowed, and with nothing written over.

#include <arrow/api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "e2e/support.hpp"

namespace paceline::e2e {
namespace {

namespace dt = data::testing;
using testing::AllOf;
using testing::HasSubstr;

constexpr dt::ImpressionOptions kTiny{.rows = 24, .files = 1, .row_group_rows = 8};

void expect_refused(const Output& o, int exit_code, const std::vector<std::string>& says) {
  EXPECT_EQ(o.exit_code, exit_code) << o.out << o.err;
  for (const auto& text : says) EXPECT_THAT(o.err, HasSubstr(text));
  EXPECT_THAT(o.err, testing::Not(HasSubstr("broken assumption")));
}

struct BadConfig {
  std::string set;
  std::vector<std::string> says;
};

TEST(BadConfig, KeysAndSizesThatCannotWorkAreRefused) {
  const Workspace w(kTiny);
  const std::vector<BadConfig> all{
      {"model.wdith=64", {"model.wdith", "did you mean model.width"}},
      {"trian.epochs=2", {"trian", "did you mean train"}},
      {"train.epochs=two", {"--set", "train.epochs", "\"two\"", "integer"}},
      {"train.epochs=1.5", {"train.epochs", "1.5"}},
      {"train.epochs=0", {"train.epochs", "0", ">= 1"}},
      {"train.overlap=1", {"train.overlap", "true or false"}},
      {"train.device=tpu", {"train.device", "tpu", "cpu"}},
      {"train.device=cuda", {"train.device", "cuda"}},
      {"model.key_heads=3", {"model.", "heads", "3"}},
      {"model.key_heads=4", {"model."}},
      {"model.head_dim=7", {"model.head_dim", "7"}},
      {"model.width=0", {"model.width", "0"}},
      {"batch.examples=0", {"batch.examples", "0"}},
      {"batch.tokens=1", {"batch.tokens", "1", "shortest example"}},
      {"batch.history_len=-1", {"batch.history_len", "-1"}},
      {"data.depth=0", {"data.depth"}},
      {"data.readers=0", {"data.readers"}},
      {"optimizer.lr=-1", {"optimizer.lr", "-1"}},
      {"optimizer.lr=nan", {"optimizer.lr"}},
      {"optimizer.lr=inf", {"optimizer.lr"}},
      {"schedule.kind=cosin", {"schedule.kind", "cosine"}},
      {"schedule.warmup=2", {"schedule.warmup", "2"}},
      {"checkpoint.keep_last=0", {"checkpoint.keep_last"}},
      {"features[0].rows=0", {"features[0].rows"}},
      {"features[0].kind=ids", {"features[0].kind", "\"ids\""}},
      {"features[0].collumn=user_id", {"features[0].collumn", "did you mean"}},
      {"actions[1].bit=64", {"actions[1].bit", "64"}},
      {"data.train=[]", {"data.train"}},
      {"eval=5", {"key eval", "5 (integer)", "a table"}},
      {"nonsense", {"--set nonsense", "section.key=value"}},
  };
  for (const auto& bad : all) {
    SCOPED_TRACE(bad.set);
    expect_refused(run(w.train("run", {bad.set})), 2, bad.says);
    EXPECT_FALSE(std::filesystem::exists(w.run_dir("run") + "/metrics.jsonl"));
    EXPECT_TRUE(checkpoints(w.run_dir("run")).empty());
  }
}

TEST(BadConfig, FilesThatAreNotConfigs) {
  const Workspace w(kTiny);
  write_text(w.file("broken.toml"), "[train\nepochs = 1\n");
  expect_refused(run({"train", w.file("broken.toml")}), 2, {"broken.toml:1", "TOML"});
  expect_refused(run({"train", w.file("absent.toml")}), 2, {"absent.toml"});
  expect_refused(run({"train", w.file("train")}), 2, {"not a run"});
  write_text(w.file("quoted.toml"), "\"optimizer.lr\" = 5.0\n" + small_config());
  expect_refused(run({"train", w.file("quoted.toml")}), 2, {"unknown key \"optimizer.lr\""});
  expect_refused(run(w.train("run", {"actions[1].train=false", "actions[2].weight=0.0"})), 2,
                 {"none that trains"});
  write_text(w.file("typed.toml"), small_config() + "[trian]\nepochs = \"two\"\n");
  expect_refused(run({"train", w.file("typed.toml")}), 2,
                 {"typed.toml:", "trian", "did you mean train"});
}

TEST(Usage, CommandsAndOptions) {
  EXPECT_EQ(run({}).exit_code, 2);
  expect_refused(run({"trian"}), 2, {"unknown command trian; did you mean train?"});
  EXPECT_EQ(run({"train"}).exit_code, 2);
  EXPECT_EQ(run({"train", "a", "--depth", "3"}).exit_code, 2);
  for (const std::vector<std::string>& command : {std::vector<std::string>{},
                                                  {"train"},
                                                  {"eval"},
                                                  {"rank"},
                                                  {"checkpoint"},
                                                  {"checkpoint", "list"},
                                                  {"checkpoint", "show"},
                                                  {"checkpoint", "diff"},
                                                  {"checkpoint", "prune"},
                                                  {"checkpoint", "export"},
                                                  {"checkpoint", "verify"},
                                                  {"data"},
                                                  {"data", "import"},
                                                  {"data", "import", "movielens"},
                                                  {"doctor"}}) {
    auto with_help = command;
    with_help.emplace_back("--help");
    const Output o = run(with_help);
    EXPECT_EQ(o.exit_code, 0) << o.err;
    EXPECT_THAT(o.out, HasSubstr("--help"));
  }
  EXPECT_EQ(run({"doctor"}).exit_code, 0);
  EXPECT_EQ(run({"--version"}).exit_code, 0);
}

// One way to spoil the table of a good data set.
using Spoil = std::function<std::shared_ptr<arrow::Table>(std::shared_ptr<arrow::Table>)>;

std::shared_ptr<arrow::Table> replace(const std::shared_ptr<arrow::Table>& table,
                                      const std::string& name,
                                      const std::shared_ptr<arrow::Array>& array) {
  const int i = table->schema()->GetFieldIndex(name);
  auto result = table->SetColumn(i, arrow::field(name, array->type()),
                                 std::make_shared<arrow::ChunkedArray>(array));
  dt::check(result.status());
  return *result;
}

struct BadData {
  std::string name;
  Spoil spoil;
  int exit_code;
  std::vector<std::string> says;
};

TEST(BadData, ColumnsAndValuesThatCannotBeRead) {
  const auto good = dt::impression_table(kTiny, 0, kTiny.rows);
  const auto n = static_cast<std::size_t>(kTiny.rows);
  const std::vector<std::int64_t> one_each(n, 1);
  const std::vector<BadData> all{
      {"missing column",
       [](auto t) {
         auto r = t->RemoveColumn(t->schema()->GetFieldIndex("history_item_id"));
         dt::check(r.status());
         return *r;
       },
       2,
       {"part-0000.parquet", "history_item_id"}},
      {"other type",
       [&](auto t) {
         arrow::StringBuilder names;
         for (std::size_t i = 0; i < n; ++i) dt::check(names.Append("x"));
         std::shared_ptr<arrow::Array> array;
         dt::check(names.Finish(&array));
         return replace(t, "user_id", array);
       },
       2,
       {"part-0000.parquet", "user_id"}},
      {"unequal history columns",
       [&](auto t) {
         return replace(t, "history_time", dt::lists_of<arrow::Int64Builder>(one_each, one_each));
       },
       1,
       {"part-0000.parquet", "row group 0", "row", "history_"}},
      {"no candidates",
       [&](auto t) {
         const std::vector<std::int64_t> none(n, 0), empty;
         auto u = replace(t, "candidate_item_id", dt::lists_of<arrow::Int64Builder>(none, empty));
         u = replace(u, "candidate_actions", dt::lists_of<arrow::Int64Builder>(none, empty));
         return replace(u, "candidate_price",
                        dt::lists_of<arrow::FloatBuilder>(none, std::vector<float>{}));
       },
       1,
       {"part-0000.parquet", "row group 0", "candidate"}},
      {"null",
       [&](auto t) {
         arrow::Int64Builder users;
         for (std::size_t i = 0; i + 1 < n; ++i) dt::check(users.Append(1));
         dt::check(users.AppendNull());
         std::shared_ptr<arrow::Array> array;
         dt::check(users.Finish(&array));
         return replace(t, "user_id", array);
       },
       1,
       {"part-0000.parquet", "row group 2", "user_id", "null"}},
      {"not a number",
       [&](auto t) {
         const auto list = std::static_pointer_cast<arrow::ListArray>(
             t->GetColumnByName("candidate_price")->chunk(0));
         std::vector<float> values(static_cast<std::size_t>(list->values()->length()), 0.5F);
         values.back() = std::numeric_limits<float>::quiet_NaN();
         std::vector<std::int64_t> lengths;
         for (std::int64_t i = 0; i < list->length(); ++i) lengths.push_back(list->value_length(i));
         return replace(t, "candidate_price", dt::lists_of<arrow::FloatBuilder>(lengths, values));
       },
       1,
       {"part-0000.parquet", "row group 2", "candidate_price"}},
  };
  for (const auto& bad : all) {
    SCOPED_TRACE(bad.name);
    const Workspace w(kTiny);
    dt::write_parquet(w.file("train/part-0000.parquet"), *bad.spoil(good), kTiny.row_group_rows);
    expect_refused(run(w.train("run", {"data.shuffle_window=0"})), bad.exit_code, bad.says);
  }
}

TEST(BadData, NegativeAndHugeIdsAreFine) {
  const auto good = dt::impression_table(kTiny, 0, kTiny.rows);
  const Workspace w(kTiny);
  std::vector<std::int64_t> users(static_cast<std::size_t>(kTiny.rows), -5);
  users[0] = std::numeric_limits<std::int64_t>::min();
  users[1] = std::numeric_limits<std::int64_t>::max();
  dt::write_parquet(w.file("train/part-0000.parquet"),
                    *replace(good, "user_id", dt::array_of<arrow::Int64Builder>(users)), 8);
  const Output o = run(w.train("run"));
  EXPECT_EQ(o.exit_code, 0) << o.err;
}

TEST(BadData, FilesThatAreNotParquet) {
  const Workspace w(kTiny);
  const std::string part = w.file("train/part-0000.parquet");
  const std::string whole = read_text(part);
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{3}, whole.size() / 2, whole.size() - 1}) {
    SCOPED_TRACE(size);
    write_text(part, whole.substr(0, size));
    const Output o = run(w.train("run"));
    EXPECT_NE(o.exit_code, 0);
    EXPECT_THAT(o.err, HasSubstr("part-0000.parquet"));
    EXPECT_FALSE(std::filesystem::exists(w.run_dir("run") + "/metrics.jsonl"));
  }
  expect_refused(run(w.train("run", {"data.train=" + w.file("nothing-here")})), 2,
                 {"nothing-here"});
  std::filesystem::create_directory(w.file("empty"));
  expect_refused(run(w.train("run", {"data.train=" + w.file("empty")})), 2, {"empty"});
}

TEST(BadRun, ADirectoryThatCannotBeWritten) {
  const Workspace w(kTiny);
  // A file in the way stops root too, whom permissions do not.
  write_text(w.file("runs"), "in the way");
  const Output o = run(w.train("run"));
  EXPECT_EQ(o.exit_code, 1) << o.err;
  EXPECT_THAT(o.err, AllOf(HasSubstr("cannot create the run directory"), HasSubstr("runs/run")));
  EXPECT_EQ(read_text(w.file("runs")), "in the way");
}

TEST(BadRun, FilesOfOthersAreNotWrittenOver) {
  const Workspace w(kTiny);
  const std::string config = read_text(w.config());
  expect_refused(run({"train", w.config(), "--set", "run.dir=" + w.dir().string()}), 2,
                 {"run.dir", "config.toml"});
  EXPECT_EQ(config, read_text(w.config()));
  std::filesystem::create_directories(w.file("mine"));
  write_text(w.file("mine/metrics.jsonl"), "mine\n");
  expect_refused(run({"train", w.config(), "--set", "run.dir=" + w.file("mine")}), 2,
                 {"metrics.jsonl"});
  EXPECT_EQ(read_text(w.file("mine/metrics.jsonl")), "mine\n");
  // Checkpoints elsewhere would make the run start over and forget its metrics.
  ASSERT_EQ(run(w.train("run")).exit_code, 0);
  const std::string metrics = read_text(w.run_dir("run") + "/metrics.jsonl");
  ASSERT_EQ(run(w.train("other", {"checkpoint.dir=" + w.file("saved")})).exit_code, 0);
  expect_refused(run(w.train("other", {"checkpoint.dir=" + w.file("elsewhere")})), 2,
                 {"checkpoint.dir", "saved"});
  EXPECT_EQ(metrics, read_text(w.run_dir("run") + "/metrics.jsonl"));
  // A place for checkpoints that cannot be written is found before any step.
  expect_refused(run(w.train("late", {"checkpoint.dir=/proc/nothing"})), 1, {"/proc/nothing"});
  EXPECT_FALSE(std::filesystem::exists(w.run_dir("late") + "/metrics.jsonl"));
}

TEST(BadRun, FixedKeysThatDifferAreNamedAndNothingIsWrittenOver) {
  const Workspace w(kTiny);
  ASSERT_EQ(run(w.train("run", {"train.max_steps=2"})).exit_code, 0);
  const auto before = final_state(w.run_dir("run"));
  const std::string config = read_text(w.run_dir("run") + "/config.toml");
  const std::string metrics = read_text(w.run_dir("run") + "/metrics.jsonl");
  expect_refused(run(w.train("run", {"model.ffn=48"})), 2,
                 {"model.ffn", "32", "48", "--allow-changed-keys"});
  expect_refused(run(w.train("run", {"train.seed=5"})), 2, {"train.seed", "1", "5"});
  expect_refused(run(w.train("run", {"features[0].rows=65"})), 2, {"features[0].rows", "64", "65"});
  EXPECT_EQ(before, final_state(w.run_dir("run")));
  EXPECT_EQ(config, read_text(w.run_dir("run") + "/config.toml"));
  EXPECT_EQ(metrics, read_text(w.run_dir("run") + "/metrics.jsonl"));
  // Another data set under the same paths.
  dt::ImpressionOptions other = kTiny;
  other.rows = 32;
  dt::write_impressions(w.file("train"), other);
  expect_refused(run(w.train("run")), 2,
                 {"data.train is not what", "part-0000.parquet had ", "--allow-changed-data"});
  EXPECT_EQ(before, final_state(w.run_dir("run")));
}

TEST(BadRun, EvalAndRankWithoutWhatTheyNeed) {
  const Workspace w(kTiny);
  expect_refused(run({"eval", w.config()}), 2, {"checkpoint"});
  ASSERT_EQ(run(w.train("run", {"train.max_steps=1"})).exit_code, 0);
  expect_refused(run({"eval", w.run_dir("run"), "--split", "tset"}), 2,
                 {"tset", "train, valid and test"});
  expect_refused(
      run({"rank", w.run_dir("run"), w.file("absent.parquet"), "-o", w.file("out.parquet")}), 2,
      {"absent.parquet"});
  expect_refused(run({"rank", w.run_dir("run"), w.file("valid"), "-o", w.file("out.parquet"),
                      "--weights", "lik=1"}),
                 2, {"lik", "like"});
  expect_refused(
      run({"rank", w.run_dir("run"), w.file("valid"), "-o", w.file("no/such/folder/x.parquet")}), 2,
      {"no/such/folder"});
  expect_refused(run({"rank", w.run_dir("run"), w.file("valid"), "-o", w.file("out.parquet"),
                      "--weights", "like=nan"}),
                 2, {"like=nan"});
  EXPECT_FALSE(std::filesystem::exists(w.file("out.parquet")));
  const std::string input = w.file("valid/part-0000.parquet");
  const std::string before = read_text(input);
  expect_refused(run({"rank", w.run_dir("run"), input, "-o", input}), 2, {"lies within the input"});
  EXPECT_EQ(before, read_text(input));
  // Scores of other features than the trained ones would be noise.
  for (const char* set : {"features[4].unit=30.0", "actions[1].bit=3", "model.causal=true"}) {
    expect_refused(run({"eval", w.config(), "--split", "valid", "--set",
                        "run.dir=" + w.run_dir("run"), "--set", set}),
                   2, {"was trained with other values", std::string(set).substr(0, 9)});
  }
}

}  // namespace
}  // namespace paceline::e2e
