#include "coordinator/launch/hosts/host_pool.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/wire/handshake.h"
#include "common/wire/host_report.h"
#include "coordinator/launch/hosts/host_file.h"
#include "coordinator/launch/launcher_backend.h"
#include "tests/testing/matchers.h"
#include "tests/testing/paths.h"
#include "tests/testing/shared_data.h"

namespace stagecoach {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(20);

HostSlots Slots(const std::string& name, int slots, bool spare = false) {
  return {.name = name, .slots = slots, .spare = spare};
}

TEST(Placement, FillsSlotsInOrderAndSpareHostsLast) {
  const std::vector<LaunchHost> hosts = {
      {Slots("s", 2, true)}, {Slots("a", 2)}, {Slots("here", 1), true}, {Slots("a", 1)}, {Slots("b", 4)}};
  EXPECT_EQ(SlotsOf(hosts), 8);
  const Placement all = PlaceStages(hosts, 5, {});
  EXPECT_THAT(all.hosts, ElementsAre(PlacedStages{"a", 2}, PlacedStages{"here", 1, true}, PlacedStages{"a", 1},
                                     PlacedStages{"b", 1}));
  EXPECT_FALSE(all.AllHere());
  EXPECT_EQ(all.Describe(), "2 on a, 1 on here, 1 on a, 1 on b");
  EXPECT_THAT(PlaceStages(hosts, 5, {"b"}).hosts, ElementsAre(PlacedStages{"a", 2}, PlacedStages{"here", 1, true},
                                                              PlacedStages{"a", 1}, PlacedStages{"s", 1}));
  EXPECT_EQ(PlaceStages(hosts, 5, {"a", "b"}).stages(), 3);
  EXPECT_EQ(PlaceStages(hosts, 5, {"a", "b", "s", "here"}).stages(), 0);
}

// Hosts whose remote shell is a script: what it does for host NAME is in the file NAME, a shell's commands, or absent
// for a host that cannot be reached.
struct HostPoolTest : ::testing::Test {
  HostPoolTest() {
    const std::string agent = directory_ + "/agent";
    std::ofstream(agent) << "#!/bin/sh\necho \"$2\" >>'" << directory_ << "/asked'\ncd '" << directory_
                         << "'\n[ -e \"$1\" ] || { echo 'ssh: no route to host'; exit 255; }\n. \"./$1\"\n";
    chmod(agent.c_str(), 0755);
    plan_.backend = MakeOpenMpi({.program = "/bin/true", .rsh_agent = agent});
    plan_.programs = {"/bin/coordinator", "/bin/stage_worker"};
    plan_.stages = 2;
    plan_.hosts = {{Slots("a", 1)}, {Slots("b", 1)}, {Slots("s", 1, true)}};
  }

  void Answers(const std::string& host, const std::vector<InstructionSet>& isas = {InstructionSet::kAvx2},
               const std::string& left = "", const std::string& version = kProgramVersion) {
    Does(host, Answer(isas, left, version));
  }
  static std::string Answer(const std::vector<InstructionSet>& isas = {InstructionSet::kAvx2},
                            const std::string& left = "", const std::string& version = kProgramVersion) {
    pb::HostReport report = Report(isas);
    report.mutable_hello()->set_program_version(version);
    if (!left.empty()) report.add_left()->set_name(left);
    return absl::StrCat("echo 'Welcome!'\n", Says(report), "echo bye\n");
  }
  static pb::HostReport Report(const std::vector<InstructionSet>& isas = {InstructionSet::kAvx2}) {
    pb::HostReport report;
    *report.mutable_hello() = MakeHello(pb::Hello::ROLE_STAGE, isas);
    return report;
  }
  static std::string Says(const pb::HostReport& report) {
    return absl::StrCat("echo ", EncodeHostReport(report), "\n");
  }
  void Does(const std::string& host, const std::string& commands) {
    std::ofstream(absl::StrCat(directory_, "/", host)) << commands;
  }
  void Ask(HostPool* pool, bool again = false, const pb::ConfigureJob& job = {}) {
    pool->Ask(again, job);
    for (int64_t since = absl::ToUnixMicros(absl::Now()); pool->asking();) {
      absl::SleepFor(absl::Milliseconds(5));
      const int64_t now = absl::ToUnixMicros(absl::Now());
      pool->Advance(absl::Microseconds(now - std::exchange(since, now)));
    }
  }
  std::string Asked() const { return testing::ReadFileOrDie(directory_ + "/asked"); }

  const testing::TempDir temporary_;
  const std::string directory_ = temporary_.path();
  LaunchPlan plan_;
};

TEST_F(HostPoolTest, PlacesStagesOnTheHostsThatAnswer) {
  for (const char* host : {"a", "b", "s"}) Answers(host);
  HostPool pool(&plan_, kPatience);
  Ask(&pool);
  EXPECT_THAT(pool.News(), IsEmpty());
  EXPECT_EQ(pool.Place().Describe(), "1 on a, 1 on b");
  EXPECT_THAT(Asked(), HasSubstr("/bin/stage_worker --host-report --network 28\n"));
}

// As a shared connection of ssh does, or a job of the login.
TEST_F(HostPoolTest, AnAnswerIsOneAlsoWhereSomethingKeepsTheRemoteShellOpen) {
  for (const char* host : {"a", "b", "s"}) Answers(host);
  Does("b", absl::StrCat(Answer(), "sleep 30 &\n"));
  HostPool pool(&plan_, kPatience);
  Ask(&pool);
  EXPECT_THAT(pool.News(), IsEmpty());
  EXPECT_EQ(pool.Place().Describe(), "1 on a, 1 on b");
}

TEST_F(HostPoolTest, NamesTheHostsItLeavesOutAndWhy) {
  Answers("a", {InstructionSet::kAvx2}, "", "9.9");
  Does("b", "echo 'sh: 1: /bin/stage_worker: not found'; exit 127");
  HostPool pool(&plan_, kPatience);
  Ask(&pool);
  EXPECT_THAT(pool.News(), SizeIs(3));
  EXPECT_THAT(pool.DescribeLeftOut(), HasSubstr("a: its stage_worker runs version 9.9"));
  EXPECT_THAT(pool.DescribeLeftOut(), HasSubstr("ended with exit code 127: sh: 1: /bin/stage_worker: not found"));
  EXPECT_THAT(pool.DescribeLeftOut(), HasSubstr("s: it cannot be asked: `"));
  EXPECT_THAT(pool.DescribeLeftOut(), HasSubstr("ended with exit code 255: ssh: no route to host"));
  EXPECT_EQ(pool.Place().stages(), 0);
}

TEST_F(HostPoolTest, ALoginThatAsksAPersonHasFailedAndIsQuoted) {
  Answers("s");
  Does("a", "echo 'Password: none is needed here:'; printf '\\nann@a has a Password: '; exec sleep 60");
  Does("b", "printf 'Are you sure you want to continue connecting (yes/no/[fingerprint])? '; exec sleep 60");
  HostPool pool(&plan_, absl::Seconds(60));
  Ask(&pool);
  EXPECT_THAT(pool.DescribeLeftOut(), HasSubstr("asks 'ann@a has a Password:', and nobody answers"));
  EXPECT_THAT(pool.DescribeLeftOut(), HasSubstr("asks 'Are you sure you want to continue connecting"));
  EXPECT_THAT(pool.DescribeLeftOut(), HasSubstr("`ssh -o BatchMode=yes b true` must work"));
  EXPECT_EQ(pool.Place().Describe(), "1 on s");
}

TEST_F(HostPoolTest, WhatASlowLoginWroteIsQuoted) {
  for (const char* host : {"a", "s"}) Answers(host);
  Does("b", "echo 'Your password: expires today'; exec sleep 60");
  HostPool pool(&plan_, absl::Milliseconds(1500));
  Ask(&pool);
  EXPECT_THAT(pool.DescribeLeftOut(),
              HasSubstr("b: it did not answer for 1.5s; its login wrote 'Your password: expires"));
}

TEST_F(HostPoolTest, HostsThatAreSlowToAnswerAreNamedOnce) {
  Answers("a");
  Does("b", "exec sleep 60");
  Does("s", "exec sleep 60");
  std::vector<HostQuestion> questions;
  for (const char* host : {"a", "b", "s"}) questions.push_back(AskHost(*plan_.backend, plan_.programs, host, {}));
  HostSurvey survey(std::move(questions), absl::ZeroDuration(), /*slow=*/absl::Milliseconds(200));
  EXPECT_EQ(survey.TakeSlowHosts(), "");
  std::string slow;
  while (!survey.answers()[0].report.has_value() || slow.empty()) {
    survey.Advance();
    if (slow.empty()) slow = survey.TakeSlowHosts();
    absl::SleepFor(absl::Milliseconds(5));
  }
  EXPECT_THAT(slow, EndsWith("b, s"));
  EXPECT_EQ(survey.TakeSlowHosts(), "");
}

TEST_F(HostPoolTest, AHostThatLacksWhatItsRanksNeedIsLeftOut) {
  for (const char* host : {"a", "s"}) Answers(host);
  pb::HostReport report = Report();
  HostLimits limits;
  limits.open_files = 16;
  *report.mutable_limits() = ToProto(limits);
  Does("b", Says(report));
  HostPool pool(&plan_, kPatience);
  Ask(&pool);
  EXPECT_EQ(pool.Place().Describe(), "1 on a, 1 on s");
  EXPECT_THAT(pool.DescribeLeftOut(), HasSubstr("b: a process may have 16 files open (ulimit -n)"));
}

TEST_F(HostPoolTest, ASpareHostTakesThePlaceOfOneThatIsLostAndALostOneThatAnswersIsUsedAgain) {
  for (const char* host : {"a", "b", "s"}) Answers(host);
  HostPool pool(&plan_, absl::Milliseconds(300));
  Ask(&pool);
  pool.Launched(pool.Place(), "stagecoach.AbC123");
  Does("b", "sleep 60");
  Ask(&pool, /*again=*/true);
  EXPECT_THAT(pool.News(), ElementsAre(HasSubstr("host b is left out: it did not answer for 300ms")));
  EXPECT_EQ(pool.Place().Describe(), "1 on a, 1 on s");
  EXPECT_THAT(Asked(), HasSubstr("/bin/stage_worker --host-report --clear stagecoach.AbC123 --network 9\n"));
  pool.Launched(pool.Place(), "stagecoach.DeF456");

  std::filesystem::remove(directory_ + "/asked");
  Answers("b");
  Ask(&pool, /*again=*/true);
  EXPECT_THAT(pool.News(), ElementsAre("host b is back and used again"));
  EXPECT_EQ(pool.Place().Describe(), "1 on a, 1 on b");
  // Each is cleared of what it took part in and was not yet cleared of.
  EXPECT_THAT(Asked(), HasSubstr("--host-report --clear stagecoach.AbC123 --network 9\n"));
  EXPECT_THAT(Asked(), HasSubstr("--host-report --clear stagecoach.DeF456 --network 9\n"));
  EXPECT_THAT(Asked(), Not(HasSubstr("AbC123 --clear")));
}

TEST_F(HostPoolTest, AsksAHostThatFailsAgainWhilePatienceLasts) {
  Answers("a");
  Answers("s");
  Answers("later");
  Does("b", "if [ -e tried ]; then . ./later; else : >tried; echo 'connection refused'; exit 255; fi");
  HostPool pool(&plan_, kPatience);
  Ask(&pool, /*again=*/true);
  EXPECT_THAT(pool.News(), IsEmpty());
  EXPECT_EQ(pool.Place().Describe(), "1 on a, 1 on b");
}

TEST_F(HostPoolTest, AHostThatCannotGiveTheBitsOrHoldsALostJobIsLeftOut) {
  Answers("a", {InstructionSet::kAvx2, InstructionSet::kAvx512Bf16});
  Answers("b", {InstructionSet::kAvx2});
  Answers("s", {InstructionSet::kAvx512Bf16}, "stage_worker");
  HostPool pool(&plan_, kPatience);
  pb::ConfigureJob job;
  job.set_bf16_dot(true);
  Ask(&pool, /*again=*/false, job);
  EXPECT_EQ(pool.Place().Describe(), "1 on a");
  EXPECT_THAT(pool.DescribeLeftOut(), HasSubstr("b: it has avx2 and not the BF16 dot that this job began with"));
  EXPECT_THAT(pool.DescribeLeftOut(), HasSubstr("s: what a lost job left there does not end: stage_worker"));
}

TEST_F(HostPoolTest, AHostThatCannotReadTheModelIsNoSpareAndNotUsedAgain) {
  for (const char* host : {"a", "b", "s"}) Answers(host);
  plan_.hosts[0].slots.model = "/elsewhere/m.gguf";
  pb::ConfigureJob job;
  job.set_model_path("/models/m.gguf");
  HostPool pool(&plan_, kPatience);
  Ask(&pool, /*again=*/false, job);
  EXPECT_EQ(pool.Place().Describe(), "1 on a, 1 on b") << "their stages say it";
  EXPECT_THAT(pool.News(), ElementsAre("host s is left out: it cannot read the model file '/models/m.gguf'"));
  Ask(&pool, /*again=*/true, job);
  EXPECT_EQ(pool.Place().stages(), 0);
  EXPECT_THAT(Asked(), HasSubstr("--host-report --model /elsewhere/m.gguf --network 28\n"));

  pb::HostReport report = Report();
  report.mutable_hello()->set_model_path("/models/m.gguf");
  Does("b", Says(report));
  Ask(&pool, /*again=*/true, job);
  EXPECT_THAT(pool.News(), ElementsAre("host b is back and used again"));
  Answers("b");
  job.set_weights(pb::WEIGHT_SOURCE_STREAM);
  Ask(&pool, /*again=*/true, job);
  EXPECT_EQ(pool.Place().Describe(), "1 on a, 1 on b");
}

TEST_F(HostPoolTest, ASpareHostWithoutTheDotKeepsTheJobFromIt) {
  for (const char* host : {"a", "b"}) Answers(host, {InstructionSet::kAvx2, InstructionSet::kAvx512Bf16});
  Answers("s", {InstructionSet::kAvx2});
  HostPool pool(&plan_, kPatience);
  Ask(&pool);
  EXPECT_TRUE(pool.SpareLacksBf16Dot());
  Answers("s", {InstructionSet::kAvx2, InstructionSet::kAvx512Bf16});
  HostPool other(&plan_, kPatience);
  Ask(&other);
  EXPECT_FALSE(other.SpareLacksBf16Dot());
}

TEST_F(HostPoolTest, ThisHostIsHeldToTheSameBits) {
  plan_.hosts = {{Slots("a", 1)}, {Slots("b", 1)}, {Slots("here", 1, true), true}};
  for (const char* host : {"a", "b"}) Answers(host, {InstructionSet::kAvx2, InstructionSet::kAvx512Bf16});
  HostPool pool(&plan_, kPatience, {InstructionSet::kAvx2});
  Ask(&pool);
  EXPECT_TRUE(pool.SpareLacksBf16Dot()) << "the spare host is this one";
  EXPECT_THAT(pool.News(), IsEmpty());

  Does("b", "exit 255");
  pb::ConfigureJob job;
  job.set_bf16_dot(true);
  Ask(&pool, /*again=*/false, job);
  EXPECT_EQ(pool.Place().Describe(), "1 on a");
  EXPECT_THAT(pool.DescribeLeftOut(), HasSubstr("here: it has avx2 and not the BF16 dot that this job began with"));
}

// No answer is computed on a host that is the draft's alone.
TEST_F(HostPoolTest, TheDraftsHostIsNotHeldToTheBitsOfTheAnswers) {
  plan_.hosts[1].slots.draft = true;
  for (const char* host : {"a", "s"}) Answers(host, {InstructionSet::kAvx2, InstructionSet::kAvx512Bf16});
  Answers("b", {InstructionSet::kAvx2});
  plan_.stages = 1;
  HostPool pool(&plan_, kPatience);
  Ask(&pool);
  EXPECT_FALSE(pool.SpareLacksBf16Dot());
  pb::ConfigureJob job;
  job.set_bf16_dot(true);
  Ask(&pool, /*again=*/false, job);
  EXPECT_EQ(pool.Place().Describe(), "1 on a, the draft on b");
  plan_.hosts[1] = {.slots = {.name = "localhost", .draft = true}, .here = true};
  HostPool other(&plan_, kPatience, {InstructionSet::kAvx2});
  Ask(&other, /*again=*/false, job);
  EXPECT_FALSE(other.SpareLacksBf16Dot());
  EXPECT_EQ(other.Place().Describe(), "1 on a, the draft on localhost");
  plan_.hosts.push_back({.slots = {.name = "localhost"}, .here = true});
  HostPool shared(&plan_, kPatience, {InstructionSet::kAvx2});
  Ask(&shared);
  EXPECT_TRUE(shared.SpareLacksBf16Dot()) << "it has stages, too";
}

TEST_F(HostPoolTest, ARelaunchDoesNotWaitLongForTheDraftsHost) {
  plan_.hosts[1].slots.draft = true;
  for (const char* host : {"a", "b", "s"}) Answers(host);
  plan_.stages = 1;
  HostPool pool(&plan_, /*patience=*/absl::Minutes(10));
  Ask(&pool);
  EXPECT_EQ(pool.Place().Describe(), "1 on a, the draft on b");
  Does("b", "exec sleep 60");
  pool.Ask(/*again=*/true, {});
  pool.Advance(absl::Seconds(4));  // as others have
  for (int i = 0; i < 2000 && pool.asking(); ++i) {
    absl::SleepFor(absl::Milliseconds(5));
    pool.Advance(absl::ZeroDuration());
  }
  ASSERT_FALSE(pool.asking());
  EXPECT_THAT(pool.News(), ElementsAre(HasSubstr("host b is left out: it did not answer")));
  EXPECT_EQ(pool.Place().Describe(), "1 on a");
}

TEST_F(HostPoolTest, ClearsItsHostsAtTheEnd) {
  for (const char* host : {"a", "b", "s"}) Answers(host);
  {
    HostPool pool(&plan_, kPatience);
    Ask(&pool);
    pool.Launched(pool.Place(), "stagecoach.AbC123");
    std::filesystem::remove(directory_ + "/asked");
    for (const char* host : {"a", "b"}) Does(host, absl::StrCat("echo hello; sleep 0.3; : >cleared_", host));
  }
  EXPECT_TRUE(std::filesystem::exists(directory_ + "/cleared_a"));
  EXPECT_TRUE(std::filesystem::exists(directory_ + "/cleared_b"));
  EXPECT_EQ(Asked(),
            "/bin/stage_worker --host-report --clear stagecoach.AbC123\n/bin/stage_worker --host-report --clear "
            "stagecoach.AbC123\n");
}

TEST(HostFile, TheExamplesOfDeployAreRead) {
  const std::string directory = testing::SourcePath("deploy/hostfiles/");
  EXPECT_EQ(ReadHostFile(directory + "local").value(), std::vector<HostSlots>({{"localhost", 2}}));
  const auto rack = ReadHostFile(directory + "rack").value();
  ASSERT_EQ(rack.size(), 5u);
  EXPECT_EQ(rack[3].model, "/scratch/model.gguf");
  EXPECT_TRUE(rack[4].spare);
}

// Such as a model that was given by mistake.
TEST(HostFile, ShowsOnlyTheBeginningOfWhatIsNone) {
  const std::string word = std::string("GGUF\3\0\0", 7) + std::string(1000000, 'x');
  const std::string message(ParseHostFile("m.gguf", word).status().message());
  EXPECT_EQ(message.find("host file 'm.gguf', line 1: 'GGUF\\x03\\x00\\x00xxx"), 0u) << message.substr(0, 200);
  EXPECT_LT(message.size(), 200u);
}

}  // namespace
}  // namespace stagecoach
