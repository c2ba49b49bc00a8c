#include "coordinator/plan/probe_plan.h"

#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace stagecoach {
namespace {

using ::testing::ElementsAre;

using Rounds = std::vector<std::vector<int>>;

TEST(ProbePlan, GroupsStagesByHostInTheOrderOfTheFirstOnes) {
  EXPECT_THAT(GroupByHost({"b", "a", "b"}), ElementsAre(HostStages{"b", {0, 2}}, HostStages{"a", {1}}));
  EXPECT_TRUE(GroupByHost({}).empty());
}

TEST(ProbePlan, MeasuresLinksAtOnceThatShareNoHost) {
  EXPECT_EQ(LinkRounds({"a"}), Rounds());
  EXPECT_EQ(LinkRounds({"a", "b"}), (Rounds{{0}}));
  EXPECT_EQ(LinkRounds({"a", "b", "c", "d", "e"}), (Rounds{{0, 2}, {1, 3}}));
  EXPECT_EQ(LinkRounds({"a", "a", "b", "b"}), (Rounds{{0, 2}, {1}}));
  EXPECT_EQ(LinkRounds({"a", "a", "a"}), (Rounds{{0}, {1}}));
  EXPECT_EQ(LinkRounds({"a", "b", "a", "b"}), (Rounds{{0}, {1}, {2}}));
}

TEST(ProbePlan, MeasuresEveryLinkOnceHoweverHostsAreMixed) {
  for (int hosts = 1; hosts <= 5; ++hosts) {
    std::vector<std::string> names;
    for (int stage = 0; stage < 17; ++stage) names.push_back(std::to_string(stage * stage % 7 % hosts));
    std::set<int> seen;
    for (const std::vector<int>& round : LinkRounds(names)) {
      std::set<std::string> taken;
      for (const int stage : round) {
        EXPECT_TRUE(seen.insert(stage).second);
        const std::set<std::string> ends = {names[stage], names[stage + 1]};
        for (const std::string& end : ends) EXPECT_TRUE(taken.insert(end).second);
      }
    }
    EXPECT_EQ(seen.size(), 16u);
  }
}

TEST(ProbePlan, MeasuresOneProcessThenMoreAndMore) {
  EXPECT_THAT(SpeedRuns(6, 3, 3), ElementsAre(SpeedRun{1, 3}, SpeedRun{2, 3}, SpeedRun{4, 3}, SpeedRun{6, 3}));
  EXPECT_THAT(SpeedRuns(8, 3, 3), ElementsAre(SpeedRun{1, 3}, SpeedRun{2, 3}, SpeedRun{4, 3}, SpeedRun{8, 3}));
  EXPECT_THAT(SpeedRuns(2, 1, 2), ElementsAre(SpeedRun{1, 1}, SpeedRun{1, 2}, SpeedRun{2, 1}));
  EXPECT_THAT(SpeedRuns(1, 4, 4), ElementsAre(SpeedRun{1, 4}));
}

pb::Hello Hello(const std::string& host, int cores) {
  pb::Hello hello;
  hello.set_host(host);
  hello.set_allowed_cores(cores);
  hello.set_available_memory_bytes(1 << 30);
  hello.add_isas(pb::INSTRUCTION_SET_SCALAR);
  hello.add_isas(pb::INSTRUCTION_SET_AVX2);
  return hello;
}

TEST(ProbePlan, MakesAProfileOfAReport) {
  pb::ProbeReport report;
  *report.add_hellos() = Hello("front", 1);
  *report.add_hellos() = Hello("node", 4);
  *report.add_hellos() = Hello("node", 4);
  report.mutable_coordinator()->set_memory_bytes(7);
  for (int stage = 0; stage < 2; ++stage) {
    pb::ProbedStage* probed = report.add_stages();
    probed->set_stage(stage);
    probed->set_rank(2 - stage);
    probed->set_threads(2);
    probed->mutable_host()->set_memory_bytes(5);
  }
  pb::ProbeStepTime* step = report.mutable_stages(0)->mutable_model()->add_steps();
  step->set_rows(1);
  step->set_sequences(1);
  step->set_layer_us(9);
  report.mutable_stages(0)->mutable_model()->set_layer(4);
  pb::ProbedHost* host = report.add_hosts();
  host->set_host("node");
  for (const int stages : {2, 1}) {
    host->add_speeds()->set_stages(stages);
    host->mutable_speeds()->rbegin()->set_read_gbps(10 * stages);
  }
  for (const int from : {-1, 0}) {
    pb::ProbeLink* link = report.add_links();
    link->set_from_stage(from);
    link->set_to_stage(from + 1);
    link->set_latency_us(2);
    link->set_bytes_per_s(1e9);
    link->set_clock_offset_us(from < 0 ? 3 : 77);
  }
  pb::ProbeLink* broken = report.add_links();
  broken->set_from_stage(-1);
  broken->set_to_stage(1);
  broken->set_error("no frame came back");

  EXPECT_EQ(
      ProfileOf(report, "now", std::nullopt, {.isa = InstructionSet::kScalar, .bf16_dot = std::nullopt}).hosts[0].isa,
      "scalar");
  const HostProfile profile = ProfileOf(report, "now", ProbedModel{.name = "m"});
  EXPECT_EQ(profile.hosts[0].isa, "avx2") << "the best, as a job would choose it";
  EXPECT_EQ(profile.hosts[1].isa, "") << "nothing was measured there";
  ASSERT_EQ(profile.hosts.size(), 2u);
  EXPECT_EQ(profile.hosts[0].name, "node");
  EXPECT_EQ(profile.hosts[0].slots, 2);
  EXPECT_EQ(profile.hosts[0].memory_bytes, 5u);
  EXPECT_THAT(profile.hosts[0].isas, ElementsAre("avx2", "scalar"));
  ASSERT_EQ(profile.hosts[0].speeds.size(), 2u);
  EXPECT_EQ(profile.hosts[0].speeds[0].stages, 1);
  EXPECT_EQ(profile.hosts[0].speeds[1].read_gbps, 20);
  EXPECT_EQ(profile.coordinator, 1);
  EXPECT_EQ(profile.hosts[1].slots, 0);
  EXPECT_EQ(profile.hosts[1].memory_bytes, 7u);
  ASSERT_EQ(profile.stages.size(), 2u);
  EXPECT_EQ(profile.stages[0].rank, 2);
  EXPECT_EQ(profile.stages[0].clock_offset_us, 3);
  ASSERT_EQ(profile.links.size(), 2u);
  EXPECT_EQ(profile.links[0].from, 1);
  EXPECT_EQ(profile.links[0].to, 0);
  EXPECT_EQ(profile.links[0].bandwidth_gbit_s, 8);
  EXPECT_EQ(profile.links[1].from_stage, 0);
  ASSERT_TRUE(profile.model.has_value());
  EXPECT_EQ(profile.model->layer, 4);
}

}  // namespace
}  // namespace stagecoach
