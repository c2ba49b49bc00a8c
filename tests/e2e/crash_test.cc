// A request that crashes a stage each time it is computed costs its own answer and nobody else's.

#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/support/programs.h"
#include "tests/testing/paths.h"

namespace stagecoach::testing {
namespace {

using ::testing::HasSubstr;

constexpr int kLines = 6, kCrashing = 3;
constexpr int kCrashSeed = 57005;  // of programs/crashing_stage.cc

std::string Lines() {
  std::string input;
  for (int i = 0; i < kLines; ++i) {
    input += BatchInputLine(absl::StrCat("id-", i), {{"prompt", absl::StrCat("Chapter ", i, ". And it came to pass")},
                                                     {"max_tokens", 6 + i},
                                                     {"temperature", 0.8},
                                                     {"seed", i == kCrashing ? kCrashSeed : i}});
  }
  return input;
}

TEST(Crash, TheRequestThatCrashesAStageEachTimeGetsAnErrorAndTheOthersTheirAnswers) {
  const TempDir directory;
  const std::string in = directory.File("in.jsonl"), whole = directory.File("whole.jsonl"),
                    out = directory.File("out.jsonl");
  WriteFileOrDie(in, Lines());
  ASSERT_EQ(Coordinator(Batch(in, whole, {"--pp", "2"})).exit_code, 0);
  const ProgramResult result =
      Coordinator(Batch(in, out, {"--pp", "2", "--stage-worker", BuildPath("tests/e2e/crashing_stage")}), /*input=*/"",
                  /*timeout_s=*/300);
  EXPECT_EQ(result.exit_code, 0) << result;
  std::map<std::string, Json> expected = ReadBatchOutput(whole), lines = ReadBatchOutput(out);
  ASSERT_EQ(lines.size(), static_cast<size_t>(kLines)) << result;
  for (int i = 0; i < kLines; ++i) {
    const std::string id = absl::StrCat("id-", i);
    if (i == kCrashing) continue;
    EXPECT_EQ(lines[id]["response"]["body"]["choices"], expected[id]["response"]["body"]["choices"]) << id;
  }
  const std::string crashed = lines[absl::StrCat("id-", kCrashing)].dump();
  EXPECT_THAT(crashed, HasSubstr("computing it ended a stage each time"));
  EXPECT_THAT(crashed, HasSubstr("signal 6"));
}

}  // namespace
}  // namespace stagecoach::testing
