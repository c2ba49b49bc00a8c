#include "tests/hosts/support/generation.h"

#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace stagecoach::testing {
namespace {

constexpr char kStepLog[] = "/mnt/steps.jsonl";
constexpr char kHostFile[] = "/mnt/hostfile";

Words GenerateOf(int tokens) {
  return Joined(WordsOf("generate -m MODEL --raw --temp 0.8 --seed 11 --ignore-eos -t 1 --output json --logprobs 3"),
                {"-p", "And Jesus said unto them", "-n", absl::StrCat(tokens)});
}

}  // namespace

EmulatedHosts* HostsTest::hosts_ = nullptr;

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
  if (!IsSkipped()) ExpectNothingLeft();
  for (int host = 1; host <= kHosts; ++host) hosts_->HangAgent(host, false);
  // Also after a failure the next test finds hosts as new.
  if (HasFailure()) TearDownTestSuite();
}

std::unique_ptr<Subprocess> HostsTest::Start(const std::string& hostfile, const Words& more,
                                             std::vector<std::pair<std::string, std::string>> environment) {
  WriteFileOrDie(hosts_->Outside(kHostFile), hostfile);
  std::filesystem::remove(hosts_->Outside(kStepLog));
  const Words over_hosts = {"--hostfile", kHostFile, "--step-log", kStepLog, "--stage-delay-us", "10000"};
  return StartVerb(Joined(Joined(GenerateOf(kTokens), over_hosts), more), std::move(environment));
}

std::unique_ptr<Subprocess> HostsTest::StartUntil(int steps, const std::string& hostfile, const Words& more) {
  auto front = Start(hostfile, more);
  AwaitSteps(front.get(), steps);
  return front;
}

std::unique_ptr<Subprocess> HostsTest::StartVerb(const Words& arguments,
                                                 std::vector<std::pair<std::string, std::string>> environment) {
  environment.insert(environment.begin(), {"OMPI_MCA_plm_rsh_agent", hosts_->agent()});
  return hosts_->Start(1, CoordinatorProgram(), arguments, environment);
}

void HostsTest::AwaitSteps(Subprocess* front, int steps) {
  const std::string log = hosts_->Outside(kStepLog);
  const auto done = [&] { return LinesIn(log) >= steps || !IsAlive(front->pid()); };
  EXPECT_TRUE(front->WaitUntil(done, 30) && LinesIn(log) >= steps)
      << "no " << steps << " micro-batches; " << front->err();
}

std::vector<ProcessInfo> HostsTest::Stages(int host) {
  std::vector<ProcessInfo> stages = hosts_->Processes(host, "stage_worker");
  // The program has other tasks on a host, too.
  std::erase_if(stages, [](const ProcessInfo& process) { return absl::StrContains(process.command, " --host-"); });
  return stages;
}

pid_t HostsTest::AwaitStage(int host) {
  std::vector<ProcessInfo> stages;
  ComesTrue([&] { return !(stages = Stages(host)).empty(); });
  EXPECT_EQ(stages.size(), 1u) << "stages on " << EmulatedHosts::Name(host);
  return stages.empty() ? 0 : stages[0].pid;
}

const Json& HostsTest::Undisturbed() {
  static const Json* answer = new Json(CoordinatorJson(GenerateOf(kTokens)));
  return *answer;
}

Json HostsTest::ExpectTheAnswer(Subprocess* front, const Words& hosts) {
  const ProgramResult result = front->Wait(60);
  EXPECT_EQ(result.exit_code, 0) << result;
  Json answer = Json::parse(result.out, nullptr, false);
  if (!answer.is_object()) {
    ADD_FAILURE() << "no answer: " << result.out;
    return {{"timings", Json::object()}, {"stages", Json::array()}};
  }
  const Json& expected = Undisturbed();
  EXPECT_EQ(expected["tokens"].size(), static_cast<size_t>(kTokens));
  EXPECT_EQ(answer["tokens"].dump(), expected["tokens"].dump()) << result.err;
  EXPECT_EQ(answer["logprobs"].dump(), expected["logprobs"].dump()) << result.err;
  EXPECT_EQ(answer["text"], expected["text"]);
  Words found;
  for (const Json& stage : answer["stages"]) found.push_back(stage["host"]);
  if (!hosts.empty()) {
    EXPECT_EQ(found, hosts) << result.err;
  }
  return answer;
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
