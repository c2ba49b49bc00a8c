// What a new user does with four machines: ask whether a job would run, measure, plan, sweep, and run the plan, over
// links of 200 Mb/s; and what comes of it when a machine goes silently in the middle.

#include <filesystem>
#include <map>

#include "absl/strings/str_cat.h"
#include "tests/hosts/support/generation.h"

namespace stagecoach::testing {
namespace {

using ::testing::UnorderedElementsAre;

constexpr char kFourHosts[] = "host1 slots=1\nhost2 slots=1\nhost3 slots=1\nhost4 slots=1\n";
constexpr int kLinkMbitS = 200;
constexpr int kRequests = 16;

class FourMachinesTest : public HostsTest {
 protected:
  void SetUp() override {
    HostsTest::SetUp();
    if (IsSkipped()) return;
    WriteFileOrDie(hosts().Outside("/mnt/hostfile"), kFourHosts);
    std::string requests;
    for (int i = 0; i < kRequests; ++i) {
      const Json body = {{"prompt", absl::StrCat("And the king of Assyria spake ", i)}, {"max_tokens", 20}};
      requests += BatchInputLine(absl::StrCat(i), body);
    }
    WriteFileOrDie(hosts().Outside("/mnt/requests.jsonl"), requests);
  }

  ProgramResult Run(const Words& words) { return StartVerb(words)->Wait(60); }

  static Words BatchTo(const std::string& output) {
    return Joined(WordsOf("batch -m MODEL -i /mnt/requests.jsonl --seed 7 --ignore-eos --max-num-seqs 4 -o"), {output});
  }

  static std::map<std::string, std::string> TextsIn(const std::string& path) {
    std::map<std::string, std::string> texts;
    const std::string answers = std::filesystem::exists(path) ? ReadFileOrDie(path) : "";
    // The last line may be still in writing.
    for (const std::string& line : Lines(answers.substr(0, answers.rfind('\n') + 1))) {
      const Json answer = Json::parse(line);
      texts[answer["custom_id"]] = answer["response"]["body"]["choices"][0]["text"];
    }
    return texts;
  }

  // Predictions from what was measured stand beside what a sweep measures.
  void SweepFromTheProfile() {
    const ProgramResult sweep =
        Run(WordsOf("sweep -m MODEL --hostfile /mnt/hostfile --profile /mnt/profile.json --pp 2,4 -t 1 --concurrency 4 "
                    "--requests 8 --prompt 32 --output 16 -r 1 -o /mnt/sweep"));
    ASSERT_EQ(sweep.exit_code, 0) << sweep;
    std::vector<size_t> stages;
    const std::string points = ReadFileOrDie(hosts().Outside("/mnt/sweep/points.jsonl"));
    for (const std::string& line : Lines(points)) {
      const Json point = Json::parse(line);
      EXPECT_EQ(point["error"], "");
      EXPECT_EQ(point["result"]["output_tokens"], 8 * 16);
      EXPECT_THAT(point["prediction"]["source"].get<std::string>(), HasSubstr("/mnt/profile.json"));
      EXPECT_GT(point["prediction"]["output_tokens_per_s"], 0);
      stages.push_back(point["stages"].size());
      for (size_t s = 0; s < stages.back(); ++s) EXPECT_EQ(point["stages"][s]["host"], absl::StrCat("host", s + 1));
    }
    EXPECT_THAT(stages, UnorderedElementsAre(2u, 4u));
    const std::string report = ReadFileOrDie(hosts().Outside("/mnt/sweep/report.html"));
    EXPECT_THAT(report, AllOf(HasSubstr("<svg"), HasSubstr("redict"), HasSubstr("host1")));
  }

  // Of one host, without links.
  std::map<std::string, std::string> UndisturbedTexts() {
    const ProgramResult result = Run(Joined(BatchTo("/mnt/undisturbed.jsonl"), {"--pp", "1", "-t", "1"}));
    EXPECT_EQ(result.exit_code, 0) << result;
    return TextsIn(hosts().Outside("/mnt/undisturbed.jsonl"));
  }
};

TEST_F(FourMachinesTest, DoctorNamesTheMachineThatDoesNotAnswer) {
  hosts().Cut(4);
  const ProgramResult result = Run(WordsOf("doctor -m MODEL --hostfile /mnt/hostfile --host-timeout 3"));
  EXPECT_EQ(result.exit_code, 4) << result;
  EXPECT_THAT(result.out, HasSubstr("host4")) << result;
  hosts().Heal(4);
}

TEST_F(FourMachinesTest, APlanFromMeasurementsSurvivesAMachineThatGoesSilently) {
  if (const absl::Status limited = hosts().LimitLinks(kLinkMbitS); !limited.ok()) {
    GTEST_SKIP() << "no emulated hosts on this machine with links that are limited: " << limited.message();
  }
  const ProgramResult doctor = Run(WordsOf("doctor -m MODEL --hostfile /mnt/hostfile -t 1"));
  EXPECT_EQ(doctor.exit_code, 0) << doctor;
  for (const char* host : {"host1", "host2", "host3", "host4"}) EXPECT_THAT(doctor.out, HasSubstr(host));

  const ProgramResult probe = Run(WordsOf("probe -m MODEL --hostfile /mnt/hostfile -t 1 -o /mnt/profile.json"));
  ASSERT_EQ(probe.exit_code, 0) << probe;
  const Json profile = Json::parse(ReadFileOrDie(hosts().Outside("/mnt/profile.json")));
  ASSERT_EQ(profile["hosts"].size(), 4u);
  for (const Json& link : profile["links"]) {
    if (link["from"] == link["to"]) continue;
    // More than the limit is what the bucket held, at most an eighth of a measured frame.
    EXPECT_LT(link["bandwidth_gbit_s"], 1.3 * kLinkMbitS / 1000) << link;
    EXPECT_GT(link["bandwidth_gbit_s"], 0) << link;
  }

  const ProgramResult plan =
      Run(WordsOf("plan -m MODEL --profile /mnt/profile.json --pp 4 -t 1 --max-num-seqs 4 -o /mnt/plan.json"));
  ASSERT_EQ(plan.exit_code, 0) << plan;
  for (const char* host : {"host1", "host2", "host3", "host4"}) EXPECT_THAT(plan.out, HasSubstr(host));

  SweepFromTheProfile();
  if (HasFatalFailure()) return;

  // The plan names the hosts.
  const auto batch = StartVerb(
      Joined(BatchTo("/mnt/answers.jsonl"), WordsOf("--plan /mnt/plan.json --stage-delay-us 10000 --host-timeout 3")));
  const std::string answers = hosts().Outside("/mnt/answers.jsonl");
  ASSERT_TRUE(batch->WaitUntil([&] { return !TextsIn(answers).empty(); }, 40)) << batch->err();
  hosts().Cut(3);
  EXPECT_THAT(batch->Wait(60), EndsWithCode(0, HasSubstr("host3 is left out")));
  const std::map<std::string, std::string> expected = UndisturbedTexts();
  EXPECT_EQ(expected.size(), static_cast<size_t>(kRequests));
  EXPECT_EQ(TextsIn(answers), expected);
  hosts().Heal(3);
}

}  // namespace
}  // namespace stagecoach::testing
