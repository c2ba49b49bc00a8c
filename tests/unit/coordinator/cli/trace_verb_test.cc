#include <algorithm>
#include <regex>
#include <set>
#include <string>

#include "CLI/App.hpp"
#include "CLI/Config.hpp"
#include "CLI/Formatter.hpp"
#include "coordinator/cli/verb.h"
#include "coordinator/trace/trace_file.h"
#include "tests/testing/matchers.h"
#include "tests/testing/shared_data.h"
#include "tests/unit/coordinator/trace/made_up_run.h"

namespace stagecoach {
namespace {

// What `trace summary` prints of this job.
std::string SummaryOfTrace(TraceJob job) {
  const testing::TempDir dir;
  job.header.simulated = true;
  EXPECT_TRUE(AlignTrace(&job).ok());
  EXPECT_TRUE(WriteTrace(dir.File("trace.json"), {job}).ok());
  CLI::App app;
  const std::unique_ptr<Verb> verb = MakeTraceVerb();
  verb->AddOptions(&app);
  std::vector<std::string> words = {dir.File("trace.json"), "summary"};
  app.parse(words);
  ::testing::internal::CaptureStdout();
  const absl::Status status = verb->Run({});
  const std::string text = ::testing::internal::GetCapturedStdout();
  EXPECT_TRUE(status.ok()) << status;
  return text;
}

const testing::MadeUpRun kHops = {.compute_us = {1000, 1000}, .in_flight = 2, .micro_batches = 100, .hop_us = 500};

TEST(TraceVerb, NamesOnlyOptionsThatThereAreInItsRemedies) {
  CLI::App app;
  const std::unique_ptr<Verb> verb = MakeGenerateVerb();
  verb->AddOptions(&app);
  std::set<std::string> options;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) options.insert("--" + name);
  }
  TraceJob one_host = kHops.Recorded();
  for (TraceStage& stage : one_host.header.stages) stage.host = one_host.header.coordinator_host;
  const std::pair<const char*, TraceJob> cases[] = {
      {"too few sequences", testing::MadeUpRun{.compute_us = {1000, 1000, 1000}, .micro_batches = 50}.Recorded()},
      {"imbalance", testing::MadeUpRun{.compute_us = {1000, 3000}, .in_flight = 2, .micro_batches = 100}.Recorded()},
      {"fill and drain",
       testing::MadeUpRun{.compute_us = {1000, 1000, 1000}, .in_flight = 3, .micro_batches = 8}.Recorded()},
      {"hop", kHops.Recorded()},
      {"hop", one_host},
      {"coordinator",
       testing::MadeUpRun{.compute_us = {1000, 1000}, .in_flight = 2, .micro_batches = 100, .turn_us = 500}
           .Recorded()}};
  for (const auto& [cause, job] : cases) {
    const std::string text = SummaryOfTrace(job);
    ASSERT_THAT(text, HasSubstr(std::string("mostly ") + cause + "\nremedy    "));
    const std::string remedy = text.substr(text.find("\nremedy    "));
    int flags = 0;
    const std::regex flag("--[a-z-]+");
    for (std::sregex_iterator found(remedy.begin(), remedy.end(), flag), end; found != end; ++found, ++flags) {
      EXPECT_TRUE(options.count(found->str())) << remedy;
    }
    EXPECT_GT(flags, 0) << remedy;
  }
}

TEST(TraceVerb, AdvisesFasterLinksOnlyBetweenHosts) {
  TraceJob job = kHops.Recorded();
  EXPECT_THAT(SummaryOfTrace(job), HasSubstr("faster links"));
  for (TraceStage& stage : job.header.stages) stage.host = job.header.coordinator_host;
  EXPECT_THAT(SummaryOfTrace(job), AllOf(Not(HasSubstr("faster links")), HasSubstr("all are on one host")));
}

TEST(TraceVerb, ShowsNoNamesThatATerminalWouldTakeForOrders) {
  TraceJob job = kHops.Recorded();
  job.header.stages[0].host = "n1\x1b[31m";
  EXPECT_THAT(SummaryOfTrace(job), AllOf(HasSubstr("'n1"), Not(HasSubstr("\x1b")), HasSubstr(" host1 ")));
}

}  // namespace
}  // namespace stagecoach
