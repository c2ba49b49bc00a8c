#include "coordinator/plan/saved_plan.h"

#include <string>
#include <vector>

#include "common/json/json_value.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/coordinator/plan/plan_inputs.h"

namespace stagecoach {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

SavedPlan Saved() {
  SavedPlan plan;
  SetModelOf(*Model(), &plan);
  plan.stages = {{"a", 20, 4, kGiB}, {"a", 4, 4, kGiB}, {"b.cluster", 4, 0, kGiB}};
  plan.threads = 2;
  plan.micro_batches = 5;
  plan.prefill_chunk = 128;
  return plan;
}

std::string DocumentOf(const Json& plan) { return Json{{"other", 1}, {"plan", plan}}.dump(); }

TEST(SavedPlan, WhatIsWrittenIsRead) {
  const auto plan = ParseSavedPlan("p.json", DocumentOf(SavedPlanJson(Saved()))).value();
  EXPECT_EQ(plan, Saved());
}

TEST(SavedPlan, ListsItsHostsForALauncher) {
  SavedPlan plan = Saved();
  EXPECT_EQ(HostListOf(plan), "a:2,b.cluster:1");
  plan.here = true;
  EXPECT_EQ(HostListOf(plan), "");
}

TEST(SavedPlan, SaysWhatIsWrongInTheFile) {
  const auto message = [](const std::string& text) {
    const absl::Status status = ParseSavedPlan("p.json", text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    return std::string(status.message());
  };
  for (const char* text : {"", "[]", "{", "3", "{\"plan\": 3}", "{\"other\": {}}"}) {
    EXPECT_THAT(message(text), HasSubstr("'p.json' is no saved plan"));
  }
  const Json good = SavedPlanJson(Saved());
  const auto with = [&](const std::string& field, const Json& value) {
    Json changed = good;
    changed[field] = value;
    return message(DocumentOf(changed));
  };
  EXPECT_THAT(with("version", 2), HasSubstr("plan.version: expected an integer, 1 to 1, found 2"));
  EXPECT_THAT(with("layers", 0), HasSubstr("plan.layers: expected an integer, 1 to 1024, found 0"));
  EXPECT_THAT(with("layers", 27), HasSubstr("add up to 28, but plan.layers is 27"));
  EXPECT_THAT(with("file_bytes", -1), AllOf(HasSubstr("plan.file_bytes: "), HasSubstr("found -1")));
  EXPECT_THAT(with("file_bytes", UINT64_MAX),
              AllOf(HasSubstr("plan.file_bytes: "), HasSubstr("found 18446744073709551615")));
  EXPECT_THAT(with("header_hash", "xyz"), HasSubstr("plan.header_hash: expected 16 hexadecimal digits, found \"xyz\""));
  EXPECT_THAT(with("here", 1), HasSubstr("plan.here: expected true or false, found 1"));
  EXPECT_THAT(with("stages", Json::array()),
              HasSubstr("plan.stages: expected a list of 1 to 1024 stages, found a list of 0"));
  EXPECT_THAT(with("threads", 2.5), AllOf(HasSubstr("plan.threads: "), HasSubstr("found 2.5")));
  EXPECT_THAT(with("micro_batches", 0), AllOf(HasSubstr("plan.micro_batches: "), HasSubstr("found 0")));
  Json stage = good;
  stage["stages"][1]["host"] = "";
  EXPECT_THAT(message(DocumentOf(stage)),
              HasSubstr("plan.stages[1].host: expected a text of 1 to 255 bytes, found \"\""));
  stage["stages"][1].erase("host");
  EXPECT_THAT(message(DocumentOf(stage)), HasSubstr("plan.stages[1].host: expected a value, found none"));
}

TEST(SavedPlan, FitsTheHostsAndTheModelThatItWasMadeFor) {
  const pb::PlannedFor planned = PlannedForOf(Saved());
  const std::vector<pb::Hello> hosts = {StageOn("a"), StageOn("a"), StageOn("b", 8 * kGiB, 7)};
  EXPECT_TRUE(CheckPlanned(planned, hosts, *Model()).ok()) << CheckPlanned(planned, hosts, *Model());
}

TEST(SavedPlan, SaysAllThatDiffers) {
  const pb::PlannedFor planned = PlannedForOf(Saved());
  const absl::Status status =
      CheckPlanned(planned, {StageOn("a", kGiB, 2), StageOn("a"), StageOn("c")}, *Model("qwen3-1.7b/q8_0"));
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("this one has 1828474880"), HasSubstr("whose header has the hash"),
                    Not(HasSubstr("layers, ")), HasSubstr("gives a 4 cores for stage 0, which may now use 2"),
                    HasSubstr("takes 2147483648 bytes of memory on a, where 1073741824 are available"),
                    HasSubstr("stage 2 on b.cluster, which is now on c"), HasSubstr("coordinator plan"),
                    HasSubstr("`planned_for`")));
  EXPECT_THAT(std::string(CheckPlanned(planned, {StageOn("a")}, *Model()).message()),
              HasSubstr("it is for 3 stages, this job has 1"));
  EXPECT_THAT(std::string(CheckPlanned(planned, {StageOn("a")}, *Model("tiny/q8_0")).message()),
              HasSubstr("a model of 28 layers, this one has 3"));
}

TEST(SavedPlan, AnAddressMayBeAnyHost) {
  SavedPlan saved = Saved();
  saved.stages[2].host = "10.1.2.3";
  EXPECT_TRUE(CheckPlanned(PlannedForOf(saved), {StageOn("a"), StageOn("a"), StageOn("z")}, *Model()).ok());
}

TEST(SavedPlan, IsHeldAgainstTheHostsInTheFirstLaunchAlone) {
  pb::ConfigureJob job = Job();
  *job.mutable_planned_for() = PlannedForOf(Saved());
  const std::vector<pb::Hello> hosts = {StageOn("a"), StageOn("a"), StageOn("c")};
  Refusal(job, hosts, absl::StatusCode::kFailedPrecondition);
  job.add_fingerprints();
  Planned(job, hosts);
}

}  // namespace
}  // namespace stagecoach
