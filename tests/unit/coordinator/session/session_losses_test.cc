// What becomes of requests when jobs are lost again and again, and what a session takes at all.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <fstream>

#include "common/wire/handshake.h"
#include "common/wire/host_report.h"
#include "tests/unit/coordinator/session/session_fixture.h"

namespace stagecoach {
namespace {

using ::testing::HasSubstr;
using Finished = pb::RequestFinished;

TEST_F(SessionTest, QuickLossesDoNotEndItWhileItsPatienceLasts) {
  LaunchOptions options = Options("die_after=0,launches=4");
  options.relaunch_timeout = absl::Minutes(10);
  ExpectWholeAnswer(options, Request({1, 2}, 6));
  EXPECT_EQ(session_->relaunches(), 4);
}

// What a job over two hosts whose ranks do not come up ends with, where `script` answers for each host.
class SessionOverHosts : public SessionTest {
 protected:
  absl::Status StatusWith(const std::string& script, absl::Duration startup_timeout) {
    LaunchOptions options = Options("never=1");
    options.hosts = "near.invalid,far.invalid";
    options.rsh_agent = directory_ + "/agent";
    std::ofstream(options.rsh_agent) << "#!/bin/sh\n" << script << "\n";
    EXPECT_EQ(chmod(options.rsh_agent.c_str(), 0755), 0);
    options.startup_timeout = startup_timeout;
    options.max_losses = 1;
    const absl::Status status = StatusOf(options, Request({1}, 1));
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
    return status;
  }

  SessionOverHosts() { *report_.mutable_hello() = MakeHello(pb::Hello::ROLE_STAGE, {InstructionSet::kScalar}); }

  pb::HostReport report_;
};

// A login works, and a firewall keeps the ranks from each other.
TEST_F(SessionOverHosts, ThatDoesNotComeUpNamesThemAndTheirPorts) {
  const absl::Status status = StatusWith("echo " + EncodeHostReport(report_), absl::Milliseconds(300));
  EXPECT_THAT(std::string(status.message()), HasSubstr("did not come up within 300ms"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("1 on near.invalid, 1 on far.invalid"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("TCP connections"));
  ExpectNothingIsLeft();
}

// Those of this host are seen without a question.
TEST_F(SessionOverHosts, WithARankThatIsStoppedWhileTheJobStartsNamesItBeforeTheTimeout) {
  const std::string without = EncodeHostReport(report_);
  report_.add_stopped()->set_rank(2);
  report_.mutable_stopped(0)->set_pid(77);
  const std::string script =
      absl::StrCat("[ $1 = near.invalid ] || echo ", EncodeHostReport(report_), "\necho ", without);
  // A sixth of it later hosts are asked.
  EXPECT_THAT(std::string(StatusWith(script, absl::Seconds(3)).message()),
              HasSubstr("the job does not come up; rank 2 on far.invalid is stopped (pid 77)"));
}

// Nothing is launched, and so nothing is launched again.
TEST_F(SessionTest, WhatKeepsRanksFromStartingIsSaidBeforeALaunch) {
  LaunchOptions options = Options("die_after=3");
  options.mpirun_path = directory_ + "/mpirun";
  std::ofstream(options.mpirun_path) << "#!/bin/sh\necho 'HYDRA build details:'\necho '    Version: 4.0.2'\n";
  ASSERT_EQ(chmod(options.mpirun_path.c_str(), 0755), 0);
  const absl::Status other_mpi = Session::Launch(options).status();
  EXPECT_EQ(other_mpi.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(other_mpi.message()), HasSubstr("is not Open MPI's: it says 'HYDRA build details:'"));

  rlimit files;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &files), 0);
  const rlimit few = {16, files.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  const absl::Status limited = Session::Launch(Options("die_after=3")).status();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &files), 0);
  EXPECT_EQ(limited.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(limited.message()), HasSubstr("may have 16 files open (ulimit -n)"));
  EXPECT_TRUE(Launches().empty());
}

TEST_F(SessionTest, TheRequestThatCrashesAStageEachTimeEndsWithAnErrorAndTheOthersGoOn) {
  LaunchOptions options = Options("crash_on=7");
  options.relaunch_timeout = absl::Minutes(10);
  Launch(options);
  for (TokenId i = 3; i < 11; ++i) Submit(Request({i, 5}, 4));
  const absl::Status status = Run(requests_.size());
  ASSERT_TRUE(status.ok()) << status;
  for (const auto& [id, request] : requests_) {
    if (request.prompt[0] != 7) {
      ExpectWhole(id);
      continue;
    }
    EXPECT_EQ(outcomes_[id].reason, Finished::REASON_FAILED);
    EXPECT_THAT(outcomes_[id].error, HasSubstr("rank 1 (stage 1) on x was ended by signal 11 (Segmentation fault)"));
  }
  EXPECT_LE(session_->relaunches(), 8);
  ASSERT_EQ(static_cast<int>(session_->losses().size()), session_->relaunches());
  for (const StageLoss& loss : session_->losses()) {
    EXPECT_EQ(loss.stage, 1) << loss.what;
    EXPECT_THAT(loss.what, HasSubstr("rank 1 (stage 1)"));
    EXPECT_GT(loss.recovered_us, loss.at_us);
  }
}

TEST_F(SessionTest, KeepsEveryLossAndWhenItWasMadeGood) {
  ExpectWholeAnswer(Options("die_after=3,launches=2,slow_relaunch=300"), Request({1, 5}, 12));
  ASSERT_EQ(session_->losses().size(), 2u);
  for (int i = 0; i < 2; ++i) {
    const StageLoss& loss = session_->losses()[i];
    EXPECT_EQ(loss.number, i + 1);
    EXPECT_FALSE(loss.what.empty());
    EXPECT_FALSE(loss.stage.has_value()) << "it was the engine";
    EXPECT_GT(loss.recovered_us, loss.at_us + 250000);
  }
}

TEST_F(SessionTest, SaysAtOnceThatAJobWasLostNotOnlyWhenTheNextOneComesUp) {
  Launch("die_after=3,launches=1,slow_relaunch=1500");
  Submit(Request({1, 5}, 12));
  while (session_->losses().empty()) ASSERT_TRUE(session_->Next(absl::Seconds(30)).ok());
  EXPECT_FALSE(session_->job_ready());
  EXPECT_EQ(session_->losses()[0].recovered_us, 0);
}

TEST_F(SessionTest, MemoryThatIsShortAtARelaunchRefusesNothingThatWasTaken) {
  LaunchOptions options =
      Options("told=7,die_after=3,launches=1,short=4");  // 2 + 6 tokens, of which the last is not kept
  options.relaunch_timeout = absl::Minutes(10);
  Launch(options);
  for (TokenId i = 0; i < 12; ++i) Submit(Request({i, 5}, 6));
  RunAndExpectAllWhole();
  EXPECT_EQ(session_->relaunches(), 4);
}

TEST_F(SessionTest, AContextThatWasAskedForMustFitARelaunchOneThatCameOfMemoryNeedNot) {
  for (const int context : {0, 1000}) {
    SCOPED_TRACE(context);
    LaunchOptions options = Options(absl::StrCat("told=", context > 0 ? context : 7, ",die_after=3,launches=1"));
    options.job.set_context(context);
    ExpectWholeAnswer(options, Request({1, 5}, 6));
  }
}

TEST_F(SessionTest, WhatIsTakenWhileARelaunchComesUpIsNotRefusedByItsSmallerPool) {
  LaunchOptions options = Options("die_after=3,launches=1,slow_relaunch=1500,small=2");  // 64 tokens
  options.relaunch_timeout = absl::Minutes(10);
  Launch(options);
  Submit(Request({1, 5}, 6));
  const absl::Time deadline = absl::Now() + absl::Seconds(60);
  while (outcomes_[1].tokens.size() < 3 && absl::Now() < deadline) TakeNext();
  while (session_->job_ready() && absl::Now() < deadline) TakeNext();
  ASSERT_FALSE(session_->job_ready());
  Submit(Request(std::vector<TokenId>(100, 3), 6));
  EXPECT_EQ(session_->Submit(1000, Request(std::vector<TokenId>(1000, 3), 6)).code(), absl::StatusCode::kOutOfRange);
  RunAndExpectAllWhole();
  EXPECT_EQ(session_->relaunches(), 2);
}

TEST_F(SessionTest, RefusesAtOnceWhatTheReadyJobCannotHoldAndIdsThatDoNotGrow) {
  Launch("");
  while (session_->ready() == nullptr) ASSERT_TRUE(session_->Next(absl::Seconds(1)).ok());
  const absl::Status too_long = session_->Submit(100000, Request(std::vector<TokenId>(1000, 1), 1));
  EXPECT_EQ(too_long.code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(std::string(too_long.message()), HasSubstr("the prompt has 1000 tokens"));
  EXPECT_TRUE(session_->Submit(100000, Request({1}, 2)).ok()) << "the refused one's id is still free";
  EXPECT_EQ(session_->Submit(100000, Request({1}, 2)).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(session_->Submit(99999, Request({1}, 2)).code(), absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(Run().ok());
  ASSERT_TRUE(session_->Finish().ok());
  EXPECT_EQ(session_->Submit(100001, Request({1}, 2)).code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(SessionTest, ABatchOfEventsIsAllThatIsThereInOrder) {
  Launch("");
  const RequestId a = Submit(Request({1, 2, 3}, 20)), b = Submit(Request({4}, 20));
  size_t finished = 0;
  while (finished < 2) {
    const absl::StatusOr<std::vector<SessionEvent>> events = session_->NextBatch(absl::Seconds(1));
    ASSERT_TRUE(events.ok()) << events.status();
    for (const SessionEvent& event : *events) {
      Take(event);
      finished += event.finished.has_value() ? 1 : 0;
    }
  }
  ExpectWhole(a);
  ExpectWhole(b);
}

}  // namespace
}  // namespace stagecoach
