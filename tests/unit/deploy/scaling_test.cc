// deploy/scaling.sh: which sweep it asks the coordinator for.

#include "absl/strings/str_cat.h"
#include "tests/testing/matchers.h"
#include "tests/unit/deploy/bare_machine.h"

namespace stagecoach::testing {
namespace {

using Words = std::vector<std::string>;

// A machine of four cores and a coordinator that knows models of eight layers, and one of two, and can read no other.
class Scaling : public ::testing::Test {
 protected:
  Scaling() : machine_(BareMachine::User::kWithout) {
    machine_.Replace("nproc", "echo 4");
    machine_.Replace("coordinator", R"(if [ "$1" != inspect ]; then echo "coordinator $*" >>"$MACHINE/asked"; exit; fi
case $3 in
  eight.gguf | dummy://eight/q8_0) printf '{\n  "name": "x",\n  "layers": 8,\n}\n' ;;
  two.gguf) printf '{\n  "layers": 2,\n}\n' ;;
  *) exit 3 ;;
esac)");
  }

  ProgramResult Run(const Words& words) { return machine_.Run("scaling.sh", words); }
  void ExpectAsked(const Words& words, const std::string& sweep) {
    const ProgramResult result = Run(words);
    EXPECT_EQ(result.exit_code, 0) << result;
    ASSERT_FALSE(machine_.Asked().empty()) << result;
    EXPECT_EQ(machine_.Asked().back(), absl::StrCat("coordinator sweep ", sweep));
  }

  BareMachine machine_;
  TempDir directory_;
};

TEST_F(Scaling, DoublesTheStagesUpToTheCoresOfThisMachineOrTheLayersOfTheModel) {
  ExpectAsked({"-o", "d", "-m", "eight.gguf"}, "--pp 1,2,4 --concurrency 1,32 -o d -m eight.gguf");
  ExpectAsked({"-o", "d", "--model=two.gguf"}, "--pp 1,2 --concurrency 1,16 -o d --model two.gguf");
  ExpectAsked({"-o", "d", "-m", "unknown.gguf"}, "--pp 1,2,4 --concurrency 1,32 -o d -m unknown.gguf");
  machine_.Replace("nproc", "echo 40");
  ExpectAsked({"--load-format", "dummy", "--shape", "eight", "--type", "q8_0"},
              "--pp 1,2,4,8 --concurrency 1,64 --load-format dummy --shape eight --type q8_0");
}

TEST_F(Scaling, CountsTheSlotsOfHosts) {
  const std::string hosts = directory_.File("hosts");
  WriteFileOrDie(hosts, "# of one rack\na slots=2 # big\n\nb\nc slots=3 spare\n");
  ExpectAsked({"-m", "eight.gguf", "--hostfile", hosts},
              absl::StrCat("--pp 1,2,3 --concurrency 1,24 -m eight.gguf --hostfile ", hosts));
  ExpectAsked({"-m", "eight.gguf", "--host=a:4,b"}, "--pp 1,2,4,5 --concurrency 1,40 -m eight.gguf --host a:4,b");
}

TEST_F(Scaling, LeavesWhatIsGivenAsItIs) {
  ExpectAsked({"--pp", "3", "--concurrency", "7", "--launcher-args", "--mca btl=tcp,self", "-o", "d"},
              "--pp 3 --concurrency 7 --launcher-args --mca btl=tcp,self -o d");
  ExpectAsked({"--pp", "08"}, "--pp 08 --concurrency 1,64");
  ExpectAsked({"--pp", "many"}, "--pp many --concurrency 1,8");  // the sweep says that it is no number
  ExpectAsked({"--pp", "1000"}, "--pp 1000 --concurrency 1,512");
}

TEST_F(Scaling, SaysWhatIsMissing) {
  EXPECT_THAT(Run({"-o", "d", "--hostfile"}), EndsWithCode(2, HasSubstr("scaling.sh: --hostfile needs a value\n")));
  EXPECT_THAT(Run({"-o", "d", "--hostfile", "/nowhere/hosts"}),
              EndsWithCode(4, HasSubstr("there is no host file '/nowhere/hosts'")));
  machine_.Remove("coordinator");
  EXPECT_THAT(Run({"-o", "d"}), EndsWithCode(1, HasSubstr("there is no coordinator; build it")));
  EXPECT_THAT(machine_.Asked(), IsEmpty());
}

TEST_F(Scaling, EndsWithTheSweepsExitCode) {
  machine_.Replace("coordinator", "[ \"$1\" = inspect ] || exit 5");
  EXPECT_THAT(Run({"-o", "d", "-m", "eight.gguf"}), EndsWithCode(5, HasSubstr("\" failed with exit code 5\n")));
}

}  // namespace
}  // namespace stagecoach::testing
