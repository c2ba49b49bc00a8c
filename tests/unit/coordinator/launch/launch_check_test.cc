#include "coordinator/launch/launch_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "common/host/host_info.h"
#include "common/wire/host_report.h"
#include "coordinator/launch/hosts/allocation.h"
#include "coordinator/launch/launcher_backend.h"
#include "tests/testing/shared_data.h"

namespace stagecoach {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

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
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()), HasSubstr("is not Open MPI's: it says '"));
    EXPECT_THAT(std::string(status.message()), HasSubstr("openmpi-bin"));
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
    EXPECT_THAT(std::string(ResolveHosts(options).status().message()),
                HasSubstr(absl::StrCat("but ", variable, " '", file, "' has 3")))
        << variable;
    options.hosts = "localhost:4";
    EXPECT_EQ(ResolveHosts(options)->stages, 4) << "the user says otherwise";
    options = LaunchOptions();
    setenv(variable.c_str(), (file + ".gone").c_str(), 1);
    const absl::Status gone = ResolveHosts(options).status();
    EXPECT_EQ(gone.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(gone.message()), HasSubstr(absl::StrCat("unset ", variable)));
    unsetenv(variable.c_str());
  }
  EXPECT_EQ(ResolveHosts(LaunchOptions())->stages, 1);
}

}  // namespace
}  // namespace stagecoach
