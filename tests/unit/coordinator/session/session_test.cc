// What a session accepts, and what becomes of its requests when jobs are lost again and again.

#include "coordinator/session/session.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/wire/handshake.h"
#include "common/wire/host_report.h"
#include "coordinator/launch/launcher.h"
#include "tests/testing/matchers.h"
#include "tests/unit/coordinator/session/fake_engine.h"
#include "tests/unit/coordinator/session/session_fixture.h"

namespace stagecoach {
namespace {

using Finished = pb::RequestFinished;

TEST_F(SessionTest, StreamsTokensAndEndsInOrder) {
  Launch("");
  EXPECT_EQ(session_->ready(), nullptr);
  const RequestId a = Submit(Request({1, 2, 3}, 20));
  ASSERT_TRUE(Run().ok());
  ASSERT_NE(session_->ready(), nullptr);
  EXPECT_EQ(session_->ready()->context(), 1000);
  EXPECT_EQ(session_->load_progress().bytes_to_load(), 10u);
  const RequestId b = Submit(Request({4}, 5));  // while the job runs
  ASSERT_TRUE(Run().ok());
  ExpectWhole(a);
  ExpectWhole(b);
  EXPECT_EQ(session_->Finish().value().decode_rows(), 25u);
  EXPECT_EQ(session_->relaunches(), 0);
  EXPECT_EQ(session_->Next(absl::ZeroDuration()).status().code(), absl::StatusCode::kFailedPrecondition);
  session_.reset();
  EXPECT_THAT(Launches(), SizeIs(1));
  ExpectNothingIsLeft();
}

TEST_F(SessionTest, GoesOnWithTheSameStreamAfterTheJobIsKilledAtAnyPoint) {
  for (const int die_after : {0, 1, 2, 7, 13, 29, 30, 31}) {
    SCOPED_TRACE(die_after);
    LaunchOptions options = Options(absl::StrCat("told=1000,launches=2,die_after=", die_after));
    options.job.set_context(1000);
    Launch(options);
    for (TokenId i = 0; i < 4; ++i) Submit(Request({i, 5, i}, 10 + i));
    RunAndExpectAllWhole();
    if (HasFatalFailure()) return;
    EXPECT_EQ(session_->relaunches(), die_after < 23 ? 2 : 1) << die_after;
    ExpectNothingIsLeft();
  }
}

TEST_F(SessionTest, DropsWhatIsReportedTwice) { ExpectWholeAnswer(Options("duplicate=1"), Request({1, 2}, 12)); }

TEST_F(SessionTest, EndsWithAnInternalErrorWhenATokenIsMissing) {
  EXPECT_THAT(StatusOf(Options("gap=1"), Request({1, 2}, 12)),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("a token for position 4, expected 3")));
}

TEST_F(SessionTest, FinishesByItselfWhenOnlyTheLastWordWasLost) {
  ExpectWholeAnswer(Options("mute_end=1"), Request({1, 2}, 6));
  EXPECT_EQ(session_->relaunches(), 0);
}

TEST_F(SessionTest, ScoresAPromptOnceAcrossALoss) {
  Launch("launches=1,die_after=1");
  GenerationRequest request = Request({1, 2, 3, 4, 5}, 3);
  request.score_from = 2;
  const RequestId id = Submit(request);
  ASSERT_TRUE(Run().ok());
  EXPECT_THAT(outcomes_[id].scores, ElementsAre(-2, -3, -4));
  ExpectWhole(id);
  EXPECT_EQ(session_->relaunches(), 1);
}

TEST_F(SessionTest, GivesUpAfterThreeLossesWithoutAToken) {
  const absl::Status status = StatusOf(Options("die_after=0"), Request({1, 2}, 6));
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnavailable, HasSubstr("lost 3 times in a row without a new token")));
  EXPECT_EQ(session_->relaunches(), 2);
  EXPECT_EQ(session_->Next(absl::ZeroDuration()).status(), status);
  session_.reset();
  EXPECT_THAT(Launches(), SizeIs(3));
  ExpectNothingIsLeft();
}

TEST_F(SessionTest, KeepsGoingThroughAnyNumberOfLossesThatMadeProgress) {
  ExpectWholeAnswer(Options("die_after=2"), Request({1, 2}, 15));
  EXPECT_EQ(session_->relaunches(), 7);
}

TEST_F(SessionTest, AddsUpTheStatisticsOfLostJobsUpToTheirLastReport) {
  Launch("die_after=4,status=1");
  EXPECT_EQ(session_->statistics().stages_size(), 0);
  ASSERT_TRUE(session_->Submit(1, Request({1, 2}, 15)).ok());
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(session_->relaunches(), 3);
  for (const bool finished : {false, true}) {
    if (finished) {
      EXPECT_TRUE(session_->Finish().ok());
    }
    EXPECT_EQ(session_->statistics().decode_rows(), 15u);
    EXPECT_EQ(session_->statistics().busy_s(), 4);
    ASSERT_EQ(session_->statistics().stages_size(), 1);
    EXPECT_EQ(session_->statistics().stages(0).compute_s(), 2);
  }
}

TEST_F(SessionTest, TakesALauncherThatNeverComesUpForLost) {
  LaunchOptions options = Options("never=1,launches=1");
  options.startup_timeout = absl::Milliseconds(300);
  const absl::Status status = StatusOf(options, Request({1, 2}, 3));
  // On a machine so busy that later launches take too long as well, the session may give up, but for that very reason.
  if (!status.ok()) {
    EXPECT_THAT(status.message(), HasSubstr("did not come up within 300ms"));
  } else {
    ExpectWhole(1);
    EXPECT_GE(session_->relaunches(), 1);
  }
  ExpectNothingIsLeft();
}

TEST_F(SessionTest, ReportsALaunchThatFailsAtOnceWithTheLaunchersWords) {
  const absl::Status status = StatusOf(Options("exit=1"), Request({1}, 1));
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("exit code 1 and printed:\nThere are not enough slots available"));
  EXPECT_THAT(status.message(), HasSubstr("`dry_run`"));
  EXPECT_EQ(session_->relaunches(), 0);
  ExpectNothingIsLeft();
}

TEST_F(SessionTest, NamesAnMpirunThatCannotBeRun) {
  LaunchOptions options = Options("");
  options.mpirun_path = directory_ + "/mpirun";
  std::ofstream(options.mpirun_path) << "#!/no/such/interpreter\n";
  std::filesystem::permissions(options.mpirun_path, std::filesystem::perms::owner_all);
  Launch(options);
  EXPECT_THAT(Run(), StatusIs(absl::StatusCode::kFailedPrecondition,
                              HasSubstr(absl::StrCat("cannot run '", options.mpirun_path, "'"))));
}

TEST_F(SessionTest, ReplacesAnEngineThatIsStopped) {
  LaunchOptions options = Options("stop_after=4,launches=1");
  options.silence_timeout = absl::Milliseconds(700);
  ExpectWholeAnswer(options, Request({1, 2}, 9));
  EXPECT_GE(session_->relaunches(), 1);
  ExpectNothingIsLeft();
}

TEST_F(SessionTest, SurvivesARelaunchThatIsSlowerThanTheSilenceThatCausedIt) {
  LaunchOptions options = Options("stop_after=4,launches=1,slow_relaunch=1500");
  options.silence_timeout = absl::Milliseconds(700);
  ExpectWholeAnswer(options, Request({1, 2}, 9));
  EXPECT_GE(session_->relaunches(), 1);
}

TEST_F(SessionTest, EndsWithAnErrorWhenARelaunchedJobRejectsWhatWasBeingAnswered) {
  const absl::Status status = StatusOf(Options("die_after=3,launches=1,reject_resumed=1"), Request({1, 2}, 9));
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
}

TEST_F(SessionTest, RefusesAModelFileThatChangedBetweenJobs) {
  EXPECT_THAT(StatusOf(Options("die_after=2,launches=1,changed=1"), Request({1, 2}, 9)),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("model file 'demo.gguf' changed")));
}

TEST_F(SessionTest, TakesTheEnginesOwnFailureAsFinalAndALostStageNot) {
  EXPECT_EQ(StatusOf(Options("failed=final"), Request({1, 2}, 2)),
            absl::NotFoundError("stage 1 on host x: no such model"));
  EXPECT_EQ(session_->relaunches(), 0);

  EXPECT_THAT(StatusOf(Options("failed=lost"), Request({1, 2}, 2)),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("the last time: stage 1 on host x: no such model")));
  EXPECT_EQ(session_->relaunches(), 2);
}

TEST_F(SessionTest, SurvivesHostileMessages) {
  const std::vector<std::pair<std::string, absl::StatusCode>> cases = {
      {"length", absl::StatusCode::kInternal},         {"garbage", absl::StatusCode::kInternal},
      {"submit", absl::StatusCode::kInternal},         {"unknown_request", absl::StatusCode::kInternal},
      {"negative_token", absl::StatusCode::kInternal}, {"torn", absl::StatusCode::kFailedPrecondition}};
  for (const auto& [kind, code] : cases) {
    const absl::Status status = StatusOf(Options("hostile=" + kind), Request({1, 2}, 2));
    EXPECT_EQ(status.code(), code) << kind << ": " << status;
    EXPECT_THAT(outcomes_, IsEmpty()) << kind;
    ExpectNothingIsLeft();
  }
}

TEST_F(SessionTest, CancelsBeforeAndDuringTheJob) {
  Launch("");
  const RequestId early = Submit(Request({1, 2}, 5));
  session_->Cancel(early);
  const RequestId late = Submit(Request({3}, 100000));
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(outcomes_[early].reason, Finished::REASON_CANCELLED);
  while (outcomes_[late].tokens.empty() && !HasFatalFailure()) TakeNext();
  session_->Cancel(late);
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(outcomes_[late].reason, Finished::REASON_CANCELLED);
  session_->Cancel(late);  // once more does nothing
  session_->Cancel(12345);
}

TEST_F(SessionTest, LeavesNoProcessWhenItIsDestroyed) {
  Launch("children=1");
  Submit(Request({1, 2}, 100000));
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(session_->Next(absl::Seconds(1)).ok());
  ASSERT_THAT(Launches(), SizeIs(1));
  const pid_t leader = getsid(Launches()[0].pid);
  EXPECT_NE(leader, getsid(0));
  // Guard, engine and its two; for a moment also the parent of the orphan.
  while (ListSession(leader).size() != 4) absl::SleepFor(absl::Milliseconds(5));
  session_.reset();
  EXPECT_THAT(ListSession(leader), IsEmpty());
  ExpectNothingIsLeft();
}

TEST_F(SessionTest, LeavesNoProcessWhenTheFrontIsKilled) {
  const pid_t front = fork();
  if (front == 0) {
    Launch("children=1,die_after=1000000");
    Submit(Request({1, 2}, 100000000));
    while (session_->Next(absl::Seconds(1)).ok()) {
    }
    _exit(1);
  }
  while (Launches().empty() || Launches()[0].directories.empty()) absl::SleepFor(absl::Milliseconds(5));
  const LaunchRecord launch = Launches()[0];
  const pid_t leader = getsid(launch.pid);
  while (ListSession(leader).size() != 4) absl::SleepFor(absl::Milliseconds(5));
  kill(front, SIGKILL);
  ASSERT_EQ(waitpid(front, nullptr, 0), front);
  const absl::Time deadline = absl::Now() + absl::Seconds(60);
  while (!ListSession(leader).empty() && absl::Now() < deadline) absl::SleepFor(absl::Milliseconds(5));
  EXPECT_THAT(ListSession(leader), IsEmpty());
  for (const std::string& path : launch.directories) EXPECT_FALSE(std::filesystem::exists(path)) << path;
}

TEST_F(SessionTest, TakesOverWhenTheGuardItselfIsKilled) {
  Launch("children=1,die_after=100000");
  Submit(Request({1, 2}, 400));
  while (Launches().empty()) absl::SleepFor(absl::Milliseconds(5));
  const pid_t leader = getsid(Launches()[0].pid);
  kill(leader, SIGKILL);
  RunAndExpectAllWhole();
  session_.reset();
  EXPECT_THAT(ListSession(leader), IsEmpty());
  for (const LaunchRecord& launch : Launches()) {
    for (const std::string& path : launch.directories) EXPECT_FALSE(std::filesystem::exists(path)) << path;
  }
}

TEST_F(SessionTest, HidesAnOuterJobFromTheLauncher) {
  setenv("OMPI_COMM_WORLD_RANK", "0", 1);
  setenv("PMIX_RANK", "0", 1);
  setenv("OMPI_MCA_btl_base_verbose", "1", 1);
  Launch(absl::StrCat("environment=", directory_, "/environment"));
  unsetenv("OMPI_COMM_WORLD_RANK");
  unsetenv("PMIX_RANK");
  unsetenv("OMPI_MCA_btl_base_verbose");
  Submit(Request({1}, 1));
  ASSERT_TRUE(Run().ok());
  std::vector<std::string> variables;
  std::ifstream in(directory_ + "/environment");
  for (std::string line; std::getline(in, line);) variables.push_back(line);
  EXPECT_THAT(variables, Contains("OMPI_MCA_btl_base_verbose=1"));
  EXPECT_THAT(variables, Each(Not(StartsWith("OMPI_COMM_"))));
  EXPECT_THAT(variables, Each(Not(StartsWith("PMIX_"))));
}

TEST_F(SessionTest, WakesUpForTheWatchedDescriptor) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  Launch("");
  session_->WatchDescriptor(ends[0]);
  while (session_->ready() == nullptr) ASSERT_TRUE(session_->Next(absl::Seconds(1)).ok());
  ASSERT_EQ(write(ends[1], "x", 1), 1);
  EXPECT_FALSE(session_->Next(absl::InfiniteDuration()).value().has_value());
  close(ends[0]);
  close(ends[1]);
}

pid_t FindRank(pid_t leader, int rank) {
  while (true) {
    for (const SessionProcess& process : ListSession(leader)) {
      if (process.rank == rank) return process.pid;
    }
    absl::SleepFor(absl::Milliseconds(5));
  }
}

TEST_F(SessionTest, NamesTheRankThatARealMpirunLost) {
  LaunchOptions options = Options("");
  options.mpirun_path = "mpirun";
  options.launcher_args.clear();
  options.stage_worker_path = directory_ + "/stage_worker";
  std::filesystem::create_symlink(options.coordinator_path, options.stage_worker_path);
  options.max_losses = 1;
  setenv("STAGECOACH_FAKE_ENGINE", absl::StrCat("state=", directory_, "/state").c_str(), 1);
  absl::Status status;
  // Our ranks do not call MPI_Init, so one may die while mpirun still launches, and then it does not say which.
  for (int attempt = 0; attempt < 5 && status.message().find("(stage 0)") == absl::string_view::npos; ++attempt) {
    Launch(options);
    while (session_->ready() == nullptr) ASSERT_TRUE(session_->Next(absl::Seconds(1)).ok());
    const pid_t leader = getsid(Launches()[0].pid);
    const pid_t stage = FindRank(leader, 2);
    absl::SleepFor(absl::Milliseconds(100 * attempt));
    kill(stage, SIGKILL);
    status = Run();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
    session_.reset();
    EXPECT_THAT(ListSession(leader), IsEmpty());
    ExpectNothingIsLeft();
  }
  unsetenv("STAGECOACH_FAKE_ENGINE");
  EXPECT_THAT(status.message(), HasSubstr("rank 2 (stage 0) on "));
  EXPECT_THAT(status.message(), HasSubstr("was ended by signal 9 (Killed)"));
}

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
  EXPECT_THAT(status.message(), HasSubstr("did not come up within 300ms"));
  EXPECT_THAT(status.message(), HasSubstr("1 on near.invalid, 1 on far.invalid"));
  EXPECT_THAT(status.message(), HasSubstr("TCP connections"));
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
  EXPECT_THAT(StatusWith(script, absl::Seconds(3)).message(),
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
  EXPECT_THAT(other_mpi.message(), HasSubstr("is not Open MPI's: it says 'HYDRA build details:'"));

  rlimit files;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &files), 0);
  const rlimit few = {16, files.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  const absl::Status limited = Session::Launch(Options("die_after=3")).status();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &files), 0);
  EXPECT_EQ(limited.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(limited.message(), HasSubstr("may have 16 files open (ulimit -n)"));
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
  EXPECT_THAT(session_->Submit(100000, Request(std::vector<TokenId>(1000, 1), 1)),
              StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("the prompt has 1000 tokens")));
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
    const std::vector<SessionEvent> events = session_->NextBatch(absl::Seconds(1)).value();
    for (const SessionEvent& event : events) {
      Take(event);
      finished += event.finished.has_value() ? 1 : 0;
    }
  }
  ExpectWhole(a);
  ExpectWhole(b);
}

}  // namespace
}  // namespace stagecoach
