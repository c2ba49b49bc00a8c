#include "coordinator/trace/trace_drawing.h"

#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/json/json_value.h"
#include "coordinator/trace/trace_file.h"
#include "coordinator/trace/trace_lines.h"
#include "tests/testing/matchers.h"
#include "tests/testing/shared_data.h"
#include "tests/testing/trace_check.h"
#include "tests/unit/coordinator/trace/made_up_run.h"

namespace stagecoach {
namespace {

using nlohmann::json;
using testing::MadeUpRun;

// Eight micro-batches of a millisecond, one after the other, from 0.
TraceJob OneAtATime() {
  MadeUpRun run{.compute_us = {1000}, .micro_batches = 8, .send_us = 100};
  run.start_us = 0;
  TraceJob job = run.Recorded();
  job.header.simulated = true;
  return job;
}

json EventsOf(TraceJob job) {
  EXPECT_TRUE(AlignTrace(&job).ok());
  json events = json::array();
  DrawTrace(job, 0, [&](const std::string& event) { events.push_back(json::parse(event)); });
  return events;
}

// "queued 0-1000, prefill 1000-2000": by the lane's name.
std::map<std::string, std::string> LanesOfRequests(const json& events) {
  std::map<int64_t, std::string> names;
  std::map<std::string, std::string> lanes;
  for (const json& event : events) {
    const int64_t tid = event["tid"];
    if (event["name"] == "thread_name" && event["args"]["name"].get<std::string>().rfind("request ", 0) == 0) {
      names[tid] = event["args"]["name"];
    } else if (event["ph"] == "X" && names.contains(tid)) {
      std::string& lane = lanes[names[tid]];
      const int64_t from_us = event["ts"], us = event["dur"];
      absl::StrAppend(&lane, lane.empty() ? "" : ", ", event["name"].get<std::string>(), " ", from_us, "-",
                      from_us + us);
    }
  }
  return lanes;
}

TEST(DrawTrace, GivesEveryRequestALaneOfItsPhases) {
  TraceJob job = OneAtATime();
  job.steps[0].commands = {{.request = 7, .sequence = 1, .at_us = 0, .prompt_tokens = 70},
                           {.request = 9, .sequence = 2, .at_us = 0, .prompt_tokens = 3}};
  job.steps[2].commands = {{.request = 10, .sequence = 3, .at_us = 1500, .prompt_tokens = 3}};
  job.steps[4].commands = {{.cancel = true, .request = 10, .sequence = 3, .at_us = 3800}};
  job.steps[1].slices = {{1, 0, 64}};
  job.steps[2].slices = {{1, 64, 6, true}, {2, 0, 3, true}};
  job.steps[3].slices = {{1, 70, 1, true}, {2, 3, 1, true}};
  job.steps[4].slices = {{1, 71, 1, true}};
  job.steps[6].slices = {{2, 0, 5, true}};  // it had lost its blocks
  job.steps[7].slices = {{2, 5, 1, true}};
  const json events = EventsOf(job);
  testing::ExpectWellFormedTrace(events);
  const std::map<std::string, std::string> expected = {
      {"request 7", "queued 0-1000, prefill 1000-3000, decode 3000-5000"},
      {"request 9",
       "queued 0-2000, prefill 2000-3000, decode 3000-4000, preempted 4000-6000, prefill 6000-7000, decode 7000-8000"},
      {"request 10", "queued 1500-3800"}};
  EXPECT_EQ(LanesOfRequests(events), expected);
}

TEST(DrawTrace, NamesSpansByKindAndGivesTheirNumbersAsArguments) {
  TraceJob job = OneAtATime();
  for (size_t i = 0; i < job.steps.size(); ++i) {
    job.steps[i].prefill_rows = i < 6 ? 100 + static_cast<int64_t>(i) : 0;
    job.steps[i].decode_rows = i < 3 ? 0 : static_cast<int64_t>(i);
  }
  std::map<std::string, int> names;
  for (const json& event : EventsOf(job)) {
    if (event["ph"] != "X" || !event["args"].contains("prefill_rows")) continue;
    const int64_t number = event["args"]["micro_batch"];
    EXPECT_EQ(event["args"]["prefill_rows"], number < 6 ? 100 + number : 0);
    EXPECT_EQ(event["args"]["decode_rows"], number < 3 ? 0 : number);
    ++names[event["name"]];
  }
  EXPECT_EQ(names, (std::map<std::string, int>{{"prefill", 3}, {"mixed", 3}, {"decode", 2}}));
}

TEST(DrawTrace, NamesAndColoursStepsOfGuessesApart) {
  TraceJob job = OneAtATime();
  const auto guess = [](int64_t start, GuessRecord record) {
    return TraceSlice{.sequence = 1, .start = start, .count = 1, .sample = true, .guess = record};
  };
  for (size_t i = 2; i < 6; ++i) job.steps[i].decode_rows = 0;
  job.steps[0].commands = {{.request = 7, .sequence = 1, .at_us = 0, .prompt_tokens = 4}};
  job.steps[0].slices = {{1, 0, 4, true}};
  job.steps[1].slices = {{1, 4, 1, true}};
  job.steps[2].slices = {guess(5, GuessRecord::kRight)};
  job.steps[3].slices = {guess(6, GuessRecord::kVoid)};
  job.steps[4].slices = {guess(7, GuessRecord::kVoid)};
  job.steps[5].slices = {guess(6, GuessRecord::kRight), guess(7, GuessRecord::kVoid)};
  job.steps[6].slices = {{1, 7, 1, true}, guess(9, GuessRecord::kVoid)};
  job.steps[7].slices = {guess(10, GuessRecord::kVoid)};  // behind its last token
  job.steps[7].decode_rows = 0;
  const json events = EventsOf(job);
  testing::ExpectWellFormedTrace(events);
  std::map<std::string, std::string> colours;
  std::string names;
  for (const json& event : events) {
    if (event["ph"] != "X" || !event["args"].contains("prefill_rows")) continue;
    colours[event["name"]] = event["cname"];
    absl::StrAppend(&names, event["name"].get<std::string>(), "|");
    if (event["args"]["micro_batch"] == 5) {
      EXPECT_EQ(event["args"]["guessed_rows"], 2);
      EXPECT_EQ(event["args"]["void_rows"], 1);
    }
    EXPECT_EQ(event["args"].contains("guessed_rows"), event["args"]["micro_batch"] > 1);
  }
  EXPECT_EQ(names, "decode|decode|guess|guess (void)|guess (void)|guess|decode, guess|guess (void)|");
  EXPECT_EQ(colours.size(), 4u);
  EXPECT_NE(colours["guess"], colours["guess (void)"]);
  EXPECT_NE(colours["guess"], colours["decode"]);
  EXPECT_THAT(LanesOfRequests(events)["request 7"], HasSubstr("decode 1000-7000")) << "no void row is a preemption";
}

TEST(DrawTrace, SaysTheSameOfWhatWasReadBack) {
  const testing::TempDir dir;
  TraceJob job = OneAtATime();
  job.steps[0].commands = {{.request = 7, .sequence = 1, .at_us = -20, .prompt_tokens = 70}};
  job.steps[3].commands = {{.cancel = true, .request = 7, .sequence = 1, .at_us = 2900}};
  job.steps[1].slices = {{1, 0, 64}, {2, 9, 1, true}, {2, 10, 1, true, GuessRecord::kRight}};
  job.steps[2].slices = {{2, 11, 1, true, GuessRecord::kVoid}};
  ASSERT_TRUE(AlignTrace(&job).ok());
  ASSERT_TRUE(WriteTrace(dir.File("t.json"), {job}).ok());
  const std::vector<TraceJob> jobs = ReadTrace(dir.File("t.json")).value();
  ASSERT_EQ(jobs.size(), 1u);
  for (size_t i = 0; i < job.steps.size(); ++i) {
    EXPECT_EQ(jobs[0].steps[i].commands, job.steps[i].commands) << i;
    EXPECT_EQ(jobs[0].steps[i].slices, job.steps[i].slices) << i;
  }
}

TEST(DrawTrace, RefusesSlicesThatAreNone) {
  TraceJob job = OneAtATime();
  job.steps[0].slices = {{1, 0, 64}};
  std::string good;
  AppendTraceStepLine(job.steps[0], 0, &good);
  ASSERT_TRUE(ParseTraceStepLine(good, 1).ok());
  for (const char* bad : {"1:0", "1+64", "1:0+64!?", "1:0+64?*", ":0+64", "1:0+-64", "1:0+99999999999999999", "x"}) {
    std::string line = good;
    line.replace(line.find("1:0+64"), 6, bad);
    EXPECT_THAT(ParseTraceStepLine(line, 1).status().message(), HasSubstr("`slices` is not a string like")) << bad;
  }
}

TEST(AlignTrace, TellsAJobThatWasCutFromOneThatEndedInOrder) {
  TraceJob cut = MadeUpRun{.compute_us = {1000}, .micro_batches = 3}.Recorded();
  TraceJob whole = cut;
  whole.steps.back().shutdown = true;
  for (TraceJob* job : {&cut, &whole}) ASSERT_TRUE(AlignTrace(job).ok());
  EXPECT_TRUE(cut.cut);
  EXPECT_FALSE(whole.cut);
  const testing::TempDir dir;
  ASSERT_TRUE(WriteTrace(dir.File("t.json"), {cut, whole}).ok());
  const std::vector<TraceJob> jobs = ReadTrace(dir.File("t.json")).value();
  EXPECT_TRUE(jobs[0].cut);
  EXPECT_FALSE(jobs[1].cut);
}

TEST(AlignTrace, CountsMicroBatchesThatAreMissing) {
  TraceJob job = OneAtATime();
  EXPECT_EQ(job.missing(), 0);
  job.steps.erase(job.steps.begin() + 2, job.steps.begin() + 5);
  EXPECT_EQ(job.missing(), 3);
}

}  // namespace
}  // namespace stagecoach
