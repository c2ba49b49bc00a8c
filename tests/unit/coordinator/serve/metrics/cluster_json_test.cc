#include "coordinator/serve/metrics/cluster_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/json/json_value.h"
#include "tests/unit/coordinator/serve/metrics/metrics_samples.h"

namespace stagecoach {
namespace {

using ::testing::HasSubstr;

TEST(ClusterJson, SaysEverythingOfACluster) {
  const Json json =
      ClusterJson(SampleStatus(), {.model = "m", .bubble_now = 0.25, .bubble_minute = 0.5, .bubble_floor = 0.375});
  EXPECT_EQ(CompactJson(json),
            R"({"state":"ready","model":{"name":"m","context":4096,"bf16_dot":true},"load":null,"relaunches":1,)"
            R"("losses":[{"number":1,"stage":1,"host":"gamma","what":"stage 1 died","recovery_s":2.5}],)"
            R"("requests":{"waiting":3,"running":4,"unfinished":7},"micro_batches_in_flight":2,"preemptions":3,)"
            R"("bubble":{"now":0.25,"minute":0.5,"floor":0.375},)"
            R"("kv":{"block_tokens":32,"groups":[{"used":30,"cached":10,"free":60}]},)"
            R"("stages":[{"stage":0,"rank":2,"host":"alpha","pid":100,"first_layer":0,"last_layer":3,"threads":2,)"
            R"("cpus":[0,1],"isa":"avx2","weight_bytes":1000,"kv_bytes":2000,"scratch_bytes":300,)"
            R"("resident_bytes":4500,"up":true,"heartbeat_age_ms":400.0,"busy_s":8.0,"wait_s":2.0,"send_s":0.5},)"
            R"({"stage":1,"rank":1,"host":"be\"ta\\","pid":101,"first_layer":4,"last_layer":7,"threads":2,)"
            R"("cpus":[2,3],"isa":"avx2","weight_bytes":1000,"kv_bytes":2000,"scratch_bytes":300,)"
            R"("resident_bytes":4500,"up":false,"heartbeat_age_ms":5000.0,"busy_s":7.0,"wait_s":3.0,"send_s":0.5}],)"
            R"("hops":[{"from":0,"to":1,"us":250,"bytes":5000},)"
            R"({"from":1,"to":"coordinator","us":250,"bytes":5000}]})");
}

TEST(ClusterJson, BeforeTheFirstJobThereIsOnlyItsProgress) {
  SessionStatus status;
  status.progress.set_bytes_loaded(5);
  status.progress.set_bytes_to_load(10);
  status.unfinished = 2;
  EXPECT_EQ(
      CompactJson(ClusterJson(status, {.model = "m"})),
      R"({"state":"loading","model":{"name":"m","context":null,"bf16_dot":null},)"
      R"("load":{"bytes_loaded":5,"bytes_to_load":10},"relaunches":0,"losses":[],)"
      R"("requests":{"waiting":2,"running":0,"unfinished":2},"micro_batches_in_flight":0,"preemptions":0,)"
      R"("bubble":{"now":0.0,"minute":0.0,"floor":0.0},"kv":{"block_tokens":0,"groups":[]},"stages":[],"hops":[]})");
}

TEST(ClusterJson, WhileAJobIsLostItsStagesAreDownAndTheirSumsStay) {
  SessionStatus status = SampleStatus();
  status.state = SessionStatus::State::kRecovering;
  status.job_ready = false;
  status.engine.Clear();
  status.losses.push_back({.number = 2, .what = "mpirun ended with exit code 1", .at_us = 9});
  const Json json = ClusterJson(status, {});
  EXPECT_EQ(json["state"], "recovering");
  EXPECT_TRUE(json["load"].is_object());
  EXPECT_TRUE(json["losses"][1]["stage"].is_null());
  EXPECT_TRUE(json["losses"][1]["host"].is_null());
  EXPECT_TRUE(json["losses"][1]["recovery_s"].is_null());
  EXPECT_EQ(json["stages"].size(), 2u);
  EXPECT_EQ(json["stages"][0]["up"], false);
  EXPECT_TRUE(json["stages"][0]["heartbeat_age_ms"].is_null());
  EXPECT_EQ(json["stages"][0]["busy_s"], 8.0);
  EXPECT_TRUE(json["hops"][0]["us"].is_null());
}

TEST(ClusterJson, AStageOfAJobThatHasJustBegunIsUp) {
  SessionStatus status = SampleStatus();
  status.engine.Clear();
  EXPECT_TRUE(StageUp(status, 1));
  EXPECT_EQ(ClusterJson(status, {})["stages"][1]["up"], true);
}

TEST(ClusterJson, SurvivesHostsThatAreNoUtf8) {
  SessionStatus status = SampleStatus();
  status.ready.mutable_stages(0)->set_host("a\xff");
  EXPECT_THAT(CompactJson(ClusterJson(status, {})), HasSubstr("a\xef\xbf\xbd"));
}

}  // namespace
}  // namespace stagecoach
