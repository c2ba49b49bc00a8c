#include "common/obs/step_log.h"

#include <algorithm>

#include "gtest/gtest.h"
#include "tests/testing/shared_data.h"

namespace stagecoach {
namespace {

TEST(StepLog, WritesOneLinePerMicroBatchWithItsSlicesAndStageTimes) {
  MicroBatch batch;
  batch.number = 7;
  batch.slices = {{.sequence = 3, .start = 64, .count = 2, .tokens = {1, 2}, .sample = true}};
  StepResult result;
  result.number = 7;
  result.times = {{.stage = 0, .received_us = 10, .start_us = 11, .end_us = 12},
                  {.stage = 1, .received_us = 13, .start_us = 14, .end_us = 15}};
  EXPECT_EQ(
      StepLogLine(batch, result, 9, 16),
      R"({"number":7,"slices":[{"sequence":3,"start":64,"count":2,"sample":true}],"submit_us":9,"confirm_us":16,)"
      R"("stages":[{"stage":0,"received_us":10,"start_us":11,"end_us":12},{"stage":1,"received_us":13,"start_us":14,"end_us":15}]})");
}

TEST(StepLog, AppendsAfterTheLinesOfAnEarlierJob) {
  const testing::TempDir dir;
  const std::string path = dir.File("steps.jsonl");
  for (const bool append : {false, true}) {
    auto log = StepLog::Open(path, append);
    ASSERT_TRUE(log.ok()) << log.status();
    (*log)->Write(MicroBatch{}, StepResult{}, 1, 2);
  }
  const std::string text = testing::ReadFileOrDie(path);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2);
}

TEST(StepLog, SaysWhichFileItCannotWrite) {
  const auto log = StepLog::Open("/no/such/directory/steps.jsonl", false);
  ASSERT_FALSE(log.ok());
  EXPECT_NE(log.status().message().find("/no/such/directory/steps.jsonl"), absl::string_view::npos);
}

}  // namespace
}  // namespace stagecoach
