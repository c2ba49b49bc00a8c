// The two commands of the README on a machine that has nothing yet: what they install, and what they say when they
// cannot.

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tests/testing/matchers.h"
#include "tests/unit/deploy/bare_machine.h"

namespace stagecoach::testing {
namespace {

using ::testing::IsSupersetOf;

using User = BareMachine::User;

const std::vector<std::string> kScripts = {"quickstart.sh", "test.sh"};
const std::vector<std::string> kForTests = {"libgtest-dev", "libgmock-dev", "libpcre2-dev", "libbenchmark-dev"};
const std::vector<std::string> kForSomeTests = {"googletest", "g++-aarch64-linux-gnu", "qemu-user-static",
                                                "mmdebstrap"};

TEST(Quickstart, InstallsWhatRunningNeedsAndNothingForTheTests) {
  BareMachine machine(User::kRoot);
  const ProgramResult result = machine.Run("quickstart.sh");
  EXPECT_EQ(machine.Asked()[0], "apt-get update -qq");
  const std::vector<std::string> installed = machine.Installed();
  EXPECT_THAT(installed,
              IsSupersetOf({"g++", "cmake", "ninja-build", "openmpi-bin", "libprotobuf-dev", "libcli11-dev"}));
  for (const std::string& package : kForTests) EXPECT_THAT(installed, Not(Contains(package)));
  for (const std::string& package : kForSomeTests) EXPECT_THAT(installed, Not(Contains(package)));
  EXPECT_THAT(result.err, HasSubstr(absl::StrCat("Installing: ", installed[0], " ")));
}

TEST(Quickstart, ConfiguresWithoutTheTestsAndNamesTheCommandThatFailed) {
  BareMachine machine(User::kRoot);
  const ProgramResult result = machine.Run("quickstart.sh");
  EXPECT_THAT(machine.Asked().back(), AllOf(StartsWith("cmake "), EndsWith("-DSTAGECOACH_BUILD_TESTS=OFF")));
  EXPECT_THAT(result, EndsWithCode(7, HasSubstr("quickstart.sh: \"cmake -S ")));
  EXPECT_THAT(result.err, EndsWith("-DSTAGECOACH_BUILD_TESTS=OFF\" failed with exit code 7\n"));
}

// The words that the program is given, behind the script's own folder.
std::string Started(const std::vector<std::string>& arguments) {
  BareMachine machine(User::kRoot);
  machine.Replace("cmake", "exit 0");
  machine.InstallProgram("build/coordinator/coordinator", "echo \"$*\"");
  const ProgramResult result = machine.Run("quickstart.sh", arguments);
  EXPECT_EQ(result.exit_code, 0) << result;
  return absl::StrReplaceAll(result.out, {{machine.path() + "/deploy/", ""}});
}

TEST(Quickstart, GivesEachVerbWhatItLacks) {
  const std::string demo = "-m models/demo-q8_0.gguf";
  EXPECT_EQ(Started({"-p", "a"}), absl::StrCat("generate ", demo, " -n 64 --pp 2 -p a\n"));
  EXPECT_EQ(Started({"-p", "a", "--host", "n1"}), absl::StrCat("generate ", demo, " -n 64 -p a --host n1\n"));
  EXPECT_EQ(Started({"chat"}), absl::StrCat("chat ", demo, " --pp 2\n"));
  EXPECT_EQ(Started({"chat", "-m", "x"}), "chat --pp 2 -m x\n");
  EXPECT_EQ(Started({"chat", "--url", "http://h"}), "chat --url http://h\n");
  EXPECT_EQ(Started({"serve"}), absl::StrCat("serve ", demo, " --pp 2\n"));
  EXPECT_EQ(Started({"serve", "--host", "::", "--port=81"}),
            absl::StrCat("serve ", demo, " --pp 2 --host :: --port=81\n"));
  EXPECT_EQ(Started({"serve", "--hosts", "n1,n2"}), absl::StrCat("serve ", demo, " --hosts n1,n2\n"));
}

TEST(TestScript, InstallsWhatTheWholeSuiteNeeds) {
  BareMachine machine(User::kRoot);
  const ProgramResult result = machine.Run("test.sh");
  EXPECT_THAT(machine.Installed(), AllOf(Contains("g++"), IsSupersetOf(kForTests), IsSupersetOf(kForSomeTests)));
  EXPECT_THAT(machine.Asked().back(), AllOf(StartsWith("cmake "), EndsWith("-DSTAGECOACH_BUILD_TESTS=ON")));
  EXPECT_EQ(result.exit_code, 7) << result;
}

TEST(TestScript, InstallsLessForChosenTests) {
  BareMachine machine(User::kRoot);
  machine.Run("test.sh", {"-L", "smoke"});
  EXPECT_THAT(machine.Installed(), AllOf(Contains("g++"), IsSupersetOf(kForTests)));
  for (const std::string& package : kForSomeTests) EXPECT_THAT(machine.Installed(), Not(Contains(package)));
}

TEST(TestScript, EndsWithATableOfItsTimeAlsoWhenItFails) {
  BareMachine machine(User::kRoot);
  const ProgramResult result = machine.Run("test.sh");
  EXPECT_THAT(result.out, HasSubstr("Time by part"));
  EXPECT_THAT(result.out, ::testing::ContainsRegex("\ninstall +0:0[0-9] +0:0[0-9]\nconfigure .*  failed here\ntotal "));
}

TEST(BothScripts, TellAUserWithoutSudoTheOneLineAndEndWithOne) {
  for (const std::string& script : kScripts) {
    BareMachine machine(User::kWithout);
    EXPECT_THAT(machine.Run(script),
                EndsWithCode(1, HasSubstr("Missing packages; install them, then run this again:\n"
                                          "  apt-get install --no-install-recommends g++ cmake ")));
    EXPECT_THAT(machine.Asked(), IsEmpty());
  }
}

TEST(BothScripts, InstallThroughSudo) {
  for (const std::string& script : kScripts) {
    BareMachine machine(User::kWithSudo);
    machine.Run(script);
    const std::vector<std::string> asked = machine.Asked();
    ASSERT_THAT(asked, SizeIs(5)) << script;
    EXPECT_EQ(asked[0], "sudo");
    EXPECT_EQ(asked[1], "apt-get update -qq");
    EXPECT_EQ(asked[2], "sudo");
    EXPECT_THAT(asked[3], StartsWith("apt-get install "));
    EXPECT_THAT(asked[4], StartsWith("cmake "));
  }
}

TEST(BothScripts, InstallWhatIsMissingOnceAndOnlyThat) {
  for (const std::string& script : kScripts) {
    BareMachine machine(User::kRoot);
    machine.Run(script);
    const size_t asked = machine.Asked().size();
    machine.Run(script);
    EXPECT_EQ(machine.Asked().size(), asked + 1) << "cmake alone";
  }
  BareMachine machine(User::kRoot);
  machine.Run("quickstart.sh");
  machine.Run("test.sh");
  const std::string second = machine.Asked()[4];
  EXPECT_THAT(second, AllOf(StartsWith("apt-get install "), HasSubstr(" libgtest-dev "), Not(HasSubstr(" cmake "))));
}

TEST(BothScripts, NameAnAptThatFailsAndKeepItsExitCode) {
  for (const std::string& script : kScripts) {
    BareMachine machine(User::kRoot);
    machine.Replace("apt-get", "exit 100");
    const ProgramResult update = machine.Run(script);
    EXPECT_THAT(update, EndsWithCode(100, HasSubstr(script + ": \"apt-get update -qq\" failed with exit code 100\n")));
    machine.Replace("apt-get", "[ $1 = update ] || exit 99");
    const ProgramResult install = machine.Run(script);
    EXPECT_THAT(install, EndsWithCode(99, HasSubstr("apt-get install -y -qq --no-install-recommends g++ ")));
    EXPECT_THAT(install.err, EndsWith("\" failed with exit code 99\n"));
  }
}

TEST(BothScripts, SayThatTheyWereInterrupted) {
  for (const std::string& script : kScripts) {
    BareMachine machine(User::kRoot);
    machine.Replace("apt-get", "kill -INT $PPID");
    EXPECT_THAT(machine.Run(script), EndsWithCode(130, EndsWith(script + ": interrupted\n")));
    machine.Replace("apt-get", "kill -TERM $PPID");
    EXPECT_THAT(machine.Run(script), EndsWithCode(143, EndsWith(script + ": ended by a signal\n")));
  }
}

// Whichever tool is absent or broken: one sentence about it, and never an exit code alone.
TEST(BothScripts, NeverEndWithoutAWord) {
  for (const std::string& script : kScripts) {
    for (const char* tool : {"awk", "grep", "id", "env", "cmake", "apt-get", "dpkg-query", "sed", "nproc"}) {
      for (const bool absent : {true, false}) {
        BareMachine machine(User::kRoot);
        if (absent) {
          machine.Remove(tool);
        } else {
          machine.Replace(tool, "exit 3");
        }
        const ProgramResult result = machine.Run(script);
        EXPECT_NE(result.exit_code, 0) << tool;
        EXPECT_THAT(result.err, ::testing::ContainsRegex(absl::StrCat(script, ": .*failed with exit code"))) << tool;
      }
    }
  }
}

}  // namespace
}  // namespace stagecoach::testing
