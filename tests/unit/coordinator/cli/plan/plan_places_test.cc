#include "coordinator/cli/plan/plan_places.h"

#include "common/wire/job_proto.h"
#include "coordinator/cli/plan/plan_draft.h"
#include "tests/testing/matchers.h"
#include "tests/testing/shared_data.h"

namespace stagecoach {
namespace {

std::vector<std::string> AssumptionsOf(const std::string& hosts) {
  LaunchOptions launch;
  launch.hosts = hosts;
  const absl::StatusOr<PlanPlaces> places = FindPlaces(ClusterOptions(), {}, launch);
  EXPECT_TRUE(places.ok()) << places.status();
  return places.ok() ? places->assumptions : std::vector<std::string>();
}

// Two ways to write an address that no host can have.
TEST(PlanPlaces, TwoNamesOfOneAddressAreNamed) {
  const auto says_so = AllOf(HasSubstr("240.0.0.1 and 240.1 are two hosts"), HasSubstr("name it once"));
  EXPECT_THAT(AssumptionsOf("240.0.0.1:2,240.1,240.0.0.2"), Contains(says_so).Times(1));
  EXPECT_THAT(AssumptionsOf("240.0.0.1,240.0.0.2,240.0.0.1"), Not(Contains(HasSubstr("name it once"))));
}

// Of a job with a draft.
PlanPlaces PlacesWithDraft(const std::string& hosts) {
  const testing::TempDir dir;
  testing::WriteFileOrDie(dir.File("hosts"), hosts);
  LaunchOptions launch;
  launch.hostfile = dir.File("hosts");
  launch.job.set_draft_model_path("/draft.gguf");
  return FindPlaces(ClusterOptions(), {}, launch).value();
}

TEST(PlanPlaces, TheDraftsHostHasNoStages) {
  const PlanPlaces places = PlacesWithDraft("a.invalid slots=2\nc.invalid draft\nb.invalid\n");
  std::vector<std::string> names;
  for (const int host : places.stage_hosts) names.push_back(places.profile.hosts[static_cast<size_t>(host)].name);
  EXPECT_THAT(names, ElementsAre("a.invalid", "a.invalid", "b.invalid"));
  EXPECT_EQ(places.profile.hosts[static_cast<size_t>(places.draft_host)].name, "c.invalid");
  EXPECT_THAT(places.assumptions, Contains(HasSubstr("a.invalid, b.invalid, c.invalid: ")));
  EXPECT_EQ(PlacesWithDraft("a.invalid\n").draft_host, 0) << "here";
}

TEST(PlanPlaces, TheDraftOfDescribedHostsIsOnTheOneThatIsNamedElseWhereTheCoordinatorIs) {
  const testing::TempDir dir;
  const auto draft_host = [&](const std::string& named) {
    testing::WriteFileOrDie(dir.File("cluster.json"),
                            named + R"("coordinator": "b", "hosts": [)"
                                    R"({"name": "a", "cores": 4, "memory_gib": 8, "read_gb_s": 40, "int8_gops": 500},)"
                                    R"({"name": "b", "cores": 4, "memory_gib": 8, "slots": 0},)"
                                    R"({"name": "c", "cores": 4, "memory_gib": 8, "slots": 0}]})");
    return FindPlaces(ClusterOptions(), {.cluster = dir.File("cluster.json")}, LaunchOptions()).value().draft_host;
  };
  EXPECT_EQ(draft_host("{"), 1);
  EXPECT_EQ(draft_host(R"({"draft": "c", )"), 2);
}

// A job of one stage on each of two hosts; the third has none.
ChosenJob JobToGuessFor(const std::string& model = "dummy://qwen3-8b/q8_0") {
  ChosenJob job;
  ClusterQuestion& question = job.question;
  question.model = OpenModel(model).value();
  for (const char* host : {"a", "b", "c"}) {
    question.profile.hosts.push_back(AssumedHost(host, 4, uint64_t{16} << 30, InstructionSet::kAvx512Vnni));
  }
  question.stage_hosts = {0, 1};
  question.profile.default_link = AssumedLink();
  JobSettings settings;
  settings.speculate = Speculate::kAuto;
  SetJobSettings(settings, &question.job);
  job.plan = PlanCluster(question).value();
  return job;
}

TEST(PlanDraft, TakesAHostOfItsOwnAndGuessesAsFastAsThatHostReads) {
  const std::shared_ptr<const ModelDescription> draft = OpenModel("dummy://qwen3-0.6b/q8_0").value();
  ChosenJob job = JobToGuessFor();
  const PlannedDraft alone = PlanDraftOn(2, job, draft).value();
  EXPECT_EQ(alone.host, "c");
  EXPECT_EQ(alone.why_not, "");
  EXPECT_THAT(alone.beside, ElementsAre());
  EXPECT_EQ(alone.threads, 4);
  EXPECT_FALSE(alone.assumed);
  EXPECT_GT(alone.memory.weights, uint64_t{600} << 20);
  EXPECT_GT(alone.memory.kv, 0u);
  EXPECT_NEAR(alone.guess_s, 0.633e9 / 40e9, 0.003) << "all weights at 40 GB/s, K and V, to the coordinator and back";
  for (HostSpeed& speed : job.question.profile.hosts[2].speeds) speed.read_gbps /= 2;
  EXPECT_GT(PlanDraftOn(2, job, draft).value().guess_s, 1.7 * alone.guess_s);
  job.question.profile.hosts[2].speeds.clear();  // as of a coordinator that runs no stage
  const PlannedDraft assumed = PlanDraftOn(2, job, draft).value();
  EXPECT_TRUE(assumed.assumed);
  EXPECT_GT(assumed.guess_s, 0);
}

TEST(PlanDraft, SharesTheCoresAndTheMemoryOfAHostThatHasStages) {
  const std::shared_ptr<const ModelDescription> draft = OpenModel("dummy://qwen3-0.6b/q8_0").value();
  ChosenJob job = JobToGuessFor();
  const PlannedDraft shares = PlanDraftOn(1, job, draft).value();
  EXPECT_THAT(shares.beside, ElementsAre(1));
  EXPECT_EQ(shares.threads, 2);
  EXPECT_EQ(shares.why_not, "");
  // Beside what the stage was planned to take.
  job.question.profile.hosts[1].available_bytes = job.plan.memory[1].total() + (uint64_t{100} << 20);
  const PlannedDraft large = PlanDraftOn(1, job, draft).value();
  EXPECT_THAT(large.why_not, AllOf(HasSubstr("the draft: "), HasSubstr("but 104857600 are available")));
  EXPECT_EQ(large.guess_s, 0);
}

}  // namespace
}  // namespace stagecoach
