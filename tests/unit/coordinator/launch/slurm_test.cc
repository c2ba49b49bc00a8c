#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "coordinator/launch/hosts/allocation.h"
#include "coordinator/launch/launch_plan.h"
#include "coordinator/launch/launcher.h"
#include "tests/testing/shared_data.h"

namespace stagecoach {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(SlurmTasks, AreReadInSlurmsForm) {
  EXPECT_THAT(ParseTasksPerNode("2(x3),1").value(), ElementsAre(2, 2, 2, 1));
  EXPECT_THAT(ParseTasksPerNode("16").value(), ElementsAre(16));
  for (const char* text :
       {"", "x", "2(x3", "2(3)", "0", "-1", "2(x0)", "2(x99999999)", "1,,1", "65536(x65536),1(x2)"}) {
    EXPECT_EQ(ParseTasksPerNode(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

// An allocation of two nodes, the first of which is this host, with programs in the place of Slurm's.
class SlurmTest : public ::testing::Test {
 protected:
  SlurmTest() {
    Program("srun", "echo 'MPI plugin types are...'\nprintf '\\tnone\\n\\tpmix\\n'");
    Program("scontrol", "[ \"$*\" = 'show hostnames n[1-2]' ] && printf 'n1\\nn2.invalid\\n'");
    Program("mpirun", ":");
    path_ = std::getenv("PATH");
    Set("PATH", directory_ + ":" + path_);
    Set("SLURM_JOB_ID", "7");
    Set("SLURM_JOB_NODELIST", "n[1-2]");
    Set("SLURMD_NODENAME", "n1");
    Set("SLURM_TASKS_PER_NODE", "2(x2)");
    options_.coordinator_path = options_.stage_worker_path = directory_ + "/mpirun";
  }
  ~SlurmTest() override {
    for (const std::string& name : set_) unsetenv(name.c_str());
    setenv("PATH", path_.c_str(), 1);
  }
  void Program(const std::string& name, const std::string& script) {
    std::ofstream(directory_ + "/" + name) << "#!/bin/sh\n" << script << "\n";
    chmod((directory_ + "/" + name).c_str(), 0755);
  }
  void Set(const std::string& name, const std::string& value) {
    setenv(name.c_str(), value.c_str(), 1);
    set_.push_back(name);
  }

  // What srun is told where the tasks lie.
  std::string HostsFile(const LaunchPlan& plan, const Placement& placement) {
    EXPECT_TRUE(plan.backend->WriteFiles(placement, {directory_, "/dev/shm/stagecoach.aaaaaa"}).ok());
    return Contents("hosts");
  }
  std::string Contents(const std::string& name) const { return testing::ReadFileOrDie(directory_ + "/" + name); }

  LaunchPlan Resolved() const {
    absl::StatusOr<LaunchPlan> plan = ResolveLaunch(options_);
    EXPECT_TRUE(plan.ok()) << plan.status();
    return plan.ok() ? *std::move(plan) : LaunchPlan();
  }
  std::string Refusal() const { return std::string(ResolveLaunch(options_).status().message()); }

  const testing::TempDir temporary_;
  const std::string directory_ = temporary_.path();
  std::string path_;
  std::vector<std::string> set_;
  LaunchOptions options_;
};

TEST_F(SlurmTest, AnAllocationsNodesAreTheHostsAndSrunStartsTheRanks) {
  const LaunchPlan plan = Resolved();
  EXPECT_STREQ(plan.backend->name(), "srun");
  EXPECT_EQ(plan.stages, 2);  // no tasks were asked for: one stage a node
  const Placement placement = PlaceStages(plan.hosts, plan.stages, {});
  const LaunchPlaces places = {directory_, "/dev/shm/stagecoach.aaaaaa"};
  const std::vector<std::string> line = plan.backend->Arguments(plan.programs, placement, places);
  EXPECT_THAT(line, Contains("--mpi=pmix"));
  EXPECT_THAT(line, Contains("--ntasks=3"));
  EXPECT_THAT(line, Contains("--export=ALL"));
  EXPECT_THAT(line.back(), HasSubstr("case $SLURM_PROCID in 0) exec "));
  EXPECT_THAT(line.back(), HasSubstr(";; 1) exec "));
  EXPECT_THAT(line.back(), HasSubstr(";; 2) exec "));
  EXPECT_EQ(HostsFile(plan, placement), "n1\nn1\nn2.invalid\n");
  std::vector<std::string> environment;
  plan.backend->SetEnvironment(placement, places, &environment);
  EXPECT_THAT(environment, Contains("SLURM_HOSTFILE=" + directory_ + "/hosts"));
  EXPECT_THAT(environment, Contains("OMPI_MCA_btl_vader_backing_directory=/dev/shm/stagecoach.aaaaaa"));
}

// salloc does not say on which node its shell runs.
TEST_F(SlurmTest, WithoutANameOfItsOwnThisNodeHasTheOneOfTheHost) {
  unsetenv("SLURMD_NODENAME");
  char name[256] = {};
  ASSERT_EQ(gethostname(name, sizeof(name) - 1), 0);
  Program("scontrol", "printf '%s\\nn2.invalid\\n' " + std::string(name));
  const LaunchPlan plan = Resolved();
  EXPECT_EQ(HostsFile(plan, PlaceStages(plan.hosts, 2, {})), absl::StrCat(name, "\n", name, "\nn2.invalid\n"));
  const std::string short_name = std::string(name).substr(0, std::string(name).find('.'));
  EXPECT_EQ(HostsFile(plan, {.hosts = {{"localhost", 1, true}}}), absl::StrCat(short_name, "\n", short_name, "\n"));
}

TEST_F(SlurmTest, AnAllocationOfThisNodeAloneIsAskedNothing) {
  Set("SLURM_JOB_NODELIST", "n1");
  Program("scontrol", "echo 'not in this container'; exit 127");
  options_.stages = 3;
  const LaunchPlan plan = Resolved();
  EXPECT_TRUE(plan.AllHere());
  EXPECT_EQ(plan.stages, 3);
}

TEST_F(SlurmTest, TasksOfAnAllocationOfThisNodeAloneAreItsSlots) {
  Set("SLURM_JOB_NODELIST", "n1");
  Set("SLURM_NTASKS", "3");
  Set("SLURM_TASKS_PER_NODE", "3");
  EXPECT_EQ(Resolved().stages, 3);
  EXPECT_TRUE(Resolved().AllHere());
  options_.stages = 2;
  EXPECT_EQ(Resolved().stages, 2);
  options_.stages = 4;
  EXPECT_THAT(Refusal(), HasSubstr("4 stages need 4 slots, but the Slurm allocation has 3"));
  Set("SLURM_STEP_ID", "0");  // a shell by `srun --pty --ntasks=1` in a larger allocation
  Set("SLURM_NTASKS", "1");
  Set("SLURM_TASKS_PER_NODE", "1");
  EXPECT_EQ(Resolved().stages, 4);
}

TEST_F(SlurmTest, AVariableThatIsLeftOverIsNamed) {
  unsetenv("SLURM_JOB_NODELIST");
  EXPECT_THAT(Refusal(), HasSubstr("unset SLURM_JOB_ID"));
  Set("SLURM_JOB_NODELIST", "n[1-2]");
  Program("scontrol", "exit 1");
  EXPECT_THAT(Refusal(), HasSubstr("unset SLURM_JOB_ID"));
}

TEST_F(SlurmTest, TasksThatWereAskedForAreTheSlots) {
  Set("SLURM_NTASKS_PER_NODE", "2");
  const LaunchPlan plan = Resolved();
  EXPECT_EQ(plan.stages, 4);
}

// Its ranks are children of Slurm's, and not of srun.
TEST_F(SlurmTest, RanksOnThisHostAreClearedByTheirName) {
  Set("SLURM_JOB_NODELIST", "n1");
  Program("srun", "case $1 in --mpi=list) echo pmix ;; *) exec sleep 100 ;; esac");
  Program("stage_worker",
          "echo \"$*\" >'" + directory_ + "/new' && mv '" + directory_ + "/new' '" + directory_ + "/asked'");
  options_.stage_worker_path = directory_ + "/stage_worker";
  const LaunchPlan plan = Resolved();
  const Placement placement = PlaceStages(plan.hosts, plan.stages, {});
  std::string name;
  {
    const absl::StatusOr<std::unique_ptr<Launcher>> launcher = Launcher::Start(plan, placement);
    ASSERT_TRUE(launcher.ok()) << launcher.status();
    EXPECT_FALSE(std::filesystem::exists(directory_ + "/asked"));
    name = (*launcher)->name();
  }
  EXPECT_EQ(Contents("asked"), "--host-report --clear " + name + "\n");

  // The front dies.
  std::filesystem::remove(directory_ + "/asked");
  const pid_t front = fork();
  if (front == 0) {
    const auto launcher = Launcher::Start(plan, placement);
    kill(getpid(), SIGKILL);
  }
  waitpid(front, nullptr, 0);
  for (int i = 0; i < 1000 && !std::filesystem::exists(directory_ + "/asked"); ++i) usleep(10000);
  EXPECT_THAT(Contents("asked"), ::testing::StartsWith("--host-report --clear stagecoach."));
}

TEST_F(SlurmTest, MpirunIsTakenWhereSrunHasNoPmixOrTheUserSaysSo) {
  options_.launcher = LauncherKind::kMpirun;
  EXPECT_STREQ(Resolved().backend->name(), "mpirun");
  options_.launcher = LauncherKind::kAuto;
  Program("srun", "echo none");
  EXPECT_STREQ(Resolved().backend->name(), "mpirun");
}

TEST_F(SlurmTest, SaysWhereToStartTheCoordinatorWhenThisHostIsNotInTheAllocation) {
  Set("SLURMD_NODENAME", "login");
  Program("scontrol", "printf 'n1.invalid\\nn2.invalid\\n'");
  EXPECT_TRUE(absl::IsFailedPrecondition(ResolveLaunch(options_).status()));
  EXPECT_THAT(Refusal(), HasSubstr("this host is none of the Slurm allocation's (n[1-2])"));
  unsetenv("SLURM_JOB_ID");
  options_.launcher = LauncherKind::kSrun;
  EXPECT_THAT(Refusal(), HasSubstr("this is no Slurm allocation"));
}

}  // namespace
}  // namespace stagecoach
