#ifndef STAGECOACH_TESTS_UNIT_COORDINATOR_SESSION_SESSION_FIXTURE_H_
#define STAGECOACH_TESTS_UNIT_COORDINATOR_SESSION_SESSION_FIXTURE_H_

// Sessions over launched fake engines (fake_engine.h), and what comes of their requests.

#include <signal.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/session/session.h"
#include "tests/testing/matchers.h"
#include "tests/unit/coordinator/session/fake_engine.h"

namespace stagecoach {

// One line of the fake engine's state file.
struct LaunchRecord {
  pid_t pid = 0;
  std::vector<std::string> directories;
};

struct Outcome {
  std::vector<TokenId> tokens;
  std::vector<int32_t> positions;
  std::vector<float> scores;
  std::optional<pb::RequestFinished::Reason> reason;
  std::string error;
};

inline GenerationRequest Request(std::vector<TokenId> prompt, int64_t max_new_tokens) {
  GenerationRequest request = {.prompt = std::move(prompt), .max_new_tokens = max_new_tokens};
  request.sampling.seed = 42;
  return request;
}

struct SessionTest : ::testing::Test {
  SessionTest() {
    std::string name = "/tmp/session_test.XXXXXX";
    directory_ = mkdtemp(name.data());
    setenv("TMPDIR", directory_.c_str(), 1);
  }
  ~SessionTest() override {
    session_.reset();
    unsetenv("TMPDIR");
    std::filesystem::remove_all(directory_);
  }

  LaunchOptions Options(const std::string& fake) {
    LaunchOptions options;
    const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
    options.mpirun_path = options.coordinator_path = options.stage_worker_path = self;
    options.stages = 2;
    options.launcher_args = absl::StrCat("--fake state=", directory_, "/state,", fake);
    options.job.set_model_path("demo.gguf");
    options.relaunch_timeout = absl::ZeroDuration();
    return options;
  }

  void Launch(const LaunchOptions& options) {
    session_.reset();
    requests_.clear();
    outcomes_.clear();
    std::filesystem::remove(directory_ + "/state");
    session_ = Session::Launch(options).value();
  }
  void Launch(const std::string& fake) { Launch(Options(fake)); }

  // Under the first id that the session takes.
  RequestId Submit(const GenerationRequest& request) {
    RequestId id = 1;
    absl::Status status;
    while (absl::IsInvalidArgument(status = session_->Submit(id, request))) ++id;
    EXPECT_TRUE(status.ok()) << status;
    requests_[id] = request;
    return id;
  }

  // Runs until `count` more requests have ended, or to the first error.
  absl::Status Run(size_t count = 1) {
    const absl::Time deadline = absl::Now() + absl::Seconds(60);
    size_t finished = 0;
    while (finished < count) {
      if (absl::Now() > deadline) return absl::DeadlineExceededError("the test's own deadline");
      absl::StatusOr<std::optional<SessionEvent>> event = session_->Next(absl::Seconds(1));
      if (!event.ok()) return event.status();
      if (!event->has_value()) continue;
      Take(**event);
      if ((*event)->finished.has_value()) ++finished;
    }
    return absl::OkStatus();
  }
  void TakeNext() {
    const auto event = session_->Next(absl::Milliseconds(100)).value();
    if (event.has_value()) Take(*event);
  }
  // How the session ends that has one request.
  absl::Status StatusOf(const LaunchOptions& options, const GenerationRequest& request) {
    Launch(options);
    Submit(request);
    return Run();
  }

  void Take(const SessionEvent& event) {
    Outcome& outcome = outcomes_[event.request];
    EXPECT_FALSE(outcome.reason.has_value()) << "request " << event.request << " goes on after its end";
    for (const SampledToken& token : event.tokens) {
      outcome.tokens.push_back(token.token);
      outcome.positions.push_back(token.position);
    }
    for (const TargetLogprobs& scores : event.scores) {
      outcome.scores.insert(outcome.scores.end(), scores.logprobs.begin(), scores.logprobs.end());
    }
    if (!event.finished.has_value()) return;
    outcome.reason = event.finished->reason();
    outcome.error = event.finished->error();
  }

  void ExpectWhole(RequestId id) {
    const GenerationRequest& request = requests_.at(id);
    std::vector<TokenId> tokens;
    std::vector<int32_t> positions;
    for (int64_t i = 0; i < request.max_new_tokens; ++i) {
      positions.push_back(static_cast<int32_t>(request.prompt.size() + i));
      tokens.push_back(FakeToken(request.prompt, request.sampling.seed, positions.back()));
    }
    EXPECT_EQ(outcomes_[id].tokens, tokens);
    EXPECT_EQ(outcomes_[id].positions, positions);
    EXPECT_EQ(outcomes_[id].reason, pb::RequestFinished::REASON_LENGTH);
  }
  void ExpectWholeAnswer(const LaunchOptions& options, const GenerationRequest& request) {
    Launch(options);
    Submit(request);
    RunAndExpectAllWhole();
  }
  void RunAndExpectAllWhole() {
    const absl::Status status = Run(requests_.size());
    ASSERT_TRUE(status.ok()) << status;
    for (const auto& [id, request] : requests_) ExpectWhole(id);
  }

  std::vector<LaunchRecord> Launches() const {
    std::vector<LaunchRecord> records;
    std::ifstream in(directory_ + "/state");
    for (std::string line; std::getline(in, line);) {
      std::istringstream words(line);
      LaunchRecord record;
      words >> record.pid;
      for (std::string path; words >> path;) record.directories.push_back(path);
      records.push_back(record);
    }
    return records;
  }

  // Once the session is: every directory of every launch is gone, and so is its process.
  void ExpectNothingIsLeft() {
    session_.reset();
    for (const LaunchRecord& launch : Launches()) {
      EXPECT_THAT(launch.directories, Not(IsEmpty()));
      for (const std::string& path : launch.directories) EXPECT_FALSE(std::filesystem::exists(path)) << path;
      EXPECT_NE(kill(launch.pid, 0), 0) << launch.pid;
    }
    for (const auto& entry : std::filesystem::directory_iterator(directory_)) {
      EXPECT_THAT(entry.path().filename().string(), Not(StartsWith("stagecoach.")));
    }
  }

  std::string directory_;
  std::unique_ptr<Session> session_;
  std::map<RequestId, GenerationRequest> requests_;  // of Submit
  std::map<RequestId, Outcome> outcomes_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_TESTS_UNIT_COORDINATOR_SESSION_SESSION_FIXTURE_H_
