// probe and doctor, as a user runs them.

#include <sys/stat.h>

#include <cmath>
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "coordinator/plan/host_profile.h"
#include "tests/e2e/support/programs.h"

namespace stagecoach::testing {
namespace {

const Words kTiny = {"--load-format", "dummy", "--shape", "tiny", "--type", "q8_0"};

// The lines of doctor that begin with this level.
std::vector<std::string> LinesOf(const ProgramResult& result, const std::string& level) {
  std::vector<std::string> lines = Lines(result.out);
  std::erase_if(lines, [&](const std::string& line) { return !absl::StartsWith(line, level + " "); });
  return lines;
}

TEST(Probe, WritesAProfileThatThePlannerReads) {
  const TempDir directory;
  const std::string file = directory.File("profile.json");
  const std::string probe = CoordinatorOut(Joined({"probe", "--pp", "2", "-t", "1", "-o", file}, kTiny));
  EXPECT_THAT(probe, AllOf(HasSubstr("read GB/s"), HasSubstr("stage 0 on "), HasSubstr("decode")));
  const HostProfile profile = ReadHostProfile(file).value();
  ASSERT_EQ(profile.hosts.size(), 1u);
  const HostFacts& host = profile.hosts[0];
  EXPECT_EQ(host.slots, 2);
  EXPECT_GT(host.memory_bytes, 0u);
  ASSERT_FALSE(host.isas.empty());
  EXPECT_EQ(host.isa, host.isas.front()) << "what was measured";
  bool alone = false, together = false;
  for (const HostSpeed& speed : host.speeds) {
    EXPECT_GT(speed.read_gbps, 0);
    EXPECT_GT(speed.int8_gops, 0);
    EXPECT_GT(speed.f32_gops, 0);
    alone = alone || (speed.stages == 1 && speed.threads == 1);
    together = together || (speed.stages == 2 && speed.threads == 1);
  }
  EXPECT_TRUE(alone && together) << probe;
  std::vector<int> rows;
  for (const StepTime& step : host.steps) {
    if (step.threads == 1) rows.push_back(step.rows);
    EXPECT_GT(step.layer_us, 0);
    EXPECT_EQ(step.head_us > 0, step.rows == step.sequences);
  }
  EXPECT_THAT(rows, ::testing::ElementsAre(1, 2, 4, 8, 1, 8, 8, 16, 32, 64, 64, 512));
  ASSERT_TRUE(profile.model.has_value());
  EXPECT_EQ(profile.model->name, "dummy://tiny/q8_0");
  EXPECT_GT(profile.model->layer_bytes, 0u);
  ASSERT_EQ(profile.links.size(), 3u);  // to both stages, and from the first to the second
  for (const LinkFacts& link : profile.links) {
    EXPECT_GT(link.latency_us, 0);
    EXPECT_GT(link.bandwidth_gbit_s, 0);
  }
  ASSERT_EQ(profile.stages.size(), 2u);
  for (const ProbedStage& stage : profile.stages) {
    EXPECT_GT(stage.clock_error_us, 0);
    // Both read the one clock of this machine, each against the wall clock at its start.
    EXPECT_LT(std::abs(stage.clock_offset_us), 1e6);
  }
}

TEST(Probe, RunsInAWorldThatWeDidNotStart) { EXPECT_THAT(World({"probe", "-q"}, 2), Prints(HasSubstr("stage 1 on "))); }

TEST(Probe, SaysBeforeItMeasuresWhatItCannotDo) {
  const TempDir directory;
  ExpectRefused(
      {"probe"},
      {
          {"--shape tiny", 2, "--shape"},
          {"-o /nonexistent/profile.json", 3, "/nonexistent/profile.json"},
          {"--host no-such-host.invalid --rsh-agent /bin/false -o DIR/profile.json", 4, "no-such-host.invalid"},
          {"-m /nonexistent/model.gguf", 3, "/nonexistent/model.gguf"},
          {"--stage-worker /nonexistent/stage_worker", 4, "/nonexistent/stage_worker"},
      },
      Refusal::kAnyLines, directory.path());
  EXPECT_FALSE(std::filesystem::exists(directory.File("profile.json"))) << "an empty profile is none";
}

TEST(Doctor, FindsThatAJobWouldRunHere) {
  const ProgramResult doctor = Coordinator(Joined({"doctor", "--pp", "2"}, kTiny));
  EXPECT_EQ(doctor.exit_code, 0) << doctor;
  EXPECT_TRUE(LinesOf(doctor, "error").empty()) << doctor;
  EXPECT_THAT(doctor.out,
              AllOf(HasSubstr("mpirun: "), HasSubstr("stage_worker: "), HasSubstr("every stage sees the same file"),
                    HasSubstr("latency"), HasSubstr("the weights fit"), HasSubstr("a job would run here")));
}

TEST(Doctor, LooksAtTheDraftToo) {
  const std::string found = CoordinatorOut(WordsOf("doctor -m MODEL --pp 2 -t 1 --draft-model MODEL"));
  EXPECT_THAT(found, AllOf(HasSubstr("layers, tokens as the model's\n"), HasSubstr(": 2 stages and the draft, "),
                           ContainsRegex("ok       the draft on [^:]*: sees the same file\n"),
                           HasSubstr("every stage sees the same file"), HasSubstr("the draft's weights fit on ")));
  EXPECT_THAT(CoordinatorOut(WordsOf("doctor -m MODEL --pp 1 -t 1 --draft-model /nowhere/draft.gguf")),
              AllOf(HasSubstr("warning  draft: "), HasSubstr("/nowhere/draft.gguf"),
                    HasSubstr(" (a job goes on without the draft)"), HasSubstr("a job would run here")));
}

TEST(Doctor, PrintsItsFindingsAsJson) {
  const Json json = CoordinatorJson({"doctor", "--json"});
  EXPECT_TRUE(json.at("would_run").get<bool>());
  for (const Json& finding : json.at("findings")) EXPECT_NE(finding.at("level"), "error");
}

// Exactly one error, with this exit code, whose line names the culprit.
void ExpectOneError(const Words& arguments, int exit_code, const std::string& culprit) {
  const ProgramResult doctor = Coordinator(Joined({"doctor"}, arguments));
  EXPECT_EQ(doctor.exit_code, exit_code) << doctor;
  const std::vector<std::string> errors = LinesOf(doctor, "error");
  ASSERT_EQ(errors.size(), 1u) << doctor;
  EXPECT_THAT(errors[0], HasSubstr(culprit));
  EXPECT_THAT(doctor.err, HasSubstr("a job would not run here: 1 error"));
}

TEST(Doctor, NamesAStageWorkerThatIsNotOne) { ExpectOneError({"--stage-worker", "/bin/true"}, 4, "/bin/true"); }

TEST(Doctor, NamesAModelThatIsNotThere) {
  ExpectOneError({"-m", "/nonexistent/model.gguf"}, 3, "/nonexistent/model.gguf");
}

TEST(Doctor, AsksNoOtherHostForAModelThatIsStreamed) {
  const TempDir directory;
  const std::string stage = directory.File("stage_without_model"), worker = StageWorkerProgram();
  WriteFileOrDie(stage, absl::StrCat("#!/bin/sh\n[ $# -eq 0 ] || exec ", worker, " \"$@\"\nexec ", worker,
                                     " --model /nonexistent/model.gguf\n"));
  ASSERT_EQ(chmod(stage.c_str(), 0755), 0);
  ExpectOneError({"-m", DemoModelPath(), "--stage-worker", stage}, 3, "/nonexistent/model.gguf");
  const std::string streamed =
      CoordinatorOut(Joined(WordsOf("doctor -m MODEL --weights stream --stage-worker"), {stage}));
  EXPECT_THAT(streamed, HasSubstr("no other host needs it"));
}

TEST(Doctor, NamesAHostThatDoesNotExist) {
  // A login that fails at once, as ssh does for a name that nobody knows.
  ExpectOneError({"--host", "no-such-host.invalid", "--rsh-agent", "/bin/false"}, 4, "no-such-host.invalid");
}

TEST(Doctor, AJobThatDoesWithoutAHostWouldRun) {
  const ProgramResult doctor =
      Coordinator(WordsOf("doctor --host no-such-host.invalid,localhost --rsh-agent /bin/false --pp 1 -t 1"));
  EXPECT_EQ(doctor.exit_code, 0) << doctor;
  const std::vector<std::string> warnings = LinesOf(doctor, "warning");
  ASSERT_FALSE(warnings.empty()) << doctor;
  EXPECT_THAT(warnings[0], AllOf(HasSubstr("no-such-host.invalid"), HasSubstr("a job of 1 stage does without it")));
}

}  // namespace
}  // namespace stagecoach::testing
