#include "coordinator/launch/launcher.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/launch/hosts/host_file.h"
#include "coordinator/launch/launch_plan.h"
#include "coordinator/launch/launcher_backend.h"
#include "coordinator/launch/launcher_output.h"
#include "tests/testing/matchers.h"
#include "tests/testing/shared_data.h"

namespace stagecoach {
namespace {

constexpr int kNotPermitted = 77;

// From now on this process has no close_range, as under a kernel before 5.9.
bool ForbidCloseRange() {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_close_range, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program = {std::size(filter), filter};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

// A front that starts a launcher which never ends, writes into `report` which session that is and what directories it
// has, and is killed.
[[noreturn]] void RunFront(const std::string& mpirun, const std::string& report) {
  if (!ForbidCloseRange()) _exit(kNotPermitted);
  LaunchPlan plan;
  plan.backend = MakeOpenMpi({.program = mpirun});
  plan.programs = {"/bin/true", "/bin/true"};
  const auto launcher = Launcher::Start(plan, {.hosts = {{"localhost", 1, true}}});
  if (!launcher.ok()) _exit(1);
  while ((*launcher)->Processes().empty()) usleep(1000);
  std::ofstream out(report);
  out << (*launcher)->Processes().front().pid << "\n";
  for (const std::string& directory : (*launcher)->directories()) out << directory << "\n";
  out.close();
  raise(SIGKILL);
  _exit(1);
}

TEST(Launcher, ItsGuardNoticesTheEndOfTheFrontUnderAnOldKernelToo) {
  const testing::TempDir directory;
  const std::string mpirun = directory.File("mpirun"), report = directory.File("report");
  std::ofstream(mpirun) << "#!/bin/sh\nexec sleep 1000\n";
  ASSERT_EQ(chmod(mpirun.c_str(), 0755), 0);
  const pid_t front = fork();
  if (front == 0) RunFront(mpirun, report);
  int status = 0;
  waitpid(front, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == kNotPermitted) GTEST_SKIP() << "NOT RUN: no seccomp filters here";
  ASSERT_TRUE(WIFSIGNALED(status)) << status;
  std::ifstream in(report);
  pid_t session = 0;
  std::vector<std::string> directories;
  in >> session;
  for (std::string path; in >> path;) directories.push_back(path);
  ASSERT_GT(session, 0);
  ASSERT_FALSE(directories.empty());
  const auto is_left = [&] {
    return !ListSession(session).empty() || std::any_of(directories.begin(), directories.end(),
                                                        [](const auto& path) { return std::filesystem::exists(path); });
  };
  for (int i = 0; i < 1000 && is_left(); ++i) usleep(10000);
  EXPECT_FALSE(is_left());
  KillSession(session, /*except=*/0, /*reap=*/false);
  for (const std::string& path : directories) std::filesystem::remove_all(path);
}

constexpr char kDashes[] = "--------------------------------------------------------------------------\n";

TEST(LauncherOutput, ShowsWhatRanksSayAndKeepsBackWhatMpirunSays) {
  LauncherOutput output(std::make_unique<OpenMpiParser>());
  EXPECT_THAT(output.Feed("stage_worker: hel"), IsEmpty());
  EXPECT_THAT(output.Feed("lo\n\n"), ElementsAre("stage_worker: hello"));
  EXPECT_THAT(output.Feed(absl::StrCat(kDashes, "Primary job  terminated normally, but\n", kDashes,
                                       "[node:123] ORTE_ERROR_LOG\n", "[info] ours\n", "last")),
              ElementsAre("[info] ours"));
  EXPECT_THAT(output.FeedEnd(), ElementsAre("last"));
  EXPECT_EQ(output.Tail(),
            "stage_worker: hello\nPrimary job  terminated normally, but\n[node:123] ORTE_ERROR_LOG\n[info] ours\nlast");
}

TEST(LauncherOutput, KeepsTheLastFiftyLinesAndCutsEndlessOnes) {
  LauncherOutput output(std::make_unique<OpenMpiParser>());
  for (int i = 0; i < 120; ++i) output.Feed(absl::StrCat("line ", i, "\n"));
  EXPECT_THAT(output.Tail(), HasSubstr("line 70\n"));
  EXPECT_THAT(output.Tail(), Not(HasSubstr("line 69\n")));
  EXPECT_EQ(output.Feed(std::string(100000, 'x')).size(), 6u);
}

TEST(LauncherOutput, ReadsWhichRankEndedWithACode) {
  LauncherOutput output(std::make_unique<OpenMpiParser>());
  output.Feed(absl::StrCat(
      kDashes, "The first process to do so was:\n\n  Process name: [[16773,1],0]\n  Exit code:    75\n", kDashes));
  EXPECT_EQ(output.death().value().rank, 0);
  EXPECT_EQ(output.death()->how, "ended with exit code 75");
  EXPECT_FALSE(output.death()->crashed);
}

TEST(LauncherOutput, BelievesOnlyMpirunAboutADeath) {
  LauncherOutput output(std::make_unique<OpenMpiParser>());
  output.Feed("mpirun noticed that process rank 2 with PID 0 on node node7 exited on signal 9 (Killed).\n");
  EXPECT_FALSE(output.death().has_value());
}

TEST(LauncherOutput, TellsARankThatCrashedFromOneThatWasKilled) {
  const auto crashed = [](const char* signal) {
    LauncherOutput output(std::make_unique<OpenMpiParser>());
    output.Feed(absl::StrCat(kDashes, "mpirun noticed that process rank 2 with PID 0 on node node7 exited on signal ",
                             signal, ".\n", kDashes));
    EXPECT_EQ(output.death().value().rank, 2);
    EXPECT_EQ(output.death()->how, absl::StrCat("on node7 was ended by signal ", signal));
    return output.death()->crashed;
  };
  EXPECT_TRUE(crashed("11 (Segmentation fault)"));
  EXPECT_TRUE(crashed("6 (Aborted)"));
  EXPECT_FALSE(crashed("7 (Bus error)")) << "memory or a file that went away under the rank";
  EXPECT_FALSE(crashed("9 (Killed)"));
  EXPECT_FALSE(crashed("15 (Terminated)"));
}

TEST(RankName, SaysWhichStageItIsWhereThatIsKnown) {
  EXPECT_EQ(RankName(0, std::nullopt), "rank 0 (the coordinator)");
  EXPECT_EQ(RankName(3, std::nullopt), "rank 3");
  EXPECT_EQ(RankName(3, 0), "rank 3 (stage 0)");
}

TEST(LauncherOutput, ReadsSrunsWordsToo) {
  LauncherOutput output(std::make_unique<SlurmParser>());
  EXPECT_THAT(output.Feed("stage_worker: hello\nsrun: error: node2: task 3: Segmentation fault\n"
                          "srun: error: node1: tasks 0-1: Killed\n"),
              ElementsAre("stage_worker: hello"));
  EXPECT_EQ(output.death().value().rank, 3);
  EXPECT_EQ(output.death()->how, "on node2 ended: Segmentation fault");
  EXPECT_TRUE(output.death()->crashed);
}

TEST(LauncherOutput, ReadsSrunsWordsOfSeveralRanksAtOnce) {
  for (const char* tasks : {"2-3", "2,4", "2,4-5"}) {
    LauncherOutput output(std::make_unique<SlurmParser>());
    output.Feed(absl::StrCat("srun: error: node[1-2]: tasks ", tasks, ": Killed\n"));
    EXPECT_EQ(output.death().value().rank, 2);
    EXPECT_EQ(output.death()->how, "on node[1-2] ended, as others did: Killed");
  }
}

TEST(SlurmTasks, AreReadInSlurmsForm) {
  EXPECT_THAT(ParseTasksPerNode("2(x3),1").value(), ElementsAre(2, 2, 2, 1));
  EXPECT_THAT(ParseTasksPerNode("16").value(), ElementsAre(16));
  for (const char* text :
       {"", "x", "2(x3", "2(3)", "0", "-1", "2(x0)", "2(x99999999)", "1,,1", "65536(x65536),1(x2)"}) {
    EXPECT_EQ(ParseTasksPerNode(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

// An allocation of two nodes, the first of which is this host, with programs in the place of Slurm's.
struct SlurmTest : ::testing::Test {
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

  LaunchPlan Resolved() const { return ResolveLaunch(options_).value(); }
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
    const std::unique_ptr<Launcher> launcher = Launcher::Start(plan, placement).value();
    EXPECT_FALSE(std::filesystem::exists(directory_ + "/asked"));
    name = launcher->name();
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
  EXPECT_THAT(Contents("asked"), StartsWith("--host-report --clear stagecoach."));
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
