// `coordinator verify` on several hosts: the copy of the model that is another one on one of them, and a host that goes
// while it asks.

#include <filesystem>

#include "absl/strings/str_split.h"
#include "tests/hosts/support/generation.h"
#include "tests/testing/models/damaged_copy.h"

namespace stagecoach::testing {
namespace {

class VerifyTest : public HostsTest {
 protected:
  std::unique_ptr<Subprocess> StartVerify(const std::string& hostfile, const Words& more) {
    WriteFileOrDie(hosts().Outside("/mnt/hostfile"), hostfile);
    return StartVerb(Joined(WordsOf("verify -m MODEL --hostfile /mnt/hostfile -n 6 -t 1"), more));
  }
};

TEST_F(VerifyTest, SoundHostsAreIdenticalAndADamagedCopyIsFoundOnItsHost) {
  const Words short_one = {"--chunks", "7", "--splits", "1", "--layer-split", "3,3,2"};
  EXPECT_THAT(StartVerify(kThreeHosts, short_one)->Wait(120), Prints(HasSubstr("identical: 8 runs, ")));

  WriteDamagedCopy(DemoModelPath(), "blk.4.ffn_down.weight", hosts().Outside("/mnt/damaged.gguf"));
  const ProgramResult result = StartVerify("host1 slots=1\nhost2 slots=1 model=/mnt/damaged.gguf\nhost3 slots=1\n",
                                           Joined(short_one, {"--json"}))
                                   ->Wait(120);
  EXPECT_EQ(result.exit_code, 1) << result;
  const Json report = Json::parse(result.out, nullptr, false);
  ASSERT_TRUE(report.is_object()) << result;
  EXPECT_EQ(report["verdict"], "different");
  const Json& hidden = report["difference"]["hidden"];
  EXPECT_EQ(hidden["layer"], 4) << result.out;
  EXPECT_EQ(hidden["stages"][0]["host"], "host2") << "it has layers 3 to 5 as planned";
  EXPECT_NE(hidden["stages"][1]["host"], "host2");
}

// Its layers go to the others: that is no longer the run that was wanted.
TEST_F(VerifyTest, WhatAHostThatGoesLeavesIsNotCalledIdenticalToWhatItWasAskedFor) {
  const std::string log = hosts().Outside("/mnt/steps.jsonl");
  std::filesystem::remove(log);
  auto front =
      StartVerify(kThreeHosts, {"--chunks", "7", "--splits", "1", "--stage-delay-us", "20000", "--host-timeout", "3",
                                "--layer-split", "3,3,2", "--step-log", "/mnt/steps.jsonl"});
  ASSERT_TRUE(front->WaitForOutput(" 6  with guesses ", 90)) << front->err();
  const auto begun = [&log] {
    const Words jobs = absl::StrSplit(ReadFileOrDie(log), "\"job\":");
    return jobs.size() == 7 && Lines(jobs.back()).size() > 5;
  };
  ASSERT_TRUE(ComesTrue(begun, absl::Seconds(60)));
  hosts().Kill(3);
  const ProgramResult result = front->Wait(120);
  hosts().Revive(3);
  EXPECT_THAT(result.out,
              HasSubstr(" 7  another split        layers 3,4,1: left out: its stages were lost, and it went on "
                        "with layers "))
      << result;
  EXPECT_THAT(result.out, HasSubstr("\nidentical: 7 runs, "))
      << result;  // one stage has its host, the split is left out
  EXPECT_EQ(result.exit_code, 0) << result;
  EXPECT_THAT(result.out, Not(HasSubstr("DIFFERENT"))) << result;
}

}  // namespace
}  // namespace stagecoach::testing
