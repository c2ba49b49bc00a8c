#include "stage_worker/host_report.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/host/private_dir.h"
#include "common/net/tcp_trial.h"
#include "common/wire/host_report.h"
#include "tests/testing/matchers.h"
#include "tests/testing/process_tree.h"
#include "tests/testing/shared_data.h"

namespace stagecoach {
namespace {

// A child with this word on its command line, which ends by nothing but SIGKILL.
pid_t StartChild(const std::string& argument) {
  const pid_t child = fork();
  if (child != 0) return child;
  execl("/bin/sh", "sh", "-c", "trap '' TERM INT HUP; while :; do sleep 1; done", argument.c_str(), nullptr);
  _exit(127);
}

bool Ended(pid_t child) {
  int status = 0;
  return waitpid(child, &status, WNOHANG) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
}

TEST(ClearHost, EndsWhatHasTheNameRemovesItsDirectoriesAndSparesTheRest) {
  const absl::StatusOr<std::string> directory = MakePrivateDirectory("/tmp");
  const absl::StatusOr<std::string> other_directory = MakePrivateDirectory("/tmp");
  ASSERT_TRUE(directory.ok() && other_directory.ok());
  const std::string name = directory->substr(5), other = other_directory->substr(5);
  ASSERT_TRUE(MakePrivateDirectoryAt(absl::StrCat("/dev/shm/", name)).ok());
  std::ofstream(*directory + "/file") << "x";
  const pid_t on_line = StartChild(absl::StrCat("--cleanup=/tmp/", name));
  const pid_t stranger = StartChild(absl::StrCat("--cleanup=/tmp/", other));
  const pid_t asking = StartChild(absl::StrCat("ssh node2 stage_worker --host-report --clear ", name));
  setenv("OMPI_MCA_btl_vader_backing_directory", absl::StrCat("/dev/shm/", name).c_str(), 1);
  const pid_t in_environment = StartChild("x");
  unsetenv("OMPI_MCA_btl_vader_backing_directory");
  usleep(100000);  // until each has become its program; before, it would be found by its parent's words

  EXPECT_THAT(ClearHost({name}, absl::Seconds(20)), IsEmpty());
  EXPECT_TRUE(Ended(on_line));
  EXPECT_TRUE(Ended(in_environment));
  for (const pid_t spared : {stranger, asking}) EXPECT_EQ(kill(spared, 0), 0);
  EXPECT_FALSE(std::filesystem::exists(*directory));
  EXPECT_FALSE(std::filesystem::exists("/dev/shm/" + name));
  EXPECT_TRUE(std::filesystem::exists(*other_directory));
  for (const pid_t spared : {stranger, asking}) {
    kill(spared, SIGKILL);
    waitpid(spared, nullptr, 0);
  }
  RemovePrivateDirectories({*other_directory});
}

TEST(ReportHost, SaysWhatTheHostIs) {
  const pb::HostReport report = FindHostReport(ReportHost({}).value()).value();
  EXPECT_GE(report.hello().isas_size(), 1);
  EXPECT_GT(report.hello().available_memory_bytes(), 0u);
  EXPECT_EQ(report.left_size(), 0);
  EXPECT_EQ(report.limits().temporary_directory(), "/tmp");
  EXPECT_GT(report.limits().open_files(), 0u);
}

TEST(ReportHost, NamesWhatIsStoppedOfALaunchAndItsRank) {
  const std::string name = "stagecoach.Look42";
  setenv("OMPI_COMM_WORLD_RANK", "3", 1);
  const pid_t rank = StartChild("/tmp/" + name), other = StartChild("/tmp/stagecoach.Other1");
  unsetenv("OMPI_COMM_WORLD_RANK");
  const auto stopped = [&] { return FindHostReport(*ReportHost({"--look", name}))->stopped(); };
  EXPECT_EQ(stopped().size(), 0);
  for (const pid_t child : {rank, other}) {
    kill(child, SIGSTOP);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, WUNTRACED), child);
  }
  // A child that was stopped before it became its program has its parent's words.
  for (int i = 0; i < 100 && stopped().empty(); ++i) {
    kill(rank, SIGCONT);
    usleep(10000);
    kill(rank, SIGSTOP);
  }
  ASSERT_EQ(stopped().size(), 1);
  EXPECT_EQ(stopped()[0].pid(), rank);
  EXPECT_EQ(stopped()[0].rank(), 3);
  for (const pid_t child : {rank, other}) {
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }
}

TEST(ReportHost, SaysWhetherItCanReadTheModel) {
  const auto model_of = [](const std::string& path) {
    const absl::StatusOr<std::string> line = ReportHost({"--model", path});
    return line.ok() ? std::string(FindHostReport(*line)->hello().model_path()) : std::string(line.status().message());
  };
  EXPECT_EQ(model_of("/proc/self/status"), "/proc/self/status");
  EXPECT_EQ(model_of("/nonexistent/m.gguf"), "");
  EXPECT_EQ(model_of("/tmp"), "");
  EXPECT_THAT(model_of("m.gguf"), HasSubstr("an absolute path"));
}

TEST(ReportHost, ListensWhereItIsToBeTried) {
  std::optional<NetworkAgent> network;
  const std::string line = ReportHost({"--network", "20"}, &network).value();
  EXPECT_TRUE(network.has_value());
  const pb::HostReport report = FindHostReport(line).value();
  EXPECT_GE(report.addresses_size(), 1);
  EXPECT_GT(report.trial_port(), 0);
  EXPECT_EQ(report.trial_token().size(), 16u);
  for (const char* seconds : {"0", "x", "-1", "121", ""}) {
    EXPECT_FALSE(ReportHost({"--network", seconds}, &network).ok()) << seconds;
  }
}

// A front that comes, orders a trial and goes.
TEST(NetworkAgent, TriesWhatItIsToldAndEndsWithItsFront) {
  const std::unique_ptr<TrialServer> target = TrialServer::Listen().value();
  NetworkAgent agent(absl::Seconds(20));
  pb::HostReport report;
  agent.Announce(&report);
  std::thread serving([&agent] { agent.Serve(); });
  TcpTrial front("127.0.0.1", report.trial_port(), report.trial_token(), TrialKind::kControl);
  while (!front.ended()) front.Advance();
  ASSERT_TRUE(front.passed()) << front.error();
  {
    MessageChannel channel(front.Release());
    pb::TrialOrder order;
    order.set_id(7);
    order.set_address("127.0.0.1");
    order.set_port(target->port());
    order.set_token(target->token());
    ASSERT_TRUE(channel.Send(order.SerializeAsString()));
    std::optional<std::string> message;
    while (!message.has_value() && channel.Receive()) {
      target->Advance();
      message = channel.Next();
    }
    pb::TrialOutcome outcome;
    ASSERT_TRUE(message.has_value() && outcome.ParseFromString(*message));
    EXPECT_EQ(outcome.id(), 7);
    EXPECT_EQ(outcome.step(), static_cast<int>(TrialStep::kPassed)) << outcome.error();
  }
  serving.join();
}

TEST(ReportHost, RefusesOtherNamesThanThoseOfLaunches) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"--clear"}, {"--clear", "x"}, {"--clear", "stagecoach.abc/.."}, {"--wipe", "y"}}) {
    EXPECT_THAT(ReportHost(arguments).status(),
                testing::StatusIs(absl::StatusCode::kInvalidArgument,
                                  HasSubstr("expected --clear or --look stagecoach.AbC123")));
  }
}

class HostGuardTest : public ::testing::Test {
 protected:
  const std::string name_ = "stagecoach.G" + std::to_string(getpid() % 90000 + 10000);
  const std::string directory_ = "/tmp/" + name_;
};

TEST_F(HostGuardTest, PassesOnHowTheCommandEnded) {
  EXPECT_EQ(GuardHost({name_, "true"}), 0);
  EXPECT_EQ(GuardHost({name_, "sh", "-c", "exit 3"}), 3);
  EXPECT_EQ(GuardHost({name_, "sh", "-c", "kill -9 $$"}), 128 + 9);
  EXPECT_EQ(GuardHost({name_, "/no/such/program"}), 127);
}

TEST_F(HostGuardTest, TakesANameAndACommand) {
  EXPECT_EQ(GuardHost({}), 2);
  EXPECT_EQ(GuardHost({name_}), 2);
  EXPECT_EQ(GuardHost({"/tmp", "true"}), 2);
}

TEST_F(HostGuardTest, EndsWhatTheCommandLeavesAndRemovesItsDirectories) {
  const testing::TempDir dir;
  // What it leaves goes on in a session of its own, as ranks of an orted that was killed do.
  const std::string script = "mkdir -m 700 " + directory_ + "; touch " + directory_ + "/file; NAME=" + name_ +
                             " setsid sh -c 'echo $$ >" + dir.File("pid") + "; exec sleep 600' >/dev/null 2>&1 & " +
                             "while ! [ -s " + dir.File("pid") + " ]; do sleep 0.01; done; exit 4";
  EXPECT_EQ(GuardHost({name_, "sh", "-c", script}), 4);
  EXPECT_FALSE(testing::IsAlive(std::stoi(testing::ReadFileOrDie(dir.File("pid")))));
  EXPECT_FALSE(std::filesystem::exists(directory_));
}

}  // namespace
}  // namespace stagecoach
