#include <string>
#include <vector>

#include "common/host/host_info.h"
#include "coordinator/plan/job_plan.h"
#include "tests/testing/matchers.h"

namespace stagecoach {
namespace {

std::vector<int> Range(int count) {
  std::vector<int> cpus;
  for (int i = 0; i < count; ++i) cpus.push_back(i);
  return cpus;
}

// A stage on a made-up machine. quota: 0: none.
pb::Hello RankOn(const std::string& host, const std::string& machine, const std::vector<int>& allowed, int quota = 0) {
  pb::Hello hello;
  hello.set_host(host);
  const auto places = SyntheticCpuPlaces(machine, allowed).value();
  for (const CpuPlace& place : places) {
    pb::CpuPlace* out = hello.add_cpus();
    out->set_cpu(place.cpu);
    out->set_core(place.core);
    out->set_node(place.node);
  }
  hello.set_allowed_cores(quota > 0 ? quota : hello.cpus_size());
  return hello;
}

std::vector<pb::Hello> Stages(int count, const std::string& machine, int cpus, int quota = 0) {
  return std::vector<pb::Hello>(static_cast<size_t>(count), RankOn("node", machine, Range(cpus), quota));
}

using Sets = std::vector<std::vector<int32_t>>;

// Where each stage computes; an empty set: anywhere.
Sets CpusOf(const std::vector<pb::Hello>& stages, int threads = 0) {
  Sets sets;
  for (const StageCpus& stage : PlanCpus(stages, threads, /*bind=*/true)) sets.push_back(stage.cpus);
  return sets;
}

std::vector<int> ThreadsOf(const std::vector<pb::Hello>& stages, int threads = 0) {
  std::vector<int> numbers;
  for (const StageCpus& stage : PlanCpus(stages, threads, /*bind=*/true)) numbers.push_back(stage.threads);
  return numbers;
}

TEST(CpuPlan, CutsTheCoresIntoRunsOfNeighboursWithOneThreadEach) {
  const auto stages = Stages(2, "numa:2 core:4 pu:1", 8);
  EXPECT_THAT(ThreadsOf(stages), ElementsAre(4, 4));
  EXPECT_EQ(CpusOf(stages), (Sets{{0, 1, 2, 3}, {4, 5, 6, 7}}));
}

TEST(CpuPlan, KeepsAStageOnOneNumaNodeHoweverTheKernelCountsItsCpus) {
  // Nodes whose CPUs alternate: 0 2 4 6 on the first, 1 3 5 7 on the second.
  EXPECT_EQ(CpusOf(Stages(2, "numa:2 core:4 pu:1(indexes=0,2,4,6,1,3,5,7)", 8)), (Sets{{0, 2, 4, 6}, {1, 3, 5, 7}}));
}

TEST(CpuPlan, UsesOneHardwareThreadOfACoreAndTheSecondOnesOnlyOnDemand) {
  const auto stages = Stages(2, "core:4 pu:2", 8);
  EXPECT_THAT(ThreadsOf(stages), ElementsAre(2, 2));
  EXPECT_EQ(CpusOf(stages), (Sets{{0, 2}, {4, 6}}));
  EXPECT_EQ(CpusOf(stages, 4), (Sets{{0, 2, 1, 3}, {4, 6, 5, 7}}));
  EXPECT_EQ(CpusOf(stages, 3)[1], (Sets{{4, 6, 5}})[0]);
}

TEST(CpuPlan, FewerThreadsThanCoresShareTheirRun) {
  const auto stages = Stages(3, "core:8 pu:1", 8);
  EXPECT_THAT(ThreadsOf(stages), ElementsAre(2, 2, 2));
  EXPECT_EQ(CpusOf(stages), (Sets{{0, 1}, {2, 3, 4}, {5, 6, 7}}));
}

TEST(CpuPlan, BindsNothingWithMoreThreadsThanCpus) {
  EXPECT_THAT(ThreadsOf(Stages(2, "core:4 pu:1", 4), 3), ElementsAre(3, 3));
  EXPECT_EQ(CpusOf(Stages(2, "core:4 pu:1", 4), 3), Sets(2));
  EXPECT_THAT(ThreadsOf(Stages(3, "core:2 pu:1", 2)), ElementsAre(1, 1, 1));
  EXPECT_EQ(CpusOf(Stages(3, "core:2 pu:1", 2)), Sets(3));
}

TEST(CpuPlan, TiesNoLoneThreadToOneCpu) {
  EXPECT_THAT(ThreadsOf(Stages(2, "core:2 pu:1", 2)), ElementsAre(1, 1));
  EXPECT_EQ(CpusOf(Stages(2, "core:2 pu:1", 2)), Sets(2));
  EXPECT_EQ(CpusOf(Stages(2, "core:2 pu:2", 4)), (Sets{{0, 1}, {2, 3}}));
  EXPECT_EQ(CpusOf(Stages(2, "core:4 pu:1", 4), 1), (Sets{{0, 1}, {2, 3}}));
}

TEST(CpuPlan, BindsNothingWhenTheUserSaysSo) {
  for (const auto& stage : PlanCpus(Stages(2, "core:4 pu:1", 4), 0, false)) {
    EXPECT_EQ(stage.threads, 2);
    EXPECT_THAT(stage.cpus, IsEmpty());
  }
}

TEST(CpuPlan, DividesAQuotaAmongStagesThatTheLauncherGaveDifferentCpus) {
  const std::vector<int> first = {0, 1, 2, 3, 4, 5, 6, 7}, second = {8, 9, 10, 11, 12, 13, 14, 15};
  EXPECT_THAT(ThreadsOf({RankOn("node", "numa:2 core:8 pu:1", first, /*quota=*/6),
                         RankOn("node", "numa:2 core:8 pu:1", second, /*quota=*/6)}),
              ElementsAre(3, 3));
}

TEST(CpuPlan, BindsNothingUnderAQuotaAndCountsItsCores) {
  const auto stages = Stages(2, "core:16 pu:2", 32, /*quota=*/8);
  EXPECT_THAT(ThreadsOf(stages), ElementsAre(4, 4));
  EXPECT_EQ(CpusOf(stages), Sets(2));
}

TEST(CpuPlan, LeavesStagesWhereTheLauncherPutThem) {
  const std::vector<pb::Hello> stages = {RankOn("node", "core:8 pu:1", {0, 1, 2, 3}),
                                         RankOn("node", "core:8 pu:1", {4, 5, 6, 7})};
  EXPECT_THAT(ThreadsOf(stages), ElementsAre(4, 4)) << "each has its set for itself";
  EXPECT_EQ(CpusOf(stages), Sets(2));
}

TEST(CpuPlan, SetsThatOverlapAreSharedButNotBound) {
  const std::vector<pb::Hello> stages = {RankOn("node", "core:8 pu:1", {0, 1, 2, 3, 4, 5}),
                                         RankOn("node", "core:8 pu:1", {4, 5, 6, 7})};
  EXPECT_THAT(ThreadsOf(stages), ElementsAre(3, 2));
  EXPECT_EQ(CpusOf(stages), Sets(2));
}

TEST(CpuPlan, ALoneStageOnOneNumaNodeIsBoundOnlyWhenItFillsTheCores) {
  EXPECT_EQ(CpusOf(Stages(1, "core:2 pu:2", 4)), (Sets{{0, 2}}));
  EXPECT_EQ(CpusOf(Stages(1, "core:2 pu:2", 4), 1), Sets(1));
}

TEST(CpuPlan, ALoneStageWithFewerThreadsThanCoresIsBoundToAsFewNumaNodesAsHoldIt) {
  const auto cpus_of = [](const std::string& machine, int cpus, int threads) {
    return CpusOf(Stages(1, machine, cpus), threads)[0];
  };
  const std::string two = "numa:2 core:4 pu:1", four = "numa:4 core:2 pu:2";
  EXPECT_THAT(cpus_of(two, 8, 1), ElementsAre(0, 1, 2, 3)) << "a lone thread is not tied to one CPU";
  EXPECT_THAT(cpus_of(two, 8, 3), ElementsAre(0, 1, 2, 3)) << "three share a node of four";
  EXPECT_THAT(cpus_of(two, 8, 4), ElementsAre(0, 1, 2, 3)) << "a core for each";
  EXPECT_THAT(cpus_of(two, 8, 5), IsEmpty()) << "it takes both nodes anyway";
  EXPECT_THAT(cpus_of(two, 8, 8), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_THAT(cpus_of(four, 16, 2), ElementsAre(0, 2)) << "one hardware thread of a core for each";
  EXPECT_THAT(cpus_of(four, 16, 3), ElementsAre(0, 2, 4, 6, 1, 3, 5, 7)) << "three share two nodes of two cores";
  EXPECT_THAT(cpus_of(four, 16, 7), IsEmpty());
  EXPECT_THAT(cpus_of("numa:2 core:4 pu:1(indexes=0,2,4,6,1,3,5,7)", 8, 4), ElementsAre(0, 2, 4, 6));
  EXPECT_THAT(cpus_of("numa:3 core:1 pu:1", 3, 1), IsEmpty()) << "a node of one CPU";
}

TEST(CpuPlan, ALoneStageTakesTheLargestOfTheNodesThatItsAffinityLeaves) {
  EXPECT_EQ(CpusOf({RankOn("node", "numa:3 core:4 pu:1", {0, 1, 4, 5, 6, 8, 9})}, 3), (Sets{{4, 5, 6}}));
}

TEST(CpuPlan, ALoneStageUnderAQuotaIsNotBoundToANode) {
  EXPECT_EQ(CpusOf(Stages(1, "numa:2 core:4 pu:1", 8, /*quota=*/3)), Sets(1));
}

std::vector<bool> Contended(const std::vector<pb::Hello>& stages, int threads, bool bind) {
  std::vector<bool> contended;
  for (const StageCpus& stage : PlanCpus(stages, threads, bind)) contended.push_back(stage.contended);
  return contended;
}

TEST(CpuPlan, StagesWithMoreThreadsThanCpusTogetherAreContended) {
  EXPECT_THAT(Contended(Stages(2, "core:4 pu:1", 4), 3, true), ElementsAre(true, true));
  EXPECT_THAT(Contended(Stages(2, "core:4 pu:1", 4), 3, false), ElementsAre(true, true));
  EXPECT_THAT(Contended(Stages(3, "core:2 pu:1", 2), 0, true), ElementsAre(true, true, true));
  EXPECT_THAT(Contended(Stages(1, "core:2 pu:1", 2), 3, true), ElementsAre(true));
}

TEST(CpuPlan, StagesThatFitAreNotContended) {
  EXPECT_THAT(Contended(Stages(2, "core:4 pu:1", 4), 2, true), ElementsAre(false, false)) << "bound apart";
  EXPECT_THAT(Contended(Stages(2, "core:4 pu:1", 4), 2, false), ElementsAre(false, false)) << "a CPU for each thread";
  EXPECT_THAT(Contended(Stages(2, "core:2 pu:2", 4), 2, false), ElementsAre(false, false)) << "hardware threads count";
  EXPECT_THAT(Contended(Stages(1, "core:8 pu:1", 8), 3, true), ElementsAre(false));
}

TEST(CpuPlan, OnlyStagesThatShareCpusContend) {
  const pb::Hello first = RankOn("node", "core:8 pu:1", {0, 1, 2, 3});
  const pb::Hello second = RankOn("node", "core:8 pu:1", {4, 5, 6, 7});
  const pb::Hello both = RankOn("node", "core:8 pu:1", {2, 3, 4, 5});
  const pb::Hello elsewhere = RankOn("other", "core:8 pu:1", {0, 1, 2, 3});
  EXPECT_THAT(Contended({first, second}, 4, true), ElementsAre(false, false));
  EXPECT_THAT(Contended({first, elsewhere}, 4, true), ElementsAre(false, false));
  EXPECT_THAT(Contended({first, second, both}, 3, true), ElementsAre(false, false, true))
      << "six threads on the six CPUs of the first and the third, nine on the eight of all";
}

TEST(CpuPlan, AQuotaIsContendedByAllThreadsOfTheHost) {
  EXPECT_THAT(Contended(Stages(2, "core:16 pu:2", 32, /*quota=*/8), 0, true), ElementsAre(false, false));
  EXPECT_THAT(Contended(Stages(2, "core:16 pu:2", 32, /*quota=*/8), 5, true), ElementsAre(true, true));
}

TEST(CpuPlan, ARankThatKnowsNoCoresSharesWhatItMayUseAndIsContendedByMoreThreadsThanThat) {
  std::vector<pb::Hello> stages(2);
  for (pb::Hello& hello : stages) hello.set_allowed_cores(6);
  EXPECT_THAT(ThreadsOf(stages), ElementsAre(3, 3));
  EXPECT_EQ(CpusOf(stages), Sets(2));
  EXPECT_THAT(Contended(stages, 3, true), ElementsAre(false, false));
  EXPECT_THAT(Contended(stages, 4, true), ElementsAre(true, true));
}

TEST(CpuPlan, HostsAreCountedApart) {
  EXPECT_EQ(CpusOf({RankOn("a", "core:4 pu:1", Range(4)), RankOn("b", "core:3 pu:1", Range(3)),
                    RankOn("a", "core:4 pu:1", Range(4))}),
            (Sets{{0, 1}, {0, 1, 2}, {2, 3}}));
}

}  // namespace
}  // namespace stagecoach
