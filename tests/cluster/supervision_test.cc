// The front outlives the job: whatever happens to the ranks, the text is the same and nothing stays behind.

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/json/json_value.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/paths.h"
#include "tests/testing/process_tree.h"
#include "tests/testing/shared_data.h"
#include "tests/testing/subprocess.h"

namespace stagecoach {
namespace {

using ::testing::HasSubstr;
using testing::ProgramResult;
using testing::Subprocess;

void SleepFor(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

class SupervisionTest : public ::testing::Test {
 protected:
  // Each stage holds every micro-batch for 10 ms, so that the run is long enough to be disturbed.
  std::vector<std::string> Arguments(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {"generate",
                                          "-m",
                                          testing::DemoModelPath(),
                                          "--raw",
                                          "-p",
                                          "And Jesus said unto them",
                                          "--pp",
                                          "2",
                                          "-t",
                                          "1",
                                          "-n",
                                          "120",
                                          "--temp",
                                          "0.8",
                                          "--seed",
                                          "11",
                                          "--ignore-eos",
                                          "--stage-delay-us",
                                          "10000"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  std::unique_ptr<Subprocess> Start(const std::vector<std::string>& more = {}) {
    auto front =
        std::make_unique<Subprocess>(testing::CoordinatorProgram(), Arguments(more),
                                     std::vector<std::pair<std::string, std::string>>{{"TMPDIR", dir_.path()}});
    return front;
  }
  // Once text flows: every rank's process and the job's directories, for the check that nothing is left.
  void AwaitText(Subprocess* front) {
    for (int i = 0; i < 600 && front->out().empty(); ++i)
      front->WaitForOutput("\x01", 0.1);  // collects output for a moment
    ASSERT_FALSE(front->out().empty()) << front->err();
    Remember(front->pid());
  }
  void Remember(pid_t front) {
    for (const testing::ProcessInfo& process : testing::Descendants(front)) seen_.push_back(process.pid);
    for (const std::string& directory : testing::JobDirectories(front)) directories_.push_back(directory);
  }
  void ExpectNothingLeft() {
    for (int i = 0; i < 100; ++i) {
      if (std::none_of(seen_.begin(), seen_.end(), testing::IsAlive) && std::filesystem::is_empty(dir_.path())) break;
      SleepFor(0.1);
    }
    for (const pid_t pid : seen_) EXPECT_FALSE(testing::IsAlive(pid)) << "process " << pid << " is still there";
    for (const std::string& directory : directories_) EXPECT_FALSE(std::filesystem::exists(directory)) << directory;
    for (const auto& entry : std::filesystem::directory_iterator(dir_.path()))
      ADD_FAILURE() << "left behind: " << entry.path();
  }
  pid_t OnlyPid(pid_t front, const std::string& name, size_t index = 0) {
    const std::vector<testing::ProcessInfo> found = testing::AwaitDescendants(front, name, index + 1, 30);
    EXPECT_GT(found.size(), index) << name;
    return found.size() > index ? found[index].pid : 0;
  }

  static const std::string& ExpectedText() {
    static const std::string* text = [] {
      SupervisionTest undisturbed;
      return new std::string(undisturbed.Start()->Wait(60).out);
    }();
    return *text;
  }
  void TestBody() override {}

  testing::TempDir dir_;
  std::vector<pid_t> seen_;
  std::vector<std::string> directories_;
};

TEST_F(SupervisionTest, AnUndisturbedRunEndsWithStatisticsAndLeavesNothing) {
  auto front = Start();
  AwaitText(front.get());
  const ProgramResult result = front->Wait(60);
  EXPECT_EQ(result.exit_code, 0) << result;
  EXPECT_EQ(result.out, ExpectedText());
  EXPECT_GT(result.out.size(), 100u);
  EXPECT_THAT(result.err, HasSubstr("tokens/s"));
  EXPECT_EQ(seen_.size(), 5u) << "the guard, mpirun, the engine and two stages";
  EXPECT_EQ(directories_.size(), 2u);
  ExpectNothingLeft();
}

TEST_F(SupervisionTest, AKilledStageIsNamedAndTheTextGoesOnIdentically) {
  const std::string expected = ExpectedText();
  for (const size_t victim : {0u, 1u}) {
    auto front = Start();
    AwaitText(front.get());
    kill(OnlyPid(front->pid(), "stage_worker", victim), SIGKILL);
    SleepFor(1.0);
    Remember(front->pid());
    const ProgramResult result = front->Wait(60);
    EXPECT_EQ(result.exit_code, 0) << result;
    EXPECT_EQ(result.out, expected) << result.err;
    EXPECT_THAT(result.err, HasSubstr("signal 9"));
    ExpectNothingLeft();
  }
}

TEST_F(SupervisionTest, AfterAKillTokensAndLogProbabilitiesAreTheSameToTheLastBit) {
  const std::string step_log = dir_.File("steps.jsonl");
  const std::vector<std::string> options = {"--output", "json", "--logprobs", "3", "--step-log", step_log};
  const ProgramResult calm = Start(options)->Wait(60);
  ASSERT_EQ(calm.exit_code, 0) << calm;
  std::filesystem::remove(step_log);

  auto front = Start(options);
  const auto steps = [&step_log] {
    const std::string text = std::filesystem::exists(step_log) ? testing::ReadFileOrDie(step_log) : "";
    return std::count(text.begin(), text.end(), '\n');
  };
  for (int i = 0; i < 600 && steps() < 40; ++i) front->WaitForOutput("\x01", 0.05);
  ASSERT_GE(steps(), 40);
  Remember(front->pid());
  kill(OnlyPid(front->pid(), "stage_worker", 0), SIGKILL);
  const ProgramResult disturbed = front->Wait(60);
  ASSERT_EQ(disturbed.exit_code, 0) << disturbed;
  const auto expected = nlohmann::json::parse(calm.out), found = nlohmann::json::parse(disturbed.out);
  ASSERT_EQ(expected["tokens"].size(), 120u);
  EXPECT_EQ(found["tokens"].dump(), expected["tokens"].dump());
  EXPECT_EQ(found["logprobs"].dump(), expected["logprobs"].dump());
  EXPECT_EQ(found["timings"]["relaunches"], 1);
  std::filesystem::remove(step_log);
  ExpectNothingLeft();
}

TEST_F(SupervisionTest, AKilledCoordinatorRankIsReplacedAndTheTextGoesOnIdentically) {
  const std::string expected = ExpectedText();
  auto front = Start();
  AwaitText(front.get());
  kill(OnlyPid(front->pid(), " engine "), SIGKILL);
  const ProgramResult result = front->Wait(60);
  EXPECT_EQ(result.exit_code, 0) << result;
  EXPECT_EQ(result.out, expected);
  EXPECT_THAT(result.err, HasSubstr("lost"));
  ExpectNothingLeft();
}

TEST_F(SupervisionTest, AKilledLauncherIsReplacedAndTheTextGoesOnIdentically) {
  const std::string expected = ExpectedText();
  auto front = Start();
  AwaitText(front.get());
  for (const testing::ProcessInfo& process : testing::Descendants(front->pid())) {
    if (process.command.find("mpirun") != std::string::npos) kill(process.pid, SIGKILL);
  }
  const ProgramResult result = front->Wait(60);
  EXPECT_EQ(result.exit_code, 0) << result;
  EXPECT_EQ(result.out, expected) << result.err;
  ExpectNothingLeft();
}

TEST_F(SupervisionTest, AStoppedStageIsNoticedNamedAndReplaced) {
  const std::string expected = ExpectedText();
  auto front = Start();
  AwaitText(front.get());
  kill(OnlyPid(front->pid(), "stage_worker", 1), SIGSTOP);
  const ProgramResult result = front->Wait(90);
  EXPECT_EQ(result.exit_code, 0) << result;
  EXPECT_EQ(result.out, expected);
  EXPECT_THAT(result.err, HasSubstr("no heartbeat for"));
  EXPECT_THAT(result.err, HasSubstr("stage 1 on "));
  ExpectNothingLeft();
}

TEST_F(SupervisionTest, AStoppedCoordinatorRankIsNoticedAndReplaced) {
  const std::string expected = ExpectedText();
  auto front = Start();
  AwaitText(front.get());
  kill(OnlyPid(front->pid(), " engine "), SIGSTOP);
  const ProgramResult result = front->Wait(90);
  EXPECT_EQ(result.exit_code, 0) << result;
  EXPECT_EQ(result.out, expected);
  ExpectNothingLeft();
}

TEST_F(SupervisionTest, ABlipOfThreeSecondsHealsItselfWithoutARelaunch) {
  const std::string expected = ExpectedText();
  auto front = Start();
  AwaitText(front.get());
  const pid_t stage = OnlyPid(front->pid(), "stage_worker", 0);
  kill(stage, SIGSTOP);
  SleepFor(3);
  kill(stage, SIGCONT);
  const ProgramResult result = front->Wait(60);
  EXPECT_EQ(result.exit_code, 0) << result;
  EXPECT_EQ(result.out, expected);
  EXPECT_EQ(result.err.find("lost"), std::string::npos) << result.err;
  ExpectNothingLeft();
}

TEST_F(SupervisionTest, LossesWithoutProgressEndWithCodeFiveWhenPatienceIsOver) {
  auto front = Start({"--relaunch-timeout", "0"});
  AwaitText(front.get());
  // From now on no stage survives for long; what was produced so far stays printed.
  for (int i = 0; i < 3000 && testing::IsAlive(front->pid()); ++i) {
    for (const testing::ProcessInfo& stage : testing::DescendantsNamed(front->pid(), "stage_worker"))
      kill(stage.pid, SIGKILL);
    SleepFor(0.02);
  }
  const ProgramResult result = front->Wait(60);
  EXPECT_EQ(result.exit_code, 5) << result;
  EXPECT_FALSE(result.out.empty());
  EXPECT_EQ(ExpectedText().rfind(result.out.substr(0, result.out.find_last_not_of('\n') + 1), 0), 0u) << result.out;
  ExpectNothingLeft();
}

TEST_F(SupervisionTest, AStageThatNeverReachesMpiIsALossAndThreeOfThemEndTheRun) {
  const std::string idle = dir_.File("idle_stage");
  testing::WriteFileOrDie(idle, "#!/bin/sh\nexec sleep 600\n");
  std::filesystem::permissions(idle, std::filesystem::perms::owner_all);
  auto front = Start({"--stage-worker", idle, "--startup-timeout", "2"});
  ASSERT_FALSE(testing::AwaitDescendants(front->pid(), "sleep 600", 2, 30).empty());
  Remember(front->pid());
  const ProgramResult result = front->Wait(60);
  EXPECT_EQ(result.exit_code, 5) << result;
  EXPECT_TRUE(result.out.empty()) << result;
  EXPECT_THAT(result.err, HasSubstr("rank 1 has not reached MPI_Init"));
  EXPECT_THAT(result.err, HasSubstr("rank 2 has not reached MPI_Init"));
  std::filesystem::remove(idle);
  ExpectNothingLeft();
}

TEST_F(SupervisionTest, AStageThatIsStoppedBeforeMpiIsNoticedLongBeforeTheStartUpTimeout) {
  const std::string stopped = dir_.File("stopped_stage");
  // The first launch alone has one that stops.
  testing::WriteFileOrDie(stopped,
                          absl::StrCat("#!/bin/sh\nif [ ! -e ", dir_.File("once"), " ]; then : >", dir_.File("once"),
                                       "; kill -STOP $$; fi\nexec ", testing::StageWorkerProgram(), "\n"));
  std::filesystem::permissions(stopped, std::filesystem::perms::owner_all);
  const std::string expected = ExpectedText();
  const ProgramResult result = Start({"--stage-worker", stopped})->Wait(50);
  EXPECT_EQ(result.exit_code, 0) << result;
  EXPECT_EQ(result.out, expected);
  EXPECT_THAT(result.err, HasSubstr("the job does not come up; on this host: rank "));
  EXPECT_THAT(result.err, HasSubstr(" is stopped (pid "));
  for (const char* file : {"stopped_stage", "once"}) std::filesystem::remove(dir_.File(file));
  ExpectNothingLeft();
}

TEST_F(SupervisionTest, AStageThatEndsBeforeMpiIsNoticedLongBeforeTheStartUpTimeout) {
  auto front = Start({"--stage-worker", "/bin/true"});
  const ProgramResult result = front->Wait(50);
  EXPECT_FALSE(result.timed_out);
  // Who is faster decides who notices: mpirun, once another rank has called MPI_Init, and then nothing was launched; or
  // we, of a job.
  const bool by_mpirun = result.exit_code == 4;
  EXPECT_EQ(result.exit_code, by_mpirun ? 4 : 5) << result;
  EXPECT_THAT(result.err, HasSubstr(by_mpirun ? "could not be launched: mpirun ended" : "rank 1 has ended"));
  ExpectNothingLeft();
}

TEST_F(SupervisionTest, AFrontKilledForGoodLeavesNoProcessAndNoFile) {
  auto front = Start({"-n", "900"});
  AwaitText(front.get());
  ASSERT_GE(seen_.size(), 4u);
  front->Kill(SIGKILL);
  front->Wait(10);
  ExpectNothingLeft();
}

TEST_F(SupervisionTest, TheFirstInterruptCancelsAndPrintsTheStatistics) {
  auto front = Start({"-n", "900"});
  AwaitText(front.get());
  front->Kill(SIGINT);
  const ProgramResult result = front->Wait(30);
  EXPECT_EQ(result.exit_code, 130) << result;
  EXPECT_THAT(result.err, HasSubstr("tokens/s"));
  ExpectNothingLeft();
}

TEST_F(SupervisionTest, TheSecondInterruptEndsAtOnce) {
  auto front = Start({"-n", "900"});
  AwaitText(front.get());
  const pid_t stage = OnlyPid(front->pid(), "stage_worker", 0);
  kill(stage, SIGSTOP);  // an orderly end would wait for this stage
  front->Kill(SIGINT);
  SleepFor(0.5);
  front->Kill(SIGINT);
  const ProgramResult result = front->Wait(10);
  EXPECT_EQ(result.exit_code, 130) << result;
  EXPECT_FALSE(result.timed_out);
  ExpectNothingLeft();
}

}  // namespace
}  // namespace stagecoach
