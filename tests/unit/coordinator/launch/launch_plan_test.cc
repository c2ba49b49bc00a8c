#include "coordinator/launch/launch_plan.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/host/host_info.h"
#include "common/wire/host_report.h"
#include "coordinator/launch/hosts/host_file.h"
#include "coordinator/launch/hosts/host_networks.h"
#include "coordinator/launch/launch_check.h"
#include "coordinator/launch/launcher_backend.h"
#include "coordinator/launch/program_output.h"
#include "tests/testing/matchers.h"
#include "tests/testing/shared_data.h"

namespace stagecoach {
namespace {

std::vector<std::string> Arguments(const LaunchPlan& plan) {
  return plan.backend->Arguments(plan.programs, PlaceStages(plan.hosts, plan.stages, {}),
                                 {"/t/stagecoach.aaaaaa", "/dev/shm/stagecoach.aaaaaa"});
}

struct LaunchPlanTest : ::testing::Test {
  std::string Program(const std::string& name) {
    const std::string path = directory_ + "/" + name;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::ofstream(path) << "#!/bin/sh\n";
    chmod(path.c_str(), 0755);
    return path;
  }
  std::string File(const std::string& name, const std::string& text) {
    std::ofstream(directory_ + "/" + name) << text;
    return directory_ + "/" + name;
  }
  // Of programs that are there.
  LaunchOptions Options() {
    LaunchOptions options;
    options.mpirun_path = Program("bin/mpirun");
    options.coordinator_path = Program("bin/coordinator");
    options.stage_worker_path = Program("bin/stage_worker");
    return options;
  }

  static LaunchPlan Resolved(const LaunchOptions& options) { return ResolveLaunch(options).value(); }
  static std::string Refusal(const LaunchOptions& options, absl::StatusCode code) {
    const absl::Status status = ResolveLaunch(options).status();
    EXPECT_EQ(status.code(), code);
    return std::string(status.message());
  }

  const testing::TempDir temporary_;
  const std::string directory_ = temporary_.path();
};

TEST_F(LaunchPlanTest, PutsOneHostOnSharedMemoryAloneWithAllFilesInPrivateDirectories) {
  LaunchOptions options = Options();
  options.stages = 3;
  const std::string bin = directory_ + "/bin/";
  EXPECT_THAT(
      Arguments(Resolved(options)),
      ElementsAre(bin + "mpirun", "--bind-to", "none", "--oversubscribe", "--mca", "odls_base_sigkill_timeout", "0",
                  "--mca", "orte_tmpdir_base", "/t/stagecoach.aaaaaa", "--mca", "ras", "^slurm,gridengine,tm,lsf",
                  "--mca", "plm", "isolated", "--mca", "orte_default_hostfile", "none", "--mca", "mpi_yield_when_idle",
                  "1", "--mca", "pml", "ob1", "--mca", "btl_vader_backing_directory", "/dev/shm/stagecoach.aaaaaa",
                  "--mca", "btl", "vader,self", "-n", "1", bin + "coordinator", "engine", "--connect",
                  "/t/stagecoach.aaaaaa/engine.sock", "--cleanup", "/t/stagecoach.aaaaaa", "--cleanup",
                  "/dev/shm/stagecoach.aaaaaa", ":", "-n", "3", bin + "stage_worker"));
}

TEST_F(LaunchPlanTest, FillsTheSlotsOfOtherHostsInOrderAndKeepsRankZeroHere) {
  LaunchOptions options = Options();
  options.stages = 4;
  options.hostfile =
      File("hosts", "# ours\nnode1.invalid slots=2\nlocalhost slots=1 # here\nnode2.invalid slots=4 model=/m.gguf\n");
  const std::string bin = directory_ + "/bin/";
  EXPECT_THAT(
      Arguments(Resolved(options)),
      ElementsAre(bin + "mpirun", "--bind-to", "none", "--oversubscribe", "--mca", "odls_base_sigkill_timeout", "0",
                  "--mca", "orte_tmpdir_base", "/t/stagecoach.aaaaaa", "--mca", "oob_tcp_keepalive_time", "5", "--mca",
                  "oob_tcp_keepalive_intvl", "2", "--mca", "oob_tcp_keepalive_probes", "3", "--mca",
                  "orte_launch_agent", bin + "stage_worker --host-guard stagecoach.aaaaaa orted", "--mca",
                  "mpi_yield_when_idle", "1", "--mca", "pml", "ob1", "--mca", "btl_vader_backing_directory",
                  "/dev/shm/stagecoach.aaaaaa", "--mca", "btl", "vader,tcp,self", "--mca", "btl_tcp_eager_limit",
                  "1048576", "--mca", "btl_tcp_rndv_eager_limit", "1048576", "--mca", "btl_tcp_max_send_size",
                  "2097152", "-n", "1", "--host", "localhost:1", bin + "coordinator", "engine", "--connect",
                  "/t/stagecoach.aaaaaa/engine.sock", "--cleanup", "/t/stagecoach.aaaaaa", "--cleanup",
                  "/dev/shm/stagecoach.aaaaaa", ":", "-n", "2", "--host", "node1.invalid:2", bin + "stage_worker", ":",
                  "-n", "1", "--host", "localhost:1", bin + "stage_worker", ":", "-n", "1", "--host", "node2.invalid:1",
                  bin + "stage_worker", "--model", "/m.gguf"));
}

TEST_F(LaunchPlanTest, IsTheSameForAListOfHostsAsForTheirFile) {
  LaunchOptions file = Options(), list = Options();
  file.hostfile = File("hosts", "node1.invalid slots=2\nlocalhost\nnode2.invalid slots=4\n");
  list.hosts = "node1.invalid:2,localhost,node2.invalid:4";
  for (const int stages : {0, 3, 7}) {
    file.stages = list.stages = stages;
    const std::string line = DescribeLaunch(list).value();
    EXPECT_EQ(line, DescribeLaunch(file).value());
    EXPECT_THAT(line, HasSubstr("-n 2 --host node1.invalid:2 "));
  }
}

TEST_F(LaunchPlanTest, TakesAHostFileThatNamesOnlyThisHostAsLocalStages) {
  LaunchOptions options = Options();
  options.hostfile = File("hosts", "localhost slots=3\n");
  const std::string line = DescribeLaunch(options).value();
  EXPECT_THAT(line, HasSubstr(absl::StrCat(" : -n 3 ", directory_, "/bin/stage_worker")));
  EXPECT_THAT(line, HasSubstr("--mca btl vader,self "));
  EXPECT_THAT(line, Not(HasSubstr("--host")));
}

TEST_F(LaunchPlanTest, StartsTheDraftBehindTheStagesOnTheHostThatIsNamedForIt) {
  LaunchOptions options = Options();
  options.hostfile = File("hosts", "node9.invalid draft model=/d.gguf\nnode1.invalid slots=2\nnode2.invalid spare\n");
  EXPECT_THAT(DescribeLaunch(options).value(), Not(HasSubstr("node9"))) << "nobody drafts";
  options.job.set_draft_model_path("/models/draft.gguf");
  const LaunchPlan plan = Resolved(options);
  EXPECT_EQ(plan.stages, 2);
  const std::string worker = absl::StrCat(directory_, "/bin/stage_worker");
  EXPECT_THAT(DescribeLaunch(options).value(),
              ::testing::EndsWith(absl::StrCat(" : -n 2 --host node1.invalid:2 ", worker,
                                               " : -n 1 --host node9.invalid:1 ", worker, " --model /d.gguf")));
  Placement placement = PlaceStages(plan.hosts, 2, {"node1.invalid"});
  PlaceDraft(plan.hosts, {"node1.invalid"}, &placement);
  EXPECT_EQ(placement.Describe(), "1 on node2.invalid, the draft on node9.invalid");
  EXPECT_EQ(placement.stages(), 1);
  EXPECT_EQ(placement.ranks(), 3);
  PlaceDraft(plan.hosts, {"node9.invalid"}, &(placement = PlaceStages(plan.hosts, 2, {})));
  EXPECT_EQ(placement.draft(), nullptr);
  EXPECT_EQ(placement.ranks(), 3);
}

TEST_F(LaunchPlanTest, StartsADraftThatHasNoHostOfItsOwnOnThisOne) {
  LaunchOptions options = Options();
  options.job.set_draft_model_path("/models/draft.gguf");
  options.stages = 2;
  const std::string worker = absl::StrCat(directory_, "/bin/stage_worker");
  EXPECT_THAT(DescribeLaunch(options).value(),
              ::testing::EndsWith(absl::StrCat(" : -n 2 ", worker, " : -n 1 ", worker)));
  options.hosts = "node1.invalid:2";
  EXPECT_THAT(DescribeLaunch(options).value(),
              ::testing::EndsWith(absl::StrCat(" : -n 1 --host localhost:1 ", worker)));
}

TEST_F(LaunchPlanTest, LetsTheUsersOwnSettingsReplaceOurs) {
  LaunchOptions options = Options();
  options.launcher_args = "--bind-to core --mca pml ucx -x 'NAME=two words'";
  const std::string line = DescribeLaunch(options).value();
  EXPECT_THAT(line, HasSubstr(" --bind-to core --mca pml ucx -x 'NAME=two words' -n 1 "));
  EXPECT_THAT(line, Not(HasSubstr("--bind-to none")));
  EXPECT_THAT(line, Not(HasSubstr("ob1")));
}

TEST_F(LaunchPlanTest, TellsOpenMpiTheNetworksThatWereFoundBeforeTheLaunch) {
  LaunchOptions options = Options();
  options.hosts = "node1.invalid";
  const auto line = [&](const Networks& networks) {
    const LaunchPlan plan = ResolveLaunch(options).value();
    Placement placement = PlaceStages(plan.hosts, plan.stages, {});
    placement.networks = networks;
    return JoinShellWords(
        plan.backend->Arguments(plan.programs, placement, {"/t/stagecoach.aaaaaa", "/dev/shm/stagecoach.aaaaaa"}));
  };
  EXPECT_THAT(line({}), Not(HasSubstr("_if_")));
  EXPECT_THAT(line({.include = "10.77.0.0/22"}), AllOf(HasSubstr("--mca oob_tcp_if_include 10.77.0.0/22 "),
                                                       HasSubstr("--mca btl_tcp_if_include 10.77.0.0/22 ")));
  EXPECT_THAT(line({.include = "", .exclude = "docker0,lo", .ipv6 = true}),
              AllOf(HasSubstr("--mca oob_tcp_if_exclude docker0,lo --mca oob_tcp_disable_ipv4_family 1 "),
                    HasSubstr("--mca btl_tcp_if_exclude docker0,lo --mca btl_tcp_disable_family 4 ")));
  // Open MPI refuses an exclusion beside an inclusion, wherever they come from.
  EXPECT_EQ(ResolveLaunch(options)->backend->OwnNetworks(), "");
  options.launcher_args = "--mca btl_tcp_if_exclude docker0";
  EXPECT_EQ(ResolveLaunch(options)->backend->OwnNetworks(), "btl_tcp_if_exclude=docker0");
  EXPECT_THAT(line({.include = "10.77.0.0/22"}), Not(HasSubstr("if_include")));
  options.launcher_args = "--mca btl_tcp_port_min_v4 46000";
  EXPECT_EQ(ResolveLaunch(options)->backend->OwnNetworks(), "btl_tcp_port_min_v4=46000");
  EXPECT_THAT(line({.include = "10.77.0.0/22"}), HasSubstr("--mca btl_tcp_if_include 10.77.0.0/22 "))
      << "ports choose no interfaces";
  options.launcher_args.clear();
  setenv("OMPI_MCA_btl_tcp_if_include", "ib0", 1);
  EXPECT_EQ(ResolveLaunch(options)->backend->OwnNetworks(), "btl_tcp_if_include=ib0");
  EXPECT_THAT(line({.include = "10.77.0.0/22"}), Not(HasSubstr("if_include")));
  unsetenv("OMPI_MCA_btl_tcp_if_include");
}

// mpirun puts it into a shell's line on the other host as it is.
TEST_F(LaunchPlanTest, GuardsNoHostByAProgramWhosePathAShellWouldChange) {
  LaunchOptions options = Options();
  options.hosts = "node1.invalid";
  EXPECT_THAT(DescribeLaunch(options).value(), HasSubstr("orte_launch_agent"));
  for (const char* name : {"two words/stage_worker", "$HOME/stage_worker", "a;b/stage_worker", "it's/stage_worker"}) {
    options.stage_worker_path = Program(name);
    EXPECT_THAT(DescribeLaunch(options).value(), Not(HasSubstr("orte_launch_agent"))) << name;
  }
}

TEST_F(LaunchPlanTest, LogsInToAHostAsMpirunWill) {
  LaunchOptions options = Options();
  options.hosts = "node1.invalid";
  const std::vector<std::string> command = {"say", "two words"};
  const std::string line = JoinShellWords({"node1.invalid", JoinShellWords(command)});
  const auto login = [&] {
    return JoinShellWords(ResolveLaunch(options).value().backend->RemoteCommand("node1.invalid", command));
  };
  EXPECT_EQ(login(), "ssh " + line);
  setenv("OMPI_MCA_orte_rsh_agent", "no-such-shell : /bin/sh -x : ssh", 1);
  EXPECT_EQ(login(), "/bin/sh -x " + line);
  options.launcher_args = "--mca plm_rsh_agent 'oarsh -v' --mca plm_rsh_args '-p 22'";
  EXPECT_EQ(login(), "oarsh -v -p 22 " + line);
  unsetenv("OMPI_MCA_orte_rsh_agent");
  options.launcher_args.clear();
  options.rsh_agent = "/opt/agent";
  EXPECT_EQ(login(), "/opt/agent " + line);
}

TEST_F(LaunchPlanTest, SeeksTheStageWorkerBesideTheCoordinatorAndThenInItsSistersDirectory) {
  LaunchOptions options = Options();
  options.coordinator_path = Program("build/coordinator/coordinator");
  options.stage_worker_path.clear();
  EXPECT_THAT(Refusal(options, absl::StatusCode::kNotFound),
              AllOf(HasSubstr(directory_ + "/build/coordinator/stage_worker, "),
                    HasSubstr(directory_ + "/build/stage_worker/stage_worker")));
  for (const char* place : {"build/stage_worker/stage_worker", "build/coordinator/stage_worker"}) {
    const std::string found = Program(place);
    EXPECT_EQ(Resolved(options).programs.stage_worker, found);
  }
}

TEST_F(LaunchPlanTest, NamesWhatIsMissingOrWrong) {
  const auto refusal = [&](absl::StatusCode code, const std::function<void(LaunchOptions*)>& change) {
    LaunchOptions options = Options();
    change(&options);
    return Refusal(options, code);
  };
  const auto not_found = absl::StatusCode::kNotFound, invalid = absl::StatusCode::kInvalidArgument;
  EXPECT_THAT(refusal(not_found, [](LaunchOptions* o) { o->mpirun_path = "no-such-mpirun"; }),
              HasSubstr("no 'no-such-mpirun' in PATH"));
  EXPECT_THAT(refusal(not_found, [](LaunchOptions* o) { o->stage_worker_path = "/nowhere/stage_worker"; }),
              HasSubstr("tried /nowhere/stage_worker"));
  refusal(not_found, [&](LaunchOptions* o) { o->hostfile = directory_ + "/absent"; });
  const std::string hosts = File("hosts", "localhost slots=2\n");
  EXPECT_THAT(refusal(invalid, [&](LaunchOptions* o) { o->hostfile = hosts, o->stages = 3; }),
              AllOf(HasSubstr("3 stages need 3 slots"), HasSubstr("lower `stages`")));
  EXPECT_THAT(refusal(invalid,
                      [&](LaunchOptions* o) {
                        o->hostfile = hosts, o->stages = 3;
                        o->job.mutable_planned_for();
                      }),
              AllOf(HasSubstr("or leave `planned_for` out"), Not(HasSubstr("`stages`"))))
      << "a plan fixes them";
  EXPECT_THAT(refusal(invalid, [](LaunchOptions* o) { o->hosts = "localhost,localhost", o->stages = 3; }),
              HasSubstr("3 stages need 3 slots, but the list of `hosts` has 2"));
  refusal(invalid, [&](LaunchOptions* o) { o->hosts = "localhost,localhost", o->hostfile = hosts; });
  refusal(invalid, [](LaunchOptions* o) { o->stages = -1; });
  EXPECT_THAT(refusal(invalid, [](LaunchOptions* o) { o->launcher_args = "--x 'open"; }),
              HasSubstr("`launcher_args`: the quote ' is not closed"));
}

TEST(HostFile, IsReadAsOpenMpiReadsItAndHasSpareHostsAndModels) {
  EXPECT_THAT(
      ParseHostFile("h", "# all\n\n node1 \t slots=2 max_slots=4\r\nnode-2.example # one\nnode1 slots=1").value(),
      ElementsAre(HostSlots{.name = "node1", .slots = 2}, HostSlots{.name = "node-2.example"},
                  HostSlots{.name = "node1"}));
  EXPECT_THAT(
      ParseHostFile("h",
                    "\xEF\xBB\xBFnode1 slots = 2\r\nnode2 slots= 3 max-slots =4 // two\r\nnode3 count=2\nnode4 cpu=5 "
                    "slots_max=5\n// all\nnode5 model = /a//m.gguf spare\r\n192.0.2.7\n")
          .value(),
      ElementsAre(HostSlots{"node1", 2}, HostSlots{"node2", 3}, HostSlots{"node3", 2}, HostSlots{"node4", 5},
                  HostSlots{"node5", 1, true, "/a//m.gguf"}, HostSlots{"192.0.2.7"}));
  EXPECT_THAT(ParseHostFile("h", "node1 model=/scratch/m.gguf slots=2\nnode2 spare slots=3 model=/m.gguf").value(),
              ElementsAre(HostSlots{"node1", 2, false, "/scratch/m.gguf"}, HostSlots{"node2", 3, true, "/m.gguf"}));
  EXPECT_THAT(ParseHostFile("h", "node1\nnode9 slots=1 draft").value(),
              ElementsAre(HostSlots{"node1"}, HostSlots{.name = "node9", .draft = true}));
}

TEST(HostFile, NamesFileAndLineOfEveryMistake) {
  for (const auto& [text, message] : std::vector<std::pair<std::string, std::string>>{
           {"", "names no host"},
           {"# nothing\n", "names no host"},
           {"a\nb slots=0\n", "line 2: 'slots=0', expected a number from 1 to"},
           {"b slots=x", "line 1: 'slots=x'"},
           {"b slots=99999999999999", "line 1: 'slots=99999999999999'"},
           {"b slots", "line 1: 'slots'"},
           {"b slots=3 max_slots=2", "line 1: slots=3 is more than max_slots=2"},
           {"b spare\n", "names no host that is not spare"},
           {"b draft\n", "names no host that is not spare or the draft's"},
           {"a\nb draft slots=2", "line 2: a draft is one process"},
           {"a\nb draft spare", "line 2: a draft is one process"},
           {"a\nb draft\nc draft", "line 3: a job has one draft"},
           {"b model=m.gguf", "line 1: 'model=m.gguf', expected an absolute path"},
           {"b cores=3", "line 1: 'cores=3' is not understood"},
           {"--mca slots=1", "line 1: '--mca' is no host name"},
           {"a:3", "line 1: 'a:3' is no host name"},
           {"a =3", "line 1: '=3' is not understood"},
           {"a slots =", "line 1: 'slots=', expected a number"},
           {"a\nann@b slots=2", "line 2: 'ann@b' names a user; write the host alone, and the user into ~/.ssh/config"},
           {"a username=ann", "line 1: 'username=ann' is a setting of the login"},
           {"a port = 2222", "line 1: 'port=2222' is a setting of the login"},
           {"::1 slots=2", "line 1: '::1' is an IPv6 address"},
           {"[fe80::1%eth0] slots=2", "line 1: '[fe80::1%eth0]' is an IPv6 address"},
           {"a\n2001:db8::7", "line 2: '2001:db8::7' is an IPv6 address"},
           {"^a", "line 1: '^a' chooses among hosts"},
           {"+n0", "line 1: '+n0' chooses among hosts"},
           {"/* a */", "line 1: comments of several lines"},
           {std::string("\xFF\xFE"
                        "a\0\n\0",
                        6),
            "line 1: the file is written in UTF-16"}}) {
    const absl::Status status = ParseHostFile("my.hosts", text).status();
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("host file 'my.hosts'"))) << text;
    EXPECT_THAT(status.message(), HasSubstr(message));
  }
}

TEST(HostList, ReadsNamesAndSlots) {
  EXPECT_THAT(ParseHostList("node1:2,node-2.example,node1").value(),
              ElementsAre(HostSlots{.name = "node1", .slots = 2}, HostSlots{.name = "node-2.example"},
                          HostSlots{.name = "node1"}));
}

TEST(HostList, NamesThePartThatIsWrong) {
  for (const auto& [text, message] :
       std::vector<std::pair<std::string, std::string>>{{"", "''"},
                                                        {"a,,b", "''"},
                                                        {"a,:2", "':2' does not begin with a host name"},
                                                        {"a b", "'a b'"},
                                                        {"-x:1", "'-x:1'"},
                                                        {"b:", "'b:' does not end with a number of slots"},
                                                        {"b:0", "'b:0'"},
                                                        {"b:x", "'b:x'"},
                                                        {"b:1:2", "'b:1:2'"},
                                                        {"a,[::1]:2", "'[::1]:2' is an IPv6 address"},
                                                        {"::1", "'::1' is an IPv6 address"},
                                                        {"ann@b:2", "'ann@b' names a user"},
                                                        {"b:99999999999", "'b:99999999999'"}}) {
    const absl::Status status = ParseHostList(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(status.message(), HasSubstr(absl::StrCat("`hosts`: ", message))) << text;
  }
}

TEST(ShellWords, AreSplitAsAShellWould) {
  const auto words = SplitShellWords(R"( a  'b c' "d \"e\" \f" g\ h '' i"j"k)").value();
  EXPECT_THAT(words, ElementsAre("a", "b c", "d \"e\" \\f", "g h", "", "ijk"));
  EXPECT_FALSE(SplitShellWords("a \"b").ok());
}

TEST(ShellWords, SurviveJoiningAndSplitting) {
  const std::vector<std::string> words = {"plain", "two words", "it's", "", "$HOME", "a\"b", ":", "back\\slash", "*"};
  EXPECT_EQ(SplitShellWords(JoinShellWords(words)).value(), words);
}

TEST(LaunchEnvironment, DropsAnOuterJobAndKeepsTheUsersSettings) {
  EXPECT_THAT(
      LaunchEnvironment({"PATH=/bin", "OMPI_COMM_WORLD_RANK=0", "OMPI_MCA_btl=tcp,self", "OMPI_MCA_orte_hnp_uri=x",
                         "OMPI_MCA_ess=pmi", "PMIX_RANK=0", "PMI_RANK=1", "OPAL_PREFIX=/x", "ORTE_Y=1", "HOMPI_X=1"}),
      UnorderedElementsAre("PATH=/bin", "OMPI_MCA_btl=tcp,self", "HOMPI_X=1", "HWLOC_COMPONENTS=-gl,-pci,-linuxio"));
  EXPECT_THAT(LaunchEnvironment({"OMPI_MCA_orte_tmpdir_base=/x", "OMPI_ALLOW_RUN_AS_ROOT=0"}),
              UnorderedElementsAre("OMPI_MCA_orte_tmpdir_base=/x", "HWLOC_COMPONENTS=-gl,-pci,-linuxio"));
}

TEST(LaunchEnvironment, LetsTheUserChooseWhatHwlocLooksFor) {
  EXPECT_THAT(LaunchEnvironment({"HWLOC_COMPONENTS=linux,stop"}), UnorderedElementsAre("HWLOC_COMPONENTS=linux,stop"));
}

// Or ssh would ask it for a password, and wait for ever.
TEST(ProgramOutput, IsOfAProgramThatHasNoTerminal) {
  const absl::StatusOr<ProgramOutput> output =
      RunForOutput({"sh", "-c", "read -r pid name state parent group session rest </proc/$$/stat; echo $pid $session"},
                   absl::Seconds(20));
  ASSERT_TRUE(output.ok()) << output.status();
  const std::vector<std::string> numbers = absl::StrSplit(output->text, absl::ByAnyChar(" \n"), absl::SkipEmpty());
  ASSERT_EQ(numbers.size(), 2u) << output->text;
  EXPECT_EQ(numbers[0], numbers[1]) << "it leads no session of its own";
}

TEST(LocalHost, KnowsItsOwnNames) {
  char name[256] = {};
  ASSERT_EQ(gethostname(name, sizeof(name) - 1), 0);
  EXPECT_TRUE(IsThisHost("localhost"));
  EXPECT_TRUE(IsThisHost("127.0.0.1"));
  EXPECT_TRUE(IsThisHost(name));
  EXPECT_FALSE(IsThisHost("192.0.2.200"));
  EXPECT_EQ(NetworksTowards({"192.0.2.200", "127.0.0.1"}), "");
}

TEST(LauncherVersion, TellsOpenMpisMpirunFromOthers) {
  const testing::TempDir directory;
  LaunchPlan plan;
  plan.backend = MakeOpenMpi({.program = ""});
  plan.launcher = directory.File("mpirun");
  const auto version = [&](const std::string& script) {
    std::ofstream(plan.launcher) << "#!/bin/sh\n" << script << "\n";
    chmod(plan.launcher.c_str(), 0755);
    return LauncherVersion(plan);
  };
  EXPECT_EQ(version("echo 'mpirun (Open MPI) 4.1.4'; echo; echo 'Report bugs'").value(), "mpirun (Open MPI) 4.1.4");
  EXPECT_EQ(version("echo 'loading modules'; echo 'mpirun (Open MPI) 4.1.4'").value(), "loading modules");
  EXPECT_EQ(version(":").value(), "") << "a script that passes on other things";
  EXPECT_TRUE(version("echo 'unknown option'; exit 1").ok());
  for (const char* other : {"HYDRA build details:", "Intel(R) MPI Library for Linux* OS, Version 2021.9"}) {
    const absl::Status status = version(absl::StrCat("echo '", other, "'")).status();
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("is not Open MPI's: it says '")));
    EXPECT_THAT(status.message(), HasSubstr("openmpi-bin"));
  }
}

TEST(Shortages, OfAnotherHostCountItsSlots) {
  HostLimits limits;
  limits.shared_memory.free_bytes = 10ull << 20;
  pb::HostReport report;
  const std::vector<LaunchHost> hosts = {{{.name = "a", .slots = 2}}, {{.name = "b", .slots = 9}}, {{.name = "a"}}};
  EXPECT_THAT(ShortagesThere(report, "a", hosts, 12, 0), IsEmpty()) << "it does not say";
  *report.mutable_limits() = ToProto(limits);
  EXPECT_THAT(ShortagesThere(report, "a", hosts, 2, 0), IsEmpty());
  EXPECT_THAT(ShortagesThere(report, "a", hosts, 12, 0), ElementsAre(HasSubstr("3 ranks exchange messages by 15 MiB")));
}

TEST(Shortages, TheTemporaryDirectoryIsTheUsersOnThisHostAlone) {
  const testing::TempDir directory;
  const char* before = std::getenv("TMPDIR");
  const std::string restored = before != nullptr ? before : "";
  setenv("TMPDIR", directory.path().c_str(), 1);
  EXPECT_EQ(TemporaryDirectoryOf({.hosts = {{"localhost", 2, true}}}), directory.path());
  EXPECT_EQ(TemporaryDirectoryOf({.hosts = {{"localhost", 2, true}, {"b", 1, false}}}), "/tmp");
  if (before == nullptr) {
    unsetenv("TMPDIR");
  } else {
    setenv("TMPDIR", restored.c_str(), 1);
  }
}

TEST(AdviceForLaunch, ListsTheSettingsOfOpenMpiAndSaysWhichToUnset) {
  const std::vector<std::string> two = {"PATH=/bin", "OMPI_MCA_btl=tcp,nonesuch", "OMPI_MCA_mpi_x=1"};
  const std::string about_one = AdviceForLaunch(
      "mpirun", "A requested component was not found\n  Framework: btl\n  Component: nonesuch", "", two);
  EXPECT_THAT(about_one, HasSubstr("OMPI_MCA_btl='tcp,nonesuch', OMPI_MCA_mpi_x='1'"));
  EXPECT_THAT(about_one, HasSubstr("about one of these: unset OMPI_MCA_btl; "));
  EXPECT_THAT(about_one, Not(HasSubstr("`stages`")));
  // Numbers are no components, and a framework's name is not a part of another word.
  EXPECT_THAT(
      AdviceForSettings("1 more process has sent help message help-mpi-errors.txt / mpi_errors_are_fatal unknown "
                        "handle\nSet MCA parameter \"orte_base_help_aggregate\" to 0 to see all help",
                        {"OMPI_MCA_coll=nonesuch", "OMPI_MCA_mpi_warn_on_fork=0"}),
      HasSubstr("unset OMPI_MCA_coll OMPI_MCA_mpi_warn_on_fork"));
  EXPECT_THAT(AdviceForLaunch("mpirun", "something", "", two), HasSubstr("unset OMPI_MCA_btl OMPI_MCA_mpi_x; "));
  EXPECT_THAT(AdviceForSettings("", two), StartsWith("; Open MPI is set otherwise than usual by OMPI_MCA_btl="));
  EXPECT_EQ(AdviceForSettings("", {"PATH=/bin", "PMIX_RANK=0"}), "");
}

TEST(AdviceForLaunch, NamesAllocationsThatMayBeOverAndTheUsersArguments) {
  EXPECT_THAT(
      AdviceForLaunch("srun", "srun: error: Invalid job id specified", "", {"SLURM_JOB_ID=7"}),
      StartsWith("SLURM_JOB_ID='7' says that this is a Slurm allocation; where that is over, unset SLURM_JOB_ID"));
  EXPECT_THAT(AdviceForLaunch("mpirun", "unrecognized option", "--frobnicate", {}),
              StartsWith("check `launcher_args`, which mpirun got: --frobnicate"));
  EXPECT_THAT(AdviceForLaunch("mpirun", "x", "", {"PATH=/bin"}), StartsWith("check `stages`, `hostfile`"));
}

TEST(Allocation, IsReadInTheFormsOfBatchSystems) {
  EXPECT_THAT(ParseAllocation("a\nb\na\n\nb.example\r\na\n", /*has_slots=*/false).value(),
              ElementsAre(HostSlots{"a", 3}, HostSlots{"b"}, HostSlots{"b.example"}));
  EXPECT_THAT(ParseAllocation("a 2 all.q@a UNDEFINED\nb 1\n", /*has_slots=*/true).value(),
              ElementsAre(HostSlots{"a", 2}, HostSlots{"b"}));
  for (const char* text : {"", "\n", "a", "a x", "a 0", "--x 2", "a 99999999"}) {
    EXPECT_EQ(ParseAllocation(text, /*has_slots=*/true).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

// A plan chooses the order of the hosts, the host file says what else there is to know of them.
TEST(ResolveHosts, PutsAPlansHostsFirstInItsOrder) {
  const testing::TempDir directory;
  LaunchOptions options;
  options.hostfile = directory.File("hosts");
  testing::WriteFileOrDie(options.hostfile, "a slots=2\nb.rack slots=1 model=/m\nc slots=1\nd slots=1 spare\n");
  options.stages = 3;
  const auto plan = [&](const std::vector<std::string>& hosts) {
    pb::PlannedFor* planned = options.job.mutable_planned_for();
    planned->Clear();
    for (const std::string& host : hosts) planned->add_stages()->set_host(host);
  };
  const auto names = [&] {
    std::vector<std::string> found;
    const LaunchHosts resolved = ResolveHosts(options).value();
    const Placement placement = PlaceStages(resolved.hosts, resolved.stages, {});
    for (const PlacedStages& placed : placement.hosts) {
      found.push_back(absl::StrCat(placed.host, ":", placed.stages, placed.model));
    }
    return found;
  };
  EXPECT_THAT(names(), ElementsAre("a:2", "b.rack:1/m"));
  plan({"b", "c", "a"});
  EXPECT_THAT(names(), ElementsAre("b.rack:1/m", "c:1", "a:1"));
  plan({"d", "a", "a"});
  EXPECT_THAT(names(), ElementsAre("d:1", "a:2"));
  EXPECT_EQ(ResolveHosts(options)->hosts.size(), 4u) << "the others take the place of lost ones";
  plan({"x", "c", "a"});
  EXPECT_THAT(names(), ElementsAre("a:2", "b.rack:1/m")) << "the engine says what is different";
}

// What an allocation says is used, or refused with a sentence.
TEST(Allocation, TheFileThatAVariableNamesSaysTheHosts) {
  const testing::TempDir directory;
  const std::string file = directory.File("nodes");
  for (const auto& [variable, text] :
       std::vector<std::pair<std::string, std::string>>{{"PBS_NODEFILE", "localhost\nlocalhost\nlocalhost\n"},
                                                        {"LSB_DJOB_HOSTFILE", "localhost\nlocalhost\nlocalhost\n"},
                                                        {"PE_HOSTFILE", "localhost 3 all.q UNDEFINED\n"},
                                                        {"OMPI_MCA_orte_default_hostfile", "localhost slots=3\n"}}) {
    testing::WriteFileOrDie(file, text);
    setenv(variable.c_str(), file.c_str(), 1);
    LaunchOptions options;
    EXPECT_EQ(ResolveHosts(options)->stages, 3) << variable;
    options.stages = 4;
    EXPECT_THAT(ResolveHosts(options).status().message(),
                HasSubstr(absl::StrCat("but ", variable, " '", file, "' has 3")))
        << variable;
    options.hosts = "localhost:4";
    EXPECT_EQ(ResolveHosts(options)->stages, 4) << "the user says otherwise";
    options = LaunchOptions();
    setenv(variable.c_str(), (file + ".gone").c_str(), 1);
    EXPECT_THAT(ResolveHosts(options).status(),
                StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr(absl::StrCat("unset ", variable))));
    unsetenv(variable.c_str());
  }
  EXPECT_EQ(ResolveHosts(LaunchOptions())->stages, 1);
}

}  // namespace
}  // namespace stagecoach
