#include <algorithm>
#include <string>
#include <vector>

#include "CLI/App.hpp"
#include "CLI/Config.hpp"
#include "CLI/Formatter.hpp"
#include "coordinator/cli/verb.h"
#include "tests/testing/matchers.h"
#include "tests/testing/shared_data.h"

namespace stagecoach {
namespace {

struct DryRun {
  absl::Status status;
  std::string out, err;
};

DryRun DryRunOfSweep(std::vector<std::string> words) {
  words.insert(words.end(), {"--load-format", "dummy", "--shape", "tiny", "--type", "q8_0", "-r", "1", "-t", "1",
                             "--requests", "2", "--dry-run"});
  std::reverse(words.begin(), words.end());
  CLI::App app;
  const std::unique_ptr<Verb> verb = MakeSweepVerb();
  verb->AddOptions(&app);
  app.parse(words);
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  DryRun run{verb->Run({.program = "/coordinator"}), "", ""};
  run.out = ::testing::internal::GetCapturedStdout();
  run.err = ::testing::internal::GetCapturedStderr();
  return run;
}

TEST(SweepVerb, MeasuresTheCombinationsThatCanRunAndNamesTheOthers) {
  const DryRun some = DryRunOfSweep({"--pp", "2", "--decode-groups", "1,4", "--micro-batches", "2,4"});
  EXPECT_TRUE(some.status.ok()) << some.status;
  EXPECT_THAT(some.out, HasSubstr("3 points in 3 launches"));
  EXPECT_THAT(some.err, AllOf(HasSubstr("left out: 'pp 2, "), HasSubstr("' cannot run: ")));
  const DryRun none = DryRunOfSweep({"--pp", "2", "--decode-groups", "4", "--micro-batches", "2"});
  EXPECT_THAT(none.status.message(), HasSubstr("nothing was measured: 'pp 2, "));
}

TEST(SweepVerb, ADescriptionOfHostsForPredictionsForbidsNoMeasurement) {
  const testing::TempDir dir;
  const std::string hosts = R"({"hosts": [{"name": "other", "cores": 16, "memory_gib": 64, "read_gb_s": 80, )"
                            R"("int8_gops": 3000, "isas": ["avx2"]}]})";
  testing::WriteFileOrDie(dir.File("hosts.json"), hosts);
  const DryRun run = DryRunOfSweep({"--host", "other", "--isa", "avx512", "--cluster", dir.File("hosts.json")});
  EXPECT_TRUE(run.status.ok()) << run.status;
  EXPECT_THAT(run.out, HasSubstr("1 points in 1 launches"));
}

}  // namespace
}  // namespace stagecoach
