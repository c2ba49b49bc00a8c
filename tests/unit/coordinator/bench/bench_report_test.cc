#include "coordinator/bench/bench_report.h"

#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "common/json/json_value.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace stagecoach {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

BenchRecord Prefill() {
  BenchRecord record;
  record.build = "1.2.3";
  record.cpu_info = "A \"fast\" CPU";
  record.isa = "avx2";
  record.model_filename = "m.gguf";
  record.model_type = "qwen3 0.6B Q8_0";
  record.model_size = 604 << 20;
  record.model_n_params = 596'049'920;
  record.n_batch = 512;
  record.n_ubatch = 256;
  record.n_threads = 2;
  record.n_stages = 1;
  record.type_kv = "f16";
  record.test = {.prompt = 512};
  record.test_time = "2024-02-29T12:00:00Z";
  record.samples = {{1'000'000, 512}, {2'000'000, 512}};
  record.rates = {{0, 0, 450, 0.5}, {0, 0, 225, 0.25}};
  record.checked = true;
  return record;
}

BenchRecord Decode() {
  BenchRecord record = Prefill();
  record.test = {.generated = 64, .depth = 100, .sequences = 8};
  record.samples = {{2'000'000, 516, 70, 1000}};  // a few tokens more than asked for
  record.rates = {{30, 0.9, 100, 0.1}};
  return record;
}

// The whole result of both.
std::string Print(BenchFormat format) {
  BenchWriter writer(format);
  std::string text = writer.Row(Prefill());
  text += writer.Row(Decode());
  return text + writer.End();
}

TEST(Summarize, GivesTheMeanAndTheDeviationOfASample) {
  const MeanAndDeviation four = Summarize({2, 4, 4, 6});
  EXPECT_DOUBLE_EQ(four.mean, 4);
  EXPECT_DOUBLE_EQ(four.deviation, std::sqrt(8.0 / 3));
  EXPECT_DOUBLE_EQ(Summarize({7}).mean, 7);
  EXPECT_DOUBLE_EQ(Summarize({7}).deviation, 0);
  EXPECT_DOUBLE_EQ(Summarize({}).mean, 0);
}

TEST(SamplingText, NamesWhatDiffersFromGreedy) {
  EXPECT_EQ(SamplingText({}), "greedy");
  EXPECT_EQ(SamplingText({.temperature = 0.7f, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f, .seed = 3}),
            "temp 0.7, top-k 40, top-p 0.95, min-p 0.05, seed 3");
  EXPECT_EQ(
      SamplingText({.repeat_penalty = 1.1f, .presence_penalty = 0.5f, .frequency_penalty = -1, .repeat_last_n = -1}),
      "repeat-penalty 1.1, repeat-last-n -1, presence-penalty 0.5, frequency-penalty -1");
}

TEST(BenchTable, HasAHeadingOnceAndARowForEachTest) {
  const std::string text = Print(BenchFormat::kMarkdown);
  const std::vector<std::string> lines = absl::StrSplit(text, '\n', absl::SkipEmpty());
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_THAT(lines[0], StartsWith("| model "));
  EXPECT_THAT(lines[1], HasSubstr("-: |"));
  EXPECT_THAT(lines[2], HasSubstr("| qwen3 0.6B Q8_0 "));
  EXPECT_THAT(lines[2], HasSubstr("604.00 MiB |"));
  EXPECT_THAT(lines[2], HasSubstr("596.05 M |"));
  EXPECT_THAT(lines[2], HasSubstr(" pp512 |"));
  EXPECT_THAT(lines[2], HasSubstr("384.00 ± 181.02 |"));
  EXPECT_THAT(lines[2], HasSubstr(" 337.5 |    38 |"));
  EXPECT_THAT(lines[3], HasSubstr(" tg64 @ d100 x8 |"));
  EXPECT_THAT(lines[3], HasSubstr("258.00 ± 0.00 |"));
  EXPECT_THAT(lines[3], HasSubstr(" 30.0 |   90 |"));
}

TEST(BenchTable, ShowsNoSharesOfAHostThatDidNotRunIt) {
  BenchRecord record = Decode();
  record.checked = false;
  EXPECT_THAT(BenchWriter(BenchFormat::kMarkdown).Row(record), HasSubstr(" 30.0 |    - |   100.0 |     - |"));
  EXPECT_TRUE(BenchRecordJson(record, true)["read_share"].is_null());
}

TEST(BenchJson, IsAnArrayOfRecordsWithTheKnownNames) {
  const Json all = Json::parse(Print(BenchFormat::kJson));
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0]["n_prompt"], 512);
  EXPECT_EQ(all[0]["n_gen"], 0);
  EXPECT_EQ(all[0]["avg_ts"], 384.0);
  EXPECT_EQ(all[0]["avg_ns"], 1'500'000'000);
  EXPECT_THAT(all[0]["samples_ns"], ElementsAre(1'000'000'000, 2'000'000'000));
  EXPECT_THAT(all[0]["samples_ts"], ElementsAre(512.0, 256.0));
  EXPECT_TRUE(all[0]["read_gbps"].is_null());
  EXPECT_EQ(all[0]["peak_share"], 0.375);
  EXPECT_EQ(all[1]["n_gen"], 64);
  EXPECT_EQ(all[1]["n_depth"], 100);
  EXPECT_EQ(all[1]["n_parallel"], 8);
  EXPECT_EQ(all[1]["read_share"], 0.9);
  EXPECT_EQ(all[1]["avg_ts"], 258.0);
  EXPECT_EQ(all[1]["avg_ns"], 1984496124);  // of 512 tokens at that rate
}

TEST(BenchJson, OfNoTestIsAnEmptyArray) { EXPECT_TRUE(Json::parse(BenchWriter(BenchFormat::kJson).End()).empty()); }

TEST(BenchJsonLines, HasOneRecordALine) {
  const std::string text = Print(BenchFormat::kJsonLines);
  const std::vector<std::string> lines = absl::StrSplit(text, '\n', absl::SkipEmpty());
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(Json::parse(lines[1])["model_type"], "qwen3 0.6B Q8_0");
}

TEST(BenchCsv, HasTheNamesOnceAndQuotesEveryValue) {
  const std::string text = Print(BenchFormat::kCsv);
  const std::vector<std::string> lines = absl::StrSplit(text, '\n', absl::SkipEmpty());
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_THAT(lines[0], StartsWith("build,cpu_info,isa,valid,model_filename,model_type,model_size,model_n_params"));
  EXPECT_THAT(lines[0], HasSubstr(",n_prompt,n_gen,n_depth,n_parallel,test_time,avg_ns,stddev_ns,avg_ts,stddev_ts,"));
  EXPECT_THAT(lines[1], StartsWith("\"1.2.3\",\"A \"\"fast\"\" CPU\",\"avx2\",\"true\",\"m.gguf\""));
  EXPECT_EQ(std::vector<std::string>(absl::StrSplit(lines[2], "\",\"")).size(),
            std::vector<std::string>(absl::StrSplit(lines[0], ',')).size());
}

}  // namespace
}  // namespace stagecoach
