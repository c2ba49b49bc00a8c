// `coordinator verify` on several hosts: the copy of the model that is another one on one of them, and a host that goes
// while it asks.

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/hosts/support/generation.h"
#include "tests/testing/comes_true.h"
#include "tests/testing/damaged_copy.h"
#include "tests/testing/shared_data.h"

namespace stagecoach {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using testing::LinesWith;
using ::testing::Not;
using testing::ProgramResult;
using Words = std::vector<std::string>;

class VerifyTest : public testing::HostsTest {
 protected:
  std::unique_ptr<testing::Subprocess> StartVerify(const std::string& hostfile, const Words& more) {
    testing::WriteFileOrDie(hosts().Outside("/mnt/hostfile"), hostfile);
    Words words = {"verify", "-m", testing::DemoModelPath(), "--hostfile", "/mnt/hostfile", "-n", "6", "-t", "1"};
    words.insert(words.end(), more.begin(), more.end());
    return StartVerb(words);
  }
};

TEST_F(VerifyTest, SoundHostsAreIdenticalAndADamagedCopyIsFoundOnItsHost) {
  const Words short_one = {"--chunks", "7", "--splits", "1", "--layer-split", "3,3,2"};
  const ProgramResult sound = StartVerify(kThreeHosts, short_one)->Wait(120);
  EXPECT_EQ(sound.exit_code, 0) << sound;
  EXPECT_THAT(sound.out, HasSubstr("identical: 6 runs, "));

  testing::WriteDamagedCopy(testing::DemoModelPath(), "blk.4.ffn_down.weight", hosts().Outside("/mnt/damaged.gguf"));
  Words as_json = short_one;
  as_json.push_back("--json");
  const ProgramResult result =
      StartVerify("host1 slots=1\nhost2 slots=1 model=/mnt/damaged.gguf\nhost3 slots=1\n", as_json)->Wait(120);
  EXPECT_EQ(result.exit_code, 1) << result;
  const json report = json::parse(result.out, nullptr, false);
  ASSERT_TRUE(report.is_object()) << result;
  EXPECT_EQ(report["verdict"], "different");
  const json& hidden = report["difference"]["hidden"];
  EXPECT_EQ(hidden["layer"], 4) << result.out;
  EXPECT_EQ(hidden["stages"][0]["host"], "host2") << "it has layers 3 to 5 as planned";
  EXPECT_NE(hidden["stages"][1]["host"], "host2");
  ExpectNothingLeft();
}

// Its layers go to the others: that is no longer the run that was wanted.
TEST_F(VerifyTest, WhatAHostThatGoesLeavesIsNotCalledIdenticalToWhatItWasAskedFor) {
  const std::string log = hosts().Outside("/mnt/steps.jsonl");
  std::filesystem::remove(log);
  auto front =
      StartVerify(kThreeHosts, {"--chunks", "7", "--splits", "1", "--stage-delay-us", "20000", "--host-timeout", "3",
                                "--layer-split", "3,3,2", "--step-log", "/mnt/steps.jsonl"});
  ASSERT_TRUE(front->WaitForOutput(" 4  restarted ", 90)) << front->err();
  const auto begun = [&log] {
    const std::string lines = testing::ReadFileOrDie(log);
    const size_t last_job = lines.rfind("\"job\":");
    return LinesWith(lines, "\"job\":") == 4 && LinesWith(lines.substr(last_job), "{") > 5;
  };
  ASSERT_TRUE(testing::ComesTrue(begun, absl::Seconds(60)));
  hosts().Kill(3);
  const ProgramResult result = front->Wait(120);
  hosts().Revive(3);
  EXPECT_THAT(result.out,
              HasSubstr(" 5  another split        layers 3,4,1: left out: its stages were lost, and it went on "
                        "with layers "))
      << result;
  EXPECT_THAT(result.out, HasSubstr("\nidentical: 5 runs, "))
      << result;  // one stage has its host, the split is left out
  EXPECT_EQ(result.exit_code, 0) << result;
  EXPECT_THAT(result.out, Not(HasSubstr("DIFFERENT"))) << result;
  ExpectNothingLeft();
}

}  // namespace
}  // namespace stagecoach
