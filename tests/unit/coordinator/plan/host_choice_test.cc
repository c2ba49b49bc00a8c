#include "coordinator/plan/choice/host_choice.h"

#include <algorithm>
#include <functional>
#include <random>
#include <set>

#include "tests/testing/matchers.h"
#include "tests/testing/sanitizers.h"
#include "tests/unit/coordinator/plan/plan_inputs.h"

namespace stagecoach {
namespace {

ClusterQuestion Hosts(const std::vector<double>& slower, const std::string& model = "qwen3-0.6b/q8_0") {
  ClusterQuestion question = Question(static_cast<int>(slower.size()), model);
  for (size_t i = 0; i < slower.size(); ++i) Slow(slower[i], &question.profile.hosts[i]);
  question.job.set_max_num_seqs(32);
  return question;
}

HostChoice Chosen(const ClusterQuestion& question, const ChoiceRules& rules = {}) {
  return ChooseHosts(question, rules).value();
}

std::vector<std::vector<int>> JobsOf(const HostChoice& choice) {
  std::vector<std::vector<int>> jobs;
  for (const ChosenJob& job : choice.jobs) jobs.push_back(job.question.stage_hosts);
  return jobs;
}

// The smaller the better; less of the sequences at once is worse than any speed where speed is that of a sequence.
double Badness(PlanGoal goal, const ChoiceFigures& figures) {
  if (goal == PlanGoal::kThroughput) return -figures.output_tokens_per_s;
  return (goal == PlanGoal::kLatency ? figures.itl_s : figures.ttft_s) - 1e6 * static_cast<double>(figures.sequences);
}

ChoiceFigures FiguresOf(const std::vector<ClusterPlan>& plans) {
  ChoiceFigures all;
  for (const ClusterPlan& plan : plans) {
    all.output_tokens_per_s += plan.output_tokens_per_s;
    all.sequences += plan.sequences;
    all.itl_s += static_cast<double>(plan.sequences) * plan.decode.itl_s;
    all.ttft_s += static_cast<double>(plan.sequences) * plan.prefill.ttft_s;
  }
  all.itl_s /= static_cast<double>(all.sequences);
  all.ttft_s /= static_cast<double>(all.sequences);
  return all;
}

// Every ordered list of some of the hosts; those of the same kinds once. `kinds`: of each host.
void ForEachOrder(const std::vector<int>& kinds, const std::function<void(const std::vector<int>&)>& visit) {
  std::vector<int> order;
  std::vector<bool> used(kinds.size(), false);
  const std::function<void()> add = [&] {
    if (!order.empty()) visit(order);
    std::set<int> tried;
    for (size_t host = 0; host < kinds.size(); ++host) {
      if (used[host] || !tried.insert(kinds[host]).second) continue;
      used[host] = true;
      order.push_back(static_cast<int>(host));
      add();
      order.pop_back();
      used[host] = false;
    }
  };
  add();
}

constexpr PlanGoal kGoals[] = {PlanGoal::kThroughput, PlanGoal::kLatency, PlanGoal::kFirstToken};

// Holds the one job that is chosen against every ordered list of the hosts.
void ExpectNoListIsBetter(const ClusterQuestion& question, const std::vector<int>& kinds) {
  double least[3] = {1e300, 1e300, 1e300};
  ForEachOrder(kinds, [&](const std::vector<int>& order) {
    ClusterQuestion job = question;
    job.stage_hosts = order;
    const absl::StatusOr<ClusterPlan> plan = PlanCluster(job);
    if (!plan.ok()) return;
    for (size_t goal = 0; goal < 3; ++goal) {
      least[goal] = std::min(least[goal], Badness(kGoals[goal], FiguresOf({*plan})));
    }
  });
  for (size_t goal = 0; goal < 3; ++goal) {
    const absl::StatusOr<HostChoice> choice = ChooseHosts(question, {.goal = kGoals[goal], .most_jobs = 1});
    ASSERT_TRUE(choice.ok()) << choice.status();
    EXPECT_TRUE(choice->exact);
    ASSERT_EQ(choice->jobs.size(), 1u);
    EXPECT_NEAR(Badness(kGoals[goal], choice->figures), least[goal], 1e-6 * std::abs(least[goal]))
        << NameOf(kPlanGoals, kGoals[goal]);
  }
}

TEST(HostChoice, NoOtherHostsAndNoOtherOrderAreBetter) {
  std::mt19937 random(1);
  const auto draw = [&](double low, double high) { return std::uniform_real_distribution<>(low, high)(random); };
  for (int round = 0; round < (testing::kSlow ? 1 : 8); ++round) {
    ClusterQuestion question = Hosts({1, draw(1, 3), draw(1, 8), draw(1, 8)});
    question.job.set_max_num_seqs(round % 2 == 0 ? 4 : 32);
    for (HostFacts& host : question.profile.hosts) {
      host.available_bytes = round < 4 ? 16 * kGiB : static_cast<uint64_t>(draw(0.3, 1.5) * kGiB);
    }
    question.profile.default_link->bandwidth_gbit_s = round % 3 == 0 ? 0.1 : 10;
    if (round >= 6) {
      for (int from = 0; from < 4; ++from) {
        LinkFacts link = AssumedLink();
        link.from = from;
        link.to = (from + 1) % 4;
        link.bandwidth_gbit_s = draw(0.05, 1);
        question.profile.links.push_back(link);
      }
    }
    SCOPED_TRACE(round);
    ExpectNoListIsBetter(question, {0, 1, 2, 3});
  }
}

TEST(HostChoice, NorOfSevenHostsOfTwoKinds) {
  ExpectNoListIsBetter(Hosts({1, 1, 1, 1, 4, 4, 4}), {0, 0, 0, 0, 1, 1, 1});
  if (testing::kSlow) return;
  ClusterQuestion slow_links = Hosts({1, 1, 1, 1.5, 1.5, 1.5, 1.5});
  slow_links.profile.default_link->bandwidth_gbit_s = 0.1;
  ExpectNoListIsBetter(slow_links, {0, 0, 0, 1, 1, 1, 1});
}

// Layers of two kinds, of which one host is good at one and another at the other.
TEST(HostChoice, NorWhereLayersDiffer) {
  ClusterQuestion question = Hosts({1, 1, 1}, "deepseek-v3:layers=6/q4_k");
  question.job.set_max_num_seqs(128);
  question.profile.hosts[0].speeds[0].read_gbps *= 4;
  question.profile.hosts[1].speeds[0].int8_gops *= 6;
  question.profile.hosts[2].speeds[0].f32_gops /= 4;
  for (HostFacts& host : question.profile.hosts) host.available_bytes = 256 * kGiB;
  ExpectNoListIsBetter(question, {0, 1, 2});
}

// Every way to make jobs of some of the hosts, each in any order.
void ForEachJobs(size_t host, std::vector<std::vector<int>>* jobs,
                 const std::function<void(const std::vector<std::vector<int>>&)>& visit, size_t hosts) {
  if (host == hosts) {
    if (!jobs->empty()) visit(*jobs);
    return;
  }
  ForEachJobs(host + 1, jobs, visit, hosts);
  for (size_t job = 0; job <= jobs->size(); ++job) {
    if (job == jobs->size()) jobs->emplace_back();
    for (size_t place = 0; place <= (*jobs)[job].size(); ++place) {
      (*jobs)[job].insert((*jobs)[job].begin() + static_cast<std::ptrdiff_t>(place), static_cast<int>(host));
      ForEachJobs(host + 1, jobs, visit, hosts);
      (*jobs)[job].erase((*jobs)[job].begin() + static_cast<std::ptrdiff_t>(place));
    }
    if ((*jobs)[job].empty()) {
      jobs->pop_back();
      break;
    }
  }
}

double RateAlone(ClusterQuestion question, int host) {
  question.stage_hosts = {host};
  question.profile.hosts[static_cast<size_t>(host)].available_bytes = 4096 * kGiB;
  return Plan(question).output_tokens_per_s;
}

TEST(HostChoice, NoOtherJobsAreBetter) {
  std::mt19937 random(2);
  const auto draw = [&](double low, double high) { return std::uniform_real_distribution<>(low, high)(random); };
  for (int round = 0; round < (testing::kSlow ? 1 : 4); ++round) {
    ClusterQuestion question = Hosts({1, draw(1, 3), draw(1, 8), draw(1, 2)});
    question.job.set_max_num_seqs(round % 2 == 0 ? 3 : 16);
    for (HostFacts& host : question.profile.hosts) {
      if (round >= 2) host.available_bytes = static_cast<uint64_t>(draw(0.5, 3) * kGiB);
    }
    double least[3] = {1e300, 1e300, 1e300};
    std::vector<std::vector<int>> none;
    const auto consider = [&](const std::vector<std::vector<int>>& jobs) {
      std::vector<double> rates;
      for (const std::vector<int>& hosts : jobs) {
        rates.push_back(0);
        for (const int host : hosts) rates.back() += RateAlone(question, host);
      }
      const std::vector<int64_t> shares = ShareSequences(question.job.max_num_seqs(), rates);
      std::vector<ClusterPlan> plans;
      for (size_t job = 0; job < shares.size(); ++job) {
        ClusterQuestion of_job = question;
        of_job.stage_hosts = jobs[job];
        of_job.job.set_max_num_seqs(static_cast<int32_t>(shares[job]));
        absl::StatusOr<ClusterPlan> plan = PlanCluster(of_job);
        if (!plan.ok()) return;
        plans.push_back(*std::move(plan));
      }
      if (plans.empty()) return;
      for (size_t goal = 0; goal < 3; ++goal) {
        least[goal] = std::min(least[goal], Badness(kGoals[goal], FiguresOf(plans)));
      }
    };
    ForEachJobs(0, &none, consider, 4);
    for (size_t goal = 0; goal < 3; ++goal) {
      const HostChoice choice = Chosen(question, {.goal = kGoals[goal]});
      EXPECT_TRUE(choice.exact);
      EXPECT_NEAR(Badness(kGoals[goal], choice.figures), least[goal], 1e-6 * std::abs(least[goal]))
          << round << NameOf(kPlanGoals, kGoals[goal]);
    }
  }
}

TEST(HostChoice, LeavesOutWhatSlowsItDownAndSaysWhatThatWouldCost) {
  const HostChoice choice = Chosen(Hosts({1, 8, 1, 8}, "qwen3-8b/q8_0"), {.most_jobs = 1});
  ASSERT_EQ(choice.jobs.size(), 1u);
  EXPECT_THAT(JobsOf(choice)[0], UnorderedElementsAre(0, 2));
  ASSERT_EQ(choice.left_out.size(), 1u);
  EXPECT_THAT(choice.left_out[0].hosts, ElementsAre(1, 3));
  EXPECT_GT(choice.left_out[0].with_one.output_tokens_per_s, 0);
  EXPECT_LT(choice.left_out[0].with_one.output_tokens_per_s, choice.figures.output_tokens_per_s);
}

TEST(HostChoice, AModelThatFitsOneHostRunsFasterAsIndependentJobsAndOneThatFitsNoneAsOne) {
  ClusterQuestion question = Question(2);
  const HostChoice choice = Chosen(question);
  EXPECT_THAT(JobsOf(choice), UnorderedElementsAre(ElementsAre(0), ElementsAre(1)));
  EXPECT_EQ(choice.jobs[0].question.job.max_num_seqs(), 4);
  EXPECT_GT(choice.figures.output_tokens_per_s, Plan(question).output_tokens_per_s);
  EXPECT_GT(choice.figures.output_tokens_per_s, choice.alone.output_tokens_per_s);
  for (HostFacts& host : question.profile.hosts) host.available_bytes = 600 * kMiB;
  const HostChoice small = Chosen(question);
  EXPECT_EQ(small.jobs.size(), 1u);
  EXPECT_EQ(small.alone.sequences, 0) << "none holds it";
}

TEST(HostChoice, HostsThatAreTooSmallAloneAreLeftOutWhereLinksAreSlow) {
  ClusterQuestion question = Question(3);
  question.profile.hosts[1].available_bytes = 400 * kMiB;
  question.profile.default_link->bandwidth_gbit_s = 0.01;
  const HostChoice choice = Chosen(question);
  EXPECT_THAT(JobsOf(choice), UnorderedElementsAre(ElementsAre(0), ElementsAre(2)));
  EXPECT_GT(choice.figures.output_tokens_per_s, Plan(question).output_tokens_per_s);
}

TEST(HostChoice, JobsOnUnequalHostsGetSequencesInProportion) {
  ClusterQuestion question = Hosts({1, 3});
  question.profile.default_link->bandwidth_gbit_s = 0.01;
  const HostChoice choice = Chosen(question);
  ASSERT_THAT(JobsOf(choice), ElementsAre(ElementsAre(0), ElementsAre(1)));
  EXPECT_EQ(choice.jobs[0].question.job.max_num_seqs(), 24);
  EXPECT_EQ(choice.jobs[1].question.job.max_num_seqs(), 8);
}

TEST(HostChoice, SharesAddUpAndNobodyHasNone) {
  EXPECT_THAT(ShareSequences(8, {1, 1, 1}), ElementsAre(2, 3, 3));
  EXPECT_THAT(ShareSequences(4, {100, 1, 1}), ElementsAre(2, 1, 1));
  EXPECT_THAT(ShareSequences(10, {2.5, 2.5, 5}), ElementsAre(2, 3, 5));
  EXPECT_THAT(ShareSequences(2, {1, 1, 1}), IsEmpty());
}

TEST(HostChoice, MoreHostsThanLayersAreLeftOut) {
  const HostChoice choice = Chosen(Hosts(std::vector<double>(31, 1.0)), {.most_jobs = 1});
  EXPECT_FALSE(choice.exact);
  ASSERT_EQ(choice.jobs.size(), 1u);
  EXPECT_LE(choice.jobs[0].plan.stages(), 28);
  EXPECT_GE(choice.left_out.size(), 1u);
}

TEST(HostChoice, AsManyStagesAsAreAskedFor) {
  const HostChoice choice = Chosen(Hosts({4, 1, 4, 1, 1}), {.stages = 3});
  ASSERT_EQ(choice.jobs.size(), 1u);
  EXPECT_THAT(JobsOf(choice)[0], UnorderedElementsAre(1, 3, 4));
}

// Gives every two hosts a link of their own.
void NameLinks(ClusterQuestion* question, double gbit_s) {
  for (int from = 0; from < static_cast<int>(question->stage_hosts.size()); ++from) {
    for (int to = 0; to < from; ++to) {
      LinkFacts link = AssumedLink();
      link.from = from;
      link.to = to;
      link.bandwidth_gbit_s = gbit_s;
      question->profile.links.push_back(link);
    }
  }
}

TEST(HostChoice, LinksThatAreNamedOrShareUplinksDoNotHideTheSlowHosts) {
  ClusterQuestion named = Hosts({1, 1, 1, 1, 10, 10, 10}, "qwen3-8b/q8_0");
  ClusterQuestion racks = named;
  NameLinks(&named, 10);
  racks.profile.uplinks = {{.name = "one", .bandwidth_gbit_s = 10, .hosts = {0, 2, 4, 6}},
                           {.name = "two", .bandwidth_gbit_s = 10, .hosts = {1, 3, 5}}};
  for (const ClusterQuestion& question : {named, racks}) {
    if (testing::kSlow && !question.profile.uplinks.empty()) continue;
    const HostChoice choice = Chosen(question, {.most_jobs = 1});
    EXPECT_THAT(JobsOf(choice)[0], UnorderedElementsAre(0, 1, 2, 3));
  }
}

TEST(HostChoice, OfManyHostsTheOneBehindABadLinkIsLeftOut) {
  ClusterQuestion question = Hosts(std::vector<double>(9, 1), "qwen3-8b/q8_0");
  for (int other = 0; other < 8; ++other) {
    LinkFacts link = AssumedLink();
    link.from = 8;
    link.to = other;
    link.bandwidth_gbit_s = 0.01;
    question.profile.links.push_back(link);
  }
  for (const bool all_named : {false, true}) {
    if (all_named) NameLinks(&question, 10);  // of two links for one pair the worse one counts
    const HostChoice choice = Chosen(question, {.most_jobs = 1});
    EXPECT_THAT(JobsOf(choice)[0], Not(Contains(8)));
    EXPECT_GE(JobsOf(choice)[0].size(), 7u);
  }
}

TEST(HostChoice, HostsThatAreNearlyAlikeArePlannedAsTheyAre) {
  ClusterQuestion question = Hosts(std::vector<double>(10, 1), "qwen3-8b/q8_0");
  for (size_t i = 0; i < 10; ++i) {
    question.profile.hosts[i].available_bytes = static_cast<uint64_t>((1.40 + 0.008 * static_cast<double>(i)) * kGiB);
  }
  question.job.set_max_num_seqs(4);
  const absl::StatusOr<HostChoice> choice = ChooseHosts(question, {});
  ASSERT_TRUE(choice.ok()) << choice.status();
  EXPECT_GT(choice->figures.output_tokens_per_s, 0);
}

TEST(HostChoice, AsManyStagesAsAreAskedForAreFoundAmongManyHosts) {
  ClusterQuestion slots = Hosts(std::vector<double>(9, 1), "qwen3-8b/q8_0");
  slots.stage_hosts.clear();
  for (int host = 0; host < 9; ++host) slots.stage_hosts.insert(slots.stage_hosts.end(), 2, host);
  EXPECT_EQ(JobsOf(Chosen(slots, {.stages = 3}))[0].size(), 3u);
  // The two fastest have not the memory.
  ClusterQuestion memory = Hosts({1, 1, 1, 1, 2, 2, 3, 3, 3}, "qwen3-8b/q8_0");
  for (int host = 0; host < 4; ++host) memory.profile.hosts[static_cast<size_t>(host)].available_bytes = 2 * kGiB;
  EXPECT_THAT(JobsOf(Chosen(memory, {.stages = 2}))[0], UnorderedElementsAre(4, 5));
}

TEST(HostChoice, StagesThatAreAskedForAreOneOnEachHostWhereThatIsBetter) {
  ClusterQuestion question = Hosts({1, 1, 1, 1}, "qwen3-8b/q8_0");
  question.stage_hosts = {0, 0, 1, 1, 2, 2, 3, 3};
  EXPECT_THAT(JobsOf(Chosen(question, {.stages = 4}))[0], UnorderedElementsAre(0, 1, 2, 3));
}

TEST(HostChoice, JobsThatCrossOneUplinkShareIt) {
  ClusterQuestion question = Hosts({1, 1, 1, 1}, "qwen3-8b/q8_0");
  for (HostFacts& host : question.profile.hosts) host.available_bytes = 6 * kGiB;
  question.profile.uplinks = {{.name = "rack", .bandwidth_gbit_s = 0.005, .hosts = {0, 1}}};
  // Such as one job on hosts 0 and 2, and one on 1 and 3.
  const HostCandidates candidates(&question, /*coarse=*/false);
  const ChoiceFigures job = {.output_tokens_per_s = 15, .itl_s = 1, .ttft_s = 1, .sequences = 16};
  const double one = candidates.Together({{0, 2}}, {job}).output_tokens_per_s;
  EXPECT_NEAR(candidates.Together({{0, 2}, {1, 3}}, {job, job}).output_tokens_per_s, one, 0.01 * one);
  EXPECT_NEAR(candidates.Together({{0, 1}, {2, 3}}, {job, job}).output_tokens_per_s, 30, 1e-9) << "none crosses it";
}

TEST(HostChoice, AHostWithSeveralSlotsMayHaveOneStage) {
  ClusterQuestion question = Hosts({1, 1}, "qwen3-8b/q8_0");
  for (HostFacts& host : question.profile.hosts) {
    host.slots = 2;
    host.available_bytes = 6 * kGiB;
  }
  question.stage_hosts = {0, 0, 1, 1};
  EXPECT_THAT(JobsOf(Chosen(question)), ElementsAre(ElementsAre(0, 1)));
}

TEST(HostChoice, TheOrderFollowsTheRacks) {
  ClusterQuestion question = Hosts({1, 1, 1, 1}, "qwen3-8b/q8_0");
  for (HostFacts& host : question.profile.hosts) host.available_bytes = 4 * kGiB;
  question.profile.uplinks = {{.name = "one", .bandwidth_gbit_s = 0.05, .hosts = {0, 2}},
                              {.name = "two", .bandwidth_gbit_s = 0.05, .hosts = {1, 3}}};
  const HostChoice choice = Chosen(question);
  ASSERT_EQ(choice.jobs.size(), 1u);
  const std::vector<int> order = JobsOf(choice)[0];
  ASSERT_EQ(order.size(), 4u);
  EXPECT_EQ(order[0] % 2, order[1] % 2);
  EXPECT_EQ(order[2] % 2, order[3] % 2);
}

TEST(HostChoice, OfManyHostsTheSlowKindIsLeftOutAndRacksStayTogether) {
  std::vector<double> slower(96, 1);
  for (size_t i = 2; i < slower.size(); i += 3) slower[i] = 20;
  ClusterQuestion question = Hosts(slower, "qwen3-8b/q8_0");
  for (HostFacts& host : question.profile.hosts) host.available_bytes = 4 * kGiB;
  question.job.set_max_num_seqs(256);
  std::vector<int> racks[2];
  for (int host = 0; host < 96; ++host) racks[host % 2].push_back(host);
  question.profile.uplinks = {{.name = "one", .bandwidth_gbit_s = 0.05, .hosts = racks[0]},
                              {.name = "two", .bandwidth_gbit_s = 0.05, .hosts = racks[1]}};
  const HostChoice choice = Chosen(question);
  EXPECT_GT(choice.jobs.size(), 8u);
  for (const std::vector<int>& hosts : JobsOf(choice)) {
    for (const int host : hosts) {
      EXPECT_EQ(host % 2, hosts[0] % 2);
      EXPECT_NE(host % 3, 2);
    }
  }
}

TEST(HostChoice, SaysWhyNothingRuns) {
  ClusterQuestion question = Hosts({1, 1}, "qwen3-8b/q8_0");
  for (HostFacts& host : question.profile.hosts) host.available_bytes = kGiB;
  EXPECT_THAT(ChooseHosts(question, {}).status(),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("the layers fit in no split")));
  // More hosts than layers: memory is what lacks.
  question = Hosts(std::vector<double>(40, 1), "qwen3-8b/q8_0");
  for (HostFacts& host : question.profile.hosts) host.available_bytes = kGiB / 8;
  EXPECT_THAT(ChooseHosts(question, {}).status(),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("the layers fit in no split")));
}

}  // namespace
}  // namespace stagecoach
