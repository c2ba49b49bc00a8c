#include "coordinator/cli/options/sampling_options.h"

#include <cmath>

#include "CLI/App.hpp"
#include "CLI/Config.hpp"
#include "CLI/Formatter.hpp"
#include "common/gguf/gguf_writer.h"
#include "coordinator/cli/verb.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/shared_data.h"

namespace stagecoach {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

// A file with the given sampling values, opened.
class SamplingFile {
 public:
  explicit SamplingFile(const GgufWriter& writer) {
    const std::string path = directory_.File("m.gguf");
    EXPECT_TRUE(writer.Write(path).ok());
    absl::StatusOr<std::unique_ptr<GgufFile>> file = GgufFile::Open(path);
    EXPECT_TRUE(file.ok()) << file.status();
    file_ = *std::move(file);
  }
  const GgufMetadata& metadata() const { return file_->metadata(); }

 private:
  testing::TempDir directory_;
  std::unique_ptr<GgufFile> file_;
};

GgufWriter AuthorsChoice() {
  GgufWriter writer;
  writer.Set("general.architecture", "qwen3");
  writer.Set("general.sampling.temp", 0.6f);
  writer.Set("general.sampling.top_k", int32_t{20});
  writer.Set("general.sampling.top_p", 0.95f);
  writer.Set("general.sampling.min_p", 0.05f);
  writer.Set("general.sampling.penalty_repeat", 1.1f);
  writer.Set("general.sampling.penalty_last_n", int32_t{-1});
  return writer;
}

TEST(SamplingOptions, AreGreedyWhenNobodySaysAnything) {
  GgufWriter writer;
  writer.Set("general.architecture", "qwen3");
  const SamplingFile file(writer);
  SamplingParams sampling = ResolveSampling({}, file.metadata());
  sampling.seed = 0;
  EXPECT_EQ(sampling, SamplingParams());
}

TEST(SamplingOptions, AreTheUsersElseTheModelsAuthors) {
  const SamplingFile file(AuthorsChoice());
  SamplingParams expected = {
      .temperature = 0.6f, .top_k = 20, .top_p = 0.95f, .min_p = 0.05f, .repeat_penalty = 1.1f, .repeat_last_n = -1};
  SamplingParams sampling = ResolveSampling({}, file.metadata());
  expected.seed = sampling.seed;
  EXPECT_EQ(sampling, expected);
  SamplingOptions options;
  options.temperature = expected.temperature = 0.0f;
  options.top_k = expected.top_k = 5;
  options.seed = expected.seed = 42;
  EXPECT_EQ(ResolveSampling(options, file.metadata()), expected);
}

TEST(SamplingOptions, WithoutAFileAreWhatTheUserGaveAndElseGreedy) {
  EXPECT_EQ(GivenSampling({}), SamplingParams());
  SamplingOptions options;
  options.temperature = 0.7f;
  options.top_p = 0.9f;
  options.min_p = 0.1f;
  options.top_k = 5;
  options.repeat_penalty = 1.5f;
  options.repeat_last_n = -1;
  options.presence_penalty = 0.25f;
  options.frequency_penalty = -0.5f;
  options.seed = 42;
  EXPECT_EQ(GivenSampling(options), (SamplingParams{.temperature = 0.7f,
                                                    .top_k = 5,
                                                    .top_p = 0.9f,
                                                    .min_p = 0.1f,
                                                    .repeat_penalty = 1.5f,
                                                    .presence_penalty = 0.25f,
                                                    .frequency_penalty = -0.5f,
                                                    .repeat_last_n = -1,
                                                    .seed = 42}));
}

TEST(SamplingOptions, LeaveOutValuesOfTheFileThatAreOutOfRange) {
  GgufWriter writer = AuthorsChoice();
  writer.Set("general.sampling.top_p", 0.0f);
  writer.Set("general.sampling.temp", -3.0f);
  writer.Set("general.sampling.top_k", "many");
  const SamplingFile file(writer);
  const SamplingParams sampling = ResolveSampling({}, file.metadata());
  EXPECT_EQ(sampling.top_p, 1);
  EXPECT_EQ(sampling.temperature, 0);
  EXPECT_EQ(sampling.top_k, 0);
}

TEST(SamplingOptions, SayWhatTheirVerbTakesWhenNobodyGivesThem) {
  const std::vector<std::unique_ptr<Verb>> verbs = AllVerbs();
  const auto help_of = [&](const std::string& name) {
    CLI::App app;
    for (const std::unique_ptr<Verb>& verb : verbs) {
      if (verb->name() == name) verb->AddOptions(&app);
    }
    return absl::StrJoin(absl::StrSplit(app.help(), absl::ByAnyChar(" \n"), absl::SkipEmpty()), " ");
  };
  EXPECT_THAT(help_of("generate"), AllOf(HasSubstr("--temp X=0 "), HasSubstr("--seed N=drawn and printed ")));
  EXPECT_THAT(help_of("serve"), AllOf(HasSubstr("--temp X=1 "), HasSubstr("--seed N=drawn for each request ")));
  EXPECT_THAT(help_of("chat"), AllOf(HasSubstr("with --url the server's"), HasSubstr("N=drawn for each answer ")));
}

TEST(SamplingOptions, MakeEndOfGenerationImpossible) {
  SamplingParams sampling;
  const std::vector<TokenId> end = {4093, 4095};
  IgnoreEndOfGeneration(end, &sampling);
  EXPECT_THAT(sampling.logit_bias, ElementsAre(Pair(4093, -INFINITY), Pair(4095, -INFINITY)));
}

}  // namespace
}  // namespace stagecoach
