#include "coordinator/cli/options/cluster_options.h"

#include "CLI/App.hpp"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace stagecoach {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

HyperParameters EightLayers() {
  HyperParameters model;
  model.layers.resize(8);
  model.context = 1024;
  return model;
}

RunContext Program() {
  RunContext context;
  context.program = "/opt/coordinator";
  return context;
}

pb::ConfigureJob JobOf(const ClusterOptions& options) {
  return MakeLaunchOptions(options, EightLayers(), Program()).value().job;
}

// Of the command line `words`, behind -m.
pb::ConfigureJob JobGiven(const std::string& words, ClusterOptions options = {}) {
  CLI::App app;
  AddClusterOptions(&app, &options, "");
  app.parse("-m model.gguf " + words);
  return JobOf(options);
}

absl::Status RefusalOf(const ClusterOptions& options) {
  return MakeLaunchOptions(options, EightLayers(), Program()).status();
}

std::string UsageMessage(const ClusterOptions& options) {
  const absl::Status status = RefusalOf(options);
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kUsage) << status;
  return std::string(status.message());
}

TEST(ClusterOptions, BecomeTheJobOfALaunch) {
  ClusterOptions options;
  options.model = "model.gguf";
  options.context = 512;
  options.layer_split = {5, 3};
  options.kv_type = KvType::kF32;
  options.stage_timeout_s = 7;
  const absl::StatusOr<LaunchOptions> launch = MakeLaunchOptions(options, EightLayers(), Program());
  ASSERT_TRUE(launch.ok()) << launch.status();
  EXPECT_EQ(launch->stages, 2) << "as many as the split has parts";
  EXPECT_EQ(launch->coordinator_path, "/opt/coordinator");
  EXPECT_EQ(launch->job.model_path().front(), '/');
  EXPECT_THAT(launch->job.layer_split(), ElementsAre(5, 3));
  EXPECT_EQ(launch->job.context(), 512);
  EXPECT_EQ(launch->job.max_num_seqs(), 8);
  EXPECT_EQ(launch->job.max_num_batched_tokens(), 512);
  EXPECT_EQ(launch->job.block_tokens(), 32);
  EXPECT_EQ(launch->job.kv_type(), pb::KV_TYPE_F32);
  EXPECT_EQ(launch->job.wire_type(), pb::WIRE_TYPE_F32);
  EXPECT_EQ(launch->job.policy(), pb::POLICY_THROTTLED);
  EXPECT_EQ(launch->job.stage_timeout_s(), 7);
  EXPECT_EQ(launch->job.fingerprints_size(), 0);
}

TEST(ClusterOptions, PromptsThatBeginAlikeShareUnlessToldNotTo) {
  EXPECT_TRUE(ClusterOptions().prefix_caching);
  EXPECT_TRUE(JobGiven("").prefix_caching());
  EXPECT_FALSE(JobGiven("--no-enable-prefix-caching").prefix_caching());
  ClusterOptions off;
  off.prefix_caching = false;
  EXPECT_FALSE(JobGiven("", off).prefix_caching());
  EXPECT_TRUE(JobGiven("--enable-prefix-caching", off).prefix_caching());
}

TEST(ClusterOptions, AWantedGapIsForThePolicyThatKeepsIt) {
  ClusterOptions options;
  options.model = "dummy://qwen3-0.6b/q8_0";
  options.slo_itl_s = 0.08;
  options.policy = Policy::kInterleaved;
  EXPECT_THAT(UsageMessage(options), HasSubstr("--slo-itl is what --policy throttled keeps to"));
  options.policy = ClusterOptions().policy;
  options.chunking = Chunking::kEqualTime;
  EXPECT_EQ(JobOf(options).slo_itl_s(), 0.08);
  EXPECT_EQ(JobOf(options).chunking(), pb::CHUNKING_EQUAL_TIME);
}

TEST(ClusterOptions, StreamedWeightsNeedAFileToSend) {
  ClusterOptions options;
  options.model = "model.gguf";
  EXPECT_EQ(JobOf(options).weights(), pb::WEIGHT_SOURCE_FILE);
  options.weights = WeightSource::kStream;
  EXPECT_EQ(JobOf(options).weights(), pb::WEIGHT_SOURCE_STREAM);
  options.weights_cache = "kept";
  EXPECT_EQ(JobOf(options).weights_cache().front(), '/');
  options.weights = WeightSource::kFile;
  EXPECT_THAT(UsageMessage(options), HasSubstr("--weights-cache is for streamed weights"));
  options.weights = WeightSource::kStream;
  options.model = "dummy://qwen3-0.6b/q8_0";
  EXPECT_THAT(UsageMessage(options), HasSubstr("--weights: stream sends a model's file, but dummy://qwen3-0.6b/q8_0"));
}

TEST(ClusterOptions, HandOnWhatSaysHowTheModelIsRead) {
  ClusterOptions dummy;
  dummy.model = "dummy://qwen3-0.6b/q8_0";
  EXPECT_EQ(JobOf(dummy).model_path(), "dummy://qwen3-0.6b/q8_0");
  EXPECT_EQ(JobGiven("").q2_layout(), "auto");
  EXPECT_EQ(JobGiven("--q2-layout g128-oxi").q2_layout(), "g128-oxi");
  EXPECT_FALSE(JobGiven("").allow_damaged());
  EXPECT_TRUE(JobGiven("--allow-damaged").allow_damaged());
}

TEST(ClusterOptions, LeaveTheNumberOfStagesToTheHostFile) {
  ClusterOptions options;
  options.model = "model.gguf";
  EXPECT_EQ(MakeLaunchOptions(options, EightLayers(), Program())->stages, 0);
  options.stages = 3;
  EXPECT_EQ(MakeLaunchOptions(options, EightLayers(), Program())->stages, 3);
}

TEST(ClusterOptions, RefuseASplitThatDoesNotAddUp) {
  ClusterOptions options;
  options.layer_split = {5, 4};
  EXPECT_THAT(UsageMessage(options), HasSubstr("5,4 adds up to 9, the model has 8 layers"));
  options.layer_split = {5, 3};
  options.stages = 3;
  EXPECT_THAT(UsageMessage(options), HasSubstr("has 2 parts, --pp asks for 3 stages"));
}

TEST(ClusterOptions, RefuseMoreStagesThanLayersAndMoreContextThanTheModelHas) {
  ClusterOptions options;
  options.stages = 9;
  EXPECT_THAT(UsageMessage(options), HasSubstr("9 stages, but the model has 8 layers"));
  options.stages = 8;
  options.context = 1025;
  EXPECT_THAT(UsageMessage(options), HasSubstr("1025 tokens, but the model's context is 1024"));
  options.context = 1024;
  options.block_tokens = 24;
  EXPECT_THAT(UsageMessage(options), HasSubstr("`block_tokens` is 24, expected a multiple of 16"));
}

TEST(ClusterOptions, NameAMissingHostFileOrStageProgram) {
  ClusterOptions options;
  options.hostfile = "/nowhere/hosts";
  absl::Status status = RefusalOf(options);
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kLaunch);
  EXPECT_THAT(std::string(status.message()), HasSubstr("/nowhere/hosts"));
  options.hostfile.clear();
  options.stage_worker = "/nowhere/stage_worker";
  status = RefusalOf(options);
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kLaunch);
}

TEST(ClusterOptions, TakeAListOfHostsInsteadOfAFile) {
  ClusterOptions options;
  options.hosts = "node1:2,node2";
  const absl::StatusOr<LaunchOptions> launch = MakeLaunchOptions(options, EightLayers(), Program());
  ASSERT_TRUE(launch.ok()) << launch.status();
  EXPECT_EQ(launch->hosts, "node1:2,node2");
  options.hosts = "node1:2,";
  EXPECT_THAT(UsageMessage(options), HasSubstr("`hosts`: '' does not begin with a host name"));
  options.hosts = "node1";
  options.hostfile = "hosts";
  EXPECT_THAT(UsageMessage(options), HasSubstr("--hostfile and --host name the hosts twice"));
}

TEST(ClusterOptions, RefuseAStepLogThatCannotBeWritten) {
  ClusterOptions options;
  options.step_log = "/nowhere/steps.jsonl";
  const absl::Status status = RefusalOf(options);
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kInputFile);
  EXPECT_THAT(std::string(status.message()), HasSubstr("/nowhere/steps.jsonl"));
}

TEST(ClusterOptions, ATraceIsForAFileThatCanBeReadAgain) {
  ClusterOptions options;
  options.trace = "/dev/null";
  const absl::Status status = RefusalOf(options);
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kInputFile);
  EXPECT_THAT(std::string(status.message()), HasSubstr("--trace: '/dev/null' is not a regular file"));
  options.dry_run = true;
  EXPECT_EQ(JobOf(options).trace(), "");
}

}  // namespace
}  // namespace stagecoach
