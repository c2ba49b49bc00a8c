#include "coordinator/cli/options/job_options.h"

#include <algorithm>

#include "CLI/App.hpp"
#include "coordinator/cli/options/cluster_options.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/engine.pb.h"

namespace stagecoach {
namespace {

TEST(JobFlags, FieldsInBackquotesBecomeTheOptionsThatSetThem) {
  EXPECT_EQ(WithFlags("`kv_cache_bytes` is 7, `stages` is 2"), "--kv-cache-memory is 7, --pp is 2");
  EXPECT_EQ(WithFlags("lower `context` or `threads`"), "lower --ctx-size or --threads");
}

TEST(JobFlags, EverythingElseStaysAsItIs) {
  for (const char* message : {"", "context", "`", "a ` b", "`coordinator help`", "``", "`a``b`", "kv_cache_bytes`"}) {
    EXPECT_EQ(WithFlags(message), message);
  }
  EXPECT_EQ(WithFlags("`x`isa`y"), "`x--isay");
  EXPECT_EQ(WithFlags("a ` b `isa`"), "a ` b --isa");
}

TEST(JobOptions, EverySettingHasAnOptionAndAFieldOfTheJob) {
  CLI::App app;
  ClusterOptions options;
  AddClusterOptions(&app, &options, "");
  int settings = 0;
  VisitJobSettings(options, [&](const JobSetting& setting, auto&...) {
    ++settings;
    EXPECT_NE(app.get_option_no_throw(FlagOfField(setting.name)), nullptr) << setting.name;
    EXPECT_NE(pb::ConfigureJob::descriptor()->FindFieldByName(setting.name), nullptr) << setting.name;
  });
  EXPECT_GT(settings, 25);
  for (const char* field : {"hostfile", "launcher_args", "stage_worker_path", "dry_run"}) {  // of the launch
    EXPECT_NE(app.get_option_no_throw(FlagOfField(field)), nullptr) << field;
  }
}

// Of every kind of value one that is not its default.
TEST(JobOptions, WordsGiveTheSettingsBack) {
  JobSettings given;
  given.threads = 3;
  given.layer_split = {5, 3};
  given.isa = InstructionSet::kAvx2;
  given.policy = Policy::kPhases;
  given.slo_itl_s = 0.0805;
  given.stage_timeout_s = 7.5;
  given.kv_cache_bytes = 12345;
  given.prefix_caching = false;
  given.allow_damaged = true;
  given.q2_layout = "g128";
  given.step_log = "steps of today.jsonl";
  given.emulated_link = {.latency_s = 0.002, .bytes_per_s = 125e6};
  std::vector<std::string> words = JobSettingWords(given, AllSettingsBut({}));
  EXPECT_EQ(words.front(), "--q2-layout");
  CLI::App app;
  JobSettings parsed;
  AddJobSettings(&app, &parsed, AllSettingsBut({}));
  std::reverse(words.begin(), words.end());  // as CLI11 takes them
  app.parse(words);
  EXPECT_EQ(parsed, given);
  EXPECT_TRUE(JobSettingWords(JobSettings(), AllSettingsBut({})).empty());
  EXPECT_THAT(JobSettingWords(given, Settings({"threads", "kv_type"})), ::testing::ElementsAre("--threads", "3"));
}

}  // namespace
}  // namespace stagecoach
