// What a start asks of the machine around it.

#include "absl/strings/str_cat.h"
#include "tests/e2e/support/programs.h"

namespace stagecoach::testing {
namespace {

// A job of two stages, which goes on with " of the Lord".
const Words kFourTokens = Generate({"--pp", "2", "-p", "In the beginning", "-n", "4"});

// What a program and all that it started asked of the resolver, a question a line.
struct Questions {
  ProgramResult result;
  std::string asked;
};

Questions Trapped(const std::string& program, const Words& arguments) {
  const TempDir directory;
  const std::string file = directory.File("questions.txt");
  WriteFileOrDie(file, "");
  std::vector<std::pair<std::string, std::string>> environment = AllowRoot();
  environment.emplace_back("LD_PRELOAD", BuildPath("tests/e2e/libresolver_trap.so"));
  environment.emplace_back("RESOLVER_TRAP", file);
  Questions questions;
  questions.result = RunProgram(program, arguments, "", 90, environment);
  questions.asked = ReadFileOrDie(file);
  return questions;
}

// A machine whose name server is slow and whose /etc/hosts is empty starts as fast as any other.
TEST(Start, AsksNoNameServerForStagesOnThisMachine) {
  EXPECT_THAT(Trapped("getent", {"ahosts", "localhost"}).asked, HasSubstr("getent asks for localhost"));
  const Questions start = Trapped(CoordinatorProgram(), kFourTokens);
  EXPECT_EQ(start.result.exit_code, 0) << start.result;
  EXPECT_THAT(start.result.out, StartsWith(" of the Lord"));
  EXPECT_EQ(start.asked, "");
}

TEST(Start, AsksNoNameServerInARankOfAWorld) {
  const Questions start = Trapped("mpirun", WorldArguments(Generate({"-p", "In the beginning", "-n", "4"}), 2));
  EXPECT_EQ(start.result.exit_code, 0) << start.result;
  EXPECT_THAT(start.asked, AllOf(Not(HasSubstr("coordinator asks")), Not(HasSubstr("stage_worker asks"))));
}

// Limited by words of a shell before it, which counts the size of files in 512 bytes.
ProgramResult Limited(const std::string& limits, const Words& arguments) {
  return RunProgram("sh", Joined({"-c", limits + "; exec \"$@\"", "sh", CoordinatorProgram()}, arguments), "", 90,
                    AllowRoot());
}

TEST(Start, WhatKeepsRanksFromStartingIsSaidOnceByEveryVerb) {
  const TempDir directory;
  const std::string in = directory.File("in.jsonl");
  WriteFileOrDie(in, BatchInputLine("a", {{"prompt", kPrompt}, {"max_tokens", 4}}));
  const Words generate = Generate({"--pp", "2", "-p", kPrompt, "-n", "4"});
  const std::string files = "may have 16 files open (ulimit -n), and the launcher of ";
  for (const Words& arguments :
       {generate, Batch(in, directory.File("out.jsonl")), Words{"serve", "-m", DemoModelPath(), "--port", "0"},
        Words{"probe", "-o", directory.File("profile.json")}}) {
    const ProgramResult result = Limited("ulimit -n 16", arguments);
    EXPECT_THAT(result, EndsWithCode(4, HasSubstr(files)));
    EXPECT_THAT(result.err, Not(HasSubstr("launching it again")));
  }
  const ProgramResult doctor = Limited("ulimit -n 16", {"doctor"});
  EXPECT_EQ(doctor.exit_code, 4) << doctor;
  EXPECT_THAT(doctor.out, HasSubstr("error    this host: a process " + files));
  EXPECT_THAT(Limited("ulimit -f 8192", generate).err, HasSubstr("a file may have 4096 KiB (ulimit -f)"));
  EXPECT_THAT(Limited("ulimit -v 900000", generate).err, HasSubstr("of address space (ulimit -v)"));
}

// Limits that are just enough by our own rule.
TEST(Start, RanksComeUpUnderTheSmallestLimitsThatAreTakenForEnough) {
  EXPECT_THAT(Limited("ulimit -n 52; ulimit -f 10240; ulimit -v 1100000", kFourTokens),
              Prints(StartsWith(" of the Lord")));
}

TEST(Start, AFullTemporaryDirectoryOrSharedMemoryIsNamed) {
  const TempDir directory;
  if (RunProgram("unshare", {"-m", "mount", "-t", "tmpfs", "none", directory.path()}, "", 20).exit_code != 0) {
    GTEST_SKIP() << "NOT RUN: no mounts of our own here";
  }
  const Words generate = Generate({"--pp", "2", "-p", kPrompt, "-n", "4"});
  const auto with_small = [&](const std::string& where) {
    const std::string script = absl::StrCat("mount -t tmpfs -o size=6m none ", where,
                                            " && export TMPDIR=", directory.path(), " && exec \"$@\"");
    return RunProgram("unshare", Joined({"-m", "sh", "-c", script, "sh", CoordinatorProgram()}, generate), "", 90,
                      AllowRoot());
  };
  EXPECT_THAT(
      with_small("/dev/shm"),
      EndsWithCode(4, HasSubstr("/dev/shm has 6 MiB free of 6 MiB, and 3 ranks exchange messages by 15 MiB there")));
  EXPECT_THAT(
      with_small(directory.path()),
      EndsWithCode(4, HasSubstr(absl::StrCat("'", directory.path(), "', has 6 MiB free, and a launch needs 10 MiB"))));
}

// Without an entry and HOME, as in a container with `--user 12345`, mpirun crashes of itself.
TEST(Start, AUserThatNobodyKnowsCanLaunch) {
  const Words user = {"--reuid", "64321", "--regid", "64321", "--clear-groups", "env", "-u", "HOME", "TMPDIR=/tmp"};
  const Words reads = Joined(user, {"test", "-x", CoordinatorProgram(), "-a", "-r", DemoModelPath()});
  if (RunProgram("setpriv", reads, "", 20).exit_code != 0)
    GTEST_SKIP() << "NOT RUN: no other user can run the programs";
  EXPECT_THAT(RunProgram("setpriv", Joined(Joined(user, {CoordinatorProgram()}), kFourTokens)),
              Prints(StartsWith(" of the Lord")));
}

TEST(Start, VariablesThatAreLeftOverAreListedWithWhichToUnset) {
  const Words generate = Generate({"-p", kPrompt, "-n", "4"});
  const auto with = [&](const Words& variables) {
    return RunProgram("env", Joined(Joined(variables, {CoordinatorProgram()}), generate), "", 90, AllowRoot());
  };
  EXPECT_THAT(with({"PMIX_RANK=0", "PMI_RANK=0"}), EndsWithCode(4, HasSubstr("unset PMIX_RANK PMI_RANK")));
  EXPECT_THAT(with({"OMPI_COMM_WORLD_SIZE=2"}).err, HasSubstr("unset OMPI_COMM_WORLD_SIZE"));
  EXPECT_THAT(with({"SLURM_JOB_ID=7"}), EndsWithCode(4, HasSubstr("unset SLURM_JOB_ID")));
  const ProgramResult setting = with({"OMPI_MCA_coll=nonesuch", "OMPI_MCA_mpi_warn_on_fork=0"});
  EXPECT_EQ(setting.exit_code, 4) << setting;
  // Alone, where mpirun names it, as it nearly always does: the ranks' help at times arrives there cut, and then both
  // are listed.
  EXPECT_THAT(setting.err, AllOf(HasSubstr("unset OMPI_MCA_coll"), Not(HasSubstr("--launcher-args"))));
}

}  // namespace
}  // namespace stagecoach::testing
