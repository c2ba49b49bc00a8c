#include "tests/hosts/support/generation.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <sstream>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/testing/paths.h"
#include "tests/testing/shared_data.h"

namespace stagecoach::testing {
namespace {

using nlohmann::json;
using Words = std::vector<std::string>;

constexpr char kStepLog[] = "/mnt/steps.jsonl";
constexpr char kHostFile[] = "/mnt/hostfile";

Words Generate(int tokens) {
  return {"generate",
          "-m",
          DemoModelPath(),
          "--raw",
          "-p",
          "And Jesus said unto them",
          "-n",
          absl::StrCat(tokens),
          "--temp",
          "0.8",
          "--seed",
          "11",
          "--ignore-eos",
          "-t",
          "1",
          "--output",
          "json",
          "--logprobs",
          "3"};
}

}  // namespace

EmulatedHosts* HostsTest::hosts_ = nullptr;

void SleepFor(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

int LinesWith(const std::string& text, const std::string& part) {
  std::istringstream lines(text);
  int count = 0;
  for (std::string line; std::getline(lines, line);) count += absl::StrContains(line, part) ? 1 : 0;
  return count;
}

void HostsTest::TearDownTestSuite() {
  delete hosts_;
  hosts_ = nullptr;
}

void HostsTest::SetUp() {
  static const std::string* why_not = new std::string(EmulatedHosts::WhyNot());
  if (!why_not->empty()) GTEST_SKIP() << "no emulated hosts on this machine: " << *why_not;
  if (hosts_ == nullptr) hosts_ = new EmulatedHosts(kHosts, EmulatedHosts::TreeBelowTmp(), network());
}

void HostsTest::TearDown() {
  if (hosts_ == nullptr) return;
  for (int host = 1; host <= kHosts; ++host) hosts_->HangAgent(host, false);
  // Also after a failure the next test finds hosts as new.
  if (HasFailure()) TearDownTestSuite();
}

std::unique_ptr<Subprocess> HostsTest::Start(const std::string& hostfile, const Words& more,
                                             std::vector<std::pair<std::string, std::string>> environment) {
  WriteFileOrDie(hosts_->Outside(kHostFile), hostfile);
  std::filesystem::remove(hosts_->Outside(kStepLog));
  Words arguments = Generate(kTokens);
  arguments.insert(arguments.end(), {"--hostfile", kHostFile, "--step-log", kStepLog, "--stage-delay-us", "10000"});
  arguments.insert(arguments.end(), more.begin(), more.end());
  return StartVerb(arguments, std::move(environment));
}

std::unique_ptr<Subprocess> HostsTest::StartVerb(const Words& arguments,
                                                 std::vector<std::pair<std::string, std::string>> environment) {
  environment.insert(environment.begin(), {"OMPI_MCA_plm_rsh_agent", hosts_->agent()});
  return hosts_->Start(1, CoordinatorProgram(), arguments, environment);
}

void HostsTest::AwaitSteps(Subprocess* front, int steps) {
  const std::string log = hosts_->Outside(kStepLog);
  for (int i = 0; i < 600; ++i) {
    if (std::filesystem::exists(log) && LinesWith(ReadFileOrDie(log), "{") >= steps) return;
    front->WaitForOutput("\x01", 0.05);  // collects output for a moment
    if (!IsAlive(front->pid())) break;
  }
  ADD_FAILURE() << "no " << steps << " micro-batches; " << front->err();
}

std::vector<ProcessInfo> HostsTest::Stages(int host) {
  std::vector<ProcessInfo> stages = hosts_->Processes(host, "stage_worker");
  // The program has other tasks on a host, too.
  std::erase_if(stages, [](const ProcessInfo& process) { return absl::StrContains(process.command, " --host-"); });
  return stages;
}

pid_t HostsTest::AwaitStage(int host) {
  std::vector<ProcessInfo> stages;
  for (int i = 0; i < 200 && stages.empty(); ++i) {
    if (i > 0) SleepFor(0.1);
    stages = Stages(host);
  }
  EXPECT_EQ(stages.size(), 1u) << "stages on " << EmulatedHosts::Name(host);
  return stages.empty() ? 0 : stages[0].pid;
}

const json& HostsTest::Undisturbed() {
  static const json* answer = [] {
    const ProgramResult result = RunProgram(CoordinatorProgram(), Generate(kTokens));
    EXPECT_EQ(result.exit_code, 0) << result;
    return new json(json::parse(result.out, nullptr, false));
  }();
  return *answer;
}

json HostsTest::ExpectTheAnswer(Subprocess* front, double timeout_s) {
  const ProgramResult result = front->Wait(timeout_s);
  EXPECT_EQ(result.exit_code, 0) << result;
  json answer = json::parse(result.out, nullptr, false);
  if (!answer.is_object()) {
    ADD_FAILURE() << "no answer: " << result.out;
    return {{"timings", json::object()}, {"stages", json::array()}};
  }
  const json& expected = Undisturbed();
  EXPECT_EQ(expected["tokens"].size(), static_cast<size_t>(kTokens));
  EXPECT_EQ(answer["tokens"].dump(), expected["tokens"].dump()) << result.err;
  EXPECT_EQ(answer["logprobs"].dump(), expected["logprobs"].dump()) << result.err;
  EXPECT_EQ(answer["text"], expected["text"]);
  return answer;
}

Words HostsTest::HostsOf(const json& answer) {
  Words hosts;
  for (const json& stage : answer["stages"]) hosts.push_back(stage["host"]);
  return hosts;
}

void HostsTest::ExpectNothingLeft() {
  Words left;
  for (int i = 0; i < 100; ++i) {
    left.clear();
    for (int host = 1; host <= kHosts; ++host) {
      for (const ProcessInfo& process : hosts_->Processes(host))
        left.push_back(absl::StrCat(EmulatedHosts::Name(host), ": process ", process.pid, " ", process.command));
      for (const std::string& file : hosts_->Files(host))
        left.push_back(absl::StrCat(EmulatedHosts::Name(host), ": ", file));
    }
    if (left.empty()) return;
    SleepFor(0.1);
  }
  for (const std::string& thing : left) ADD_FAILURE() << "left behind on " << thing;
}

}  // namespace stagecoach::testing
