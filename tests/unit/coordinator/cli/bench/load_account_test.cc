#include "coordinator/cli/bench/load_account.h"

#include <vector>

#include "common/json/json_value.h"
#include "tests/testing/matchers.h"

namespace stagecoach {
namespace {

// Head and attention of every stage, in nanoseconds.
StageTimes TimesOf(int32_t stage, int64_t received_us, int64_t start_us, int64_t end_us) {
  StageTimes times = {.stage = stage, .received_us = received_us, .start_us = start_us, .end_us = end_us};
  times.account.resize(kStepParts);
  times.account[static_cast<size_t>(StepPart::kHead)] = {6000, 1000, 500};
  times.account[static_cast<size_t>(StepPart::kAttention)] = {2000, 0, 20};
  return times;
}

StepRecord StepOf(uint64_t number, int64_t submit_us, int64_t confirm_us, std::vector<StageTimes> times) {
  StepRecord record;
  record.number = number;
  record.submit_us = submit_us;
  record.confirm_us = confirm_us;
  record.times = std::move(times);
  return record;
}

TEST(LoadAccount, AddsUpToTheTimeOfALoadWhoseStepsFollowEachOther) {
  // The clock of the second stage's host is another one.
  const std::vector<StepRecord> records = {
      StepOf(0, 90, 100, {TimesOf(0, 91, 92, 93), TimesOf(1, 7000, 7001, 7002)}),
      StepOf(1, 103, 150, {TimesOf(0, 105, 106, 120), TimesOf(1, 5000, 5003, 5020)}),
      StepOf(2, 151, 200, {TimesOf(0, 153, 153, 170), TimesOf(1, 5050, 5050, 5071)}),
      StepOf(3, 201, 260, {TimesOf(0, 205, 206, 220), TimesOf(1, 5100, 5103, 5120)})};
  const LoadWindow window = {.begin_us = 100, .us = 100};
  const LoadAccount load = AccountOf(records, {&window, 1}).value();
  EXPECT_EQ(load.steps, 2);
  EXPECT_EQ(load.coordinator_us, 3 + 1);
  EXPECT_EQ(load.stages[0].compute_us, 14 + 17);
  EXPECT_EQ(load.stages[1].compute_us, 17 + 21);
  EXPECT_EQ(load.stages[0].queue_us, 1);
  EXPECT_EQ(load.stages[1].queue_us, 3);
  EXPECT_EQ(load.coordinator_us + load.hops_us() + 14 + 17 + 17 + 21 + 1 + 3, load.wall_us);
  EXPECT_LE(load.in_flight(), 1);
  EXPECT_EQ(load.stages[0].parts[static_cast<size_t>(StepPart::kHead)], (StepPartTotals{12000, 2000, 1000}));
  EXPECT_EQ(load.stages[0].outside_ns(), 31000 - 2 * 9000);
  const LoadWindow both[] = {{.begin_us = 0, .us = 100}, {.begin_us = 150, .us = 110}};
  EXPECT_EQ(AccountOf(records, both).value().steps, 3) << "those of every repetition";
}

TEST(LoadAccount, SaysHowManyStepsWereUnderWayWhereTheyOverlap) {
  const std::vector<StepRecord> records = {StepOf(0, 0, 100, {TimesOf(0, 10, 10, 60)}),
                                           StepOf(1, 50, 150, {TimesOf(0, 60, 60, 110)}),
                                           StepOf(2, 100, 200, {TimesOf(0, 110, 110, 160)})};
  const LoadWindow window = {.begin_us = 0, .us = 200};
  const LoadAccount load = AccountOf(records, {&window, 1}).value();
  EXPECT_DOUBLE_EQ(load.in_flight(), 1.5);
  EXPECT_EQ(load.coordinator_us, 0);
}

TEST(LoadAccount, IsRefusedWithoutStepsOrWithoutTheAccountOfAStage) {
  std::vector<StepRecord> records = {StepOf(4, 0, 100, {TimesOf(0, 10, 10, 60)})};
  const LoadWindow window = {.begin_us = 0, .us = 100}, later = {.begin_us = 100, .us = 100};
  EXPECT_TRUE(AccountOf(records, {&window, 1}).ok());
  EXPECT_THAT(AccountOf(records, {&later, 1}).status(),
              testing::StatusIs(absl::StatusCode::kDataLoss, HasSubstr("no step of a load")));
  records[0].times[0].account.clear();
  EXPECT_THAT(AccountOf(records, {&window, 1}).status().message(),
              HasSubstr("micro-batch 4 has no account of stage 0"));
}

TEST(LoadAccount, IsMeansOfAStepAsJson) {
  const std::vector<StepRecord> records = {StepOf(0, 1, 100, {TimesOf(0, 10, 12, 60)}),
                                           StepOf(1, 101, 200, {TimesOf(0, 110, 110, 160)})};
  const LoadWindow window = {.begin_us = 0, .us = 200};
  const Json json = LoadAccountJson(AccountOf(records, {&window, 1}).value());
  EXPECT_EQ(json["steps"], 2);
  EXPECT_EQ(json["wall_ns"], 100000);
  EXPECT_EQ(json["coordinator_ns"], 1000);
  EXPECT_EQ(json["hops_ns"], 99000 - 49000 - 1000);
  const Json& stage = json["stages"][0];
  EXPECT_EQ(stage["compute_ns"], 49000);
  EXPECT_EQ(stage["queue_ns"], 1000);
  EXPECT_EQ(stage["outside_ns"], 49000 - 9000);
  ASSERT_EQ(stage["parts"].size(), 2u);
  EXPECT_EQ(stage["parts"][0], (Json{{"part", "head"}, {"busy_ns", 6000}, {"wait_ns", 1000}, {"bytes", 500}}));
}

}  // namespace
}  // namespace stagecoach
