#include "tests/unit/coordinator/session/fake_engine.h"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "common/base/check.h"
#include "common/base/counter_rng.h"
#include "common/wire/step_messages.h"
#include "coordinator/channel/engine_channel.h"
#include "coordinator/launch/program_output.h"

namespace stagecoach {
namespace {

constexpr int kStages = 2;  // of every test

class FakeEngine {
 public:
  FakeEngine(std::map<std::string, std::string> options, std::string socket,
             const std::vector<std::string>& directories)
      : options_(std::move(options)), socket_(std::move(socket)) {
    launch_ = AppendLaunch(directories);
    misbehave_ = !Has("launches") || launch_ <= Number("launches");
  }

  [[noreturn]] void Run() {
    if (Has("environment")) {
      std::ofstream out(options_["environment"]);
      for (const std::string& variable : OwnEnvironment()) out << variable << "\n";
    }
    if (Has("children")) StartChildren();
    if (misbehave_ && Has("exit")) {
      std::printf("There are not enough slots available in the system\n");
      std::fflush(stdout);
      _exit(Number("exit"));
    }
    while (misbehave_ && Has("never")) pause();
    if (Has("slow_relaunch") && launch_ > 1) usleep(1000 * static_cast<useconds_t>(Number("slow_relaunch")));
    absl::StatusOr<int> descriptor = ConnectLocal(socket_);
    if (!descriptor.ok()) _exit(3);
    channel_ = std::make_unique<EngineChannel>(*descriptor);
    while (true) Turn();
  }

 private:
  struct Request {
    pb::SubmitRequest submit;
    int64_t produced = 0;
  };

  bool Has(const std::string& name) const { return options_.count(name) != 0; }
  int Number(const std::string& name) const {
    int value = 0;
    CHECK(absl::SimpleAtoi(options_.at(name), &value));
    return value;
  }

  int AppendLaunch(const std::vector<std::string>& directories) {
    if (!Has("state")) return 1;
    int launches = 0;
    {
      std::ifstream in(options_["state"]);
      for (std::string line; std::getline(in, line);) ++launches;
    }
    std::ofstream out(options_["state"], std::ios::app);
    out << getpid();
    for (const std::string& directory : directories) out << " " << directory;
    out << "\n";
    return launches + 1;
  }

  static void StartChildren() {
    for (const bool orphan : {false, true}) {
      if (fork() != 0) continue;
      if (orphan && fork() != 0) _exit(0);
      signal(SIGTERM, SIG_IGN);
      while (true) pause();
    }
  }

  void Turn() {
    while (true) {
      absl::StatusOr<std::optional<pb::EngineMessage>> message = channel_->Receive();
      if (!message.ok()) _exit(4);
      if (!message->has_value()) break;
      Handle(**message);
    }
    if (!requests_.empty()) {
      Produce();
      return;
    }
    pollfd wait = {channel_->descriptor(), POLLIN, 0};
    poll(&wait, 1, 20);
    if (!configured_) return;
    SendStatus(/*ended=*/false);
  }

  void Send(const pb::EngineMessage& message) {
    if (!channel_->Send(message).ok()) _exit(4);
  }

  void SendStatus(bool ended) {
    pb::EngineMessage message;
    pb::JobStatistics* statistics = message.mutable_status()->mutable_statistics();
    statistics->set_decode_rows(sent_);
    statistics->set_busy_s(1);
    statistics->add_stages()->set_compute_s(0.5);
    message.mutable_status()->set_ended(ended);
    Send(message);
  }

  void Handle(const pb::EngineMessage& message) {
    if (message.has_configure()) Configure(message.configure());
    if (message.has_submit() && Has("reject_resumed") && message.submit().output_size() > 0) {
      SendFinished(message.submit().request(), pb::RequestFinished::REASON_REJECTED);
    } else if (message.has_submit()) {
      requests_.push_back({message.submit(), message.submit().output_size()});
    }
    if (message.has_cancel()) Finish(message.cancel().request(), pb::RequestFinished::REASON_CANCELLED);
    if (message.has_shutdown()) {
      SendStatus(/*ended=*/true);
      _exit(0);
    }
  }

  void Configure(const pb::ConfigureJob& job) {
    configured_ = true;
    if (misbehave_ && Has("hostile")) BeHostile(options_["hostile"]);
    pb::EngineMessage out;
    if (misbehave_ && Has("failed")) {
      out.mutable_failed()->set_lost(options_["failed"] == "lost");
      out.mutable_failed()->set_code(static_cast<int>(absl::StatusCode::kNotFound));
      out.mutable_failed()->set_message("stage 1 on host x: no such model");
      Send(out);
      return;
    }
    if (Has("short") && launch_ > 1 && launch_ <= Number("short")) {
      out.mutable_failed()->set_code(static_cast<int>(absl::StatusCode::kResourceExhausted));
      out.mutable_failed()->set_message("the KV cache has room for 10 tokens");
      Send(out);
      return;
    }
    out.mutable_progress()->set_bytes_to_load(10);
    Send(out);
    const uint64_t size = launch_ > 1 && Has("changed") ? 2 : 1;
    out.mutable_ready()->add_fingerprints()->set_size_bytes(size);
    out.mutable_ready()->set_context(1000);
    out.mutable_ready()->set_blocks(launch_ == 2 && Has("small") ? Number("small") : 40);
    out.mutable_ready()->set_block_tokens(32);
    for (int stage = 0; stage < kStages; ++stage) {
      pb::StageSummary* summary = out.mutable_ready()->add_stages();
      summary->set_stage(stage);
      summary->set_rank(kStages - stage);  // against the order of ranks
    }
    if (Has("told")) CHECK_EQ(job.min_kv_tokens(), launch_ > 1 ? Number("told") : 0);
    if (Has("told")) CHECK_EQ(job.fingerprints_size(), launch_ > 1 ? 1 : 0);
    if (Has("told")) CHECK_EQ(job.step_log_append(), launch_ > 1);
    if (Has("told")) CHECK_EQ(job.trace_append(), launch_ > 1);
    Send(out);
    Misbehave();
  }

  void Misbehave() {
    if (!misbehave_) return;
    if (Has("die_after") && sent_ >= static_cast<uint64_t>(Number("die_after"))) kill(getpid(), SIGKILL);
    if (Has("stop_after") && sent_ >= static_cast<uint64_t>(Number("stop_after"))) kill(getpid(), SIGSTOP);
  }

  [[noreturn]] static void Crash() {
    const std::string dashes(74, '-');
    std::printf(
        "%s\nmpirun noticed that process rank 1 with PID 0 on node x exited on signal 11 (Segmentation fault).\n%s\n",
        dashes.c_str(), dashes.c_str());
    std::fflush(stdout);
    _exit(139);
  }

  void Produce() {
    Request request = requests_.front();
    requests_.pop_front();
    const pb::SubmitRequest& submit = request.submit;
    if (Has("crash_on") && std::count(submit.prompt().begin(), submit.prompt().end(), Number("crash_on")) > 0) Crash();
    const int64_t rows = submit.prompt_size() - 1;
    pb::EngineMessage out;
    pb::TokenDelta* delta = out.mutable_events()->add_tokens();
    delta->set_request(submit.request());
    if (submit.score_prompt() && rows > 0) {
      pb::TargetLogprobs* scores = delta->add_scores();
      const int64_t start = std::max<int64_t>(0, submit.score_from() - 1);
      scores->set_start(static_cast<int32_t>(start));
      for (int64_t row = start; row < rows; ++row) scores->add_logprobs(-static_cast<float>(row) - 1);
      request.submit.set_score_prompt(false);
    }
    TokenId token = 0;
    if (request.produced < submit.max_new_tokens()) {
      const int64_t position = submit.prompt_size() + request.produced++;
      token = FakeToken({submit.prompt().begin(), submit.prompt().end()}, submit.sampling().seed(), position);
      pb::SampledToken sampled;
      sampled.set_position(static_cast<int32_t>(position));
      sampled.set_token(token);
      if (!(misbehave_ && Has("gap") && request.produced == 2)) *delta->add_tokens() = sampled;
    }
    Send(out);
    if (misbehave_ && Has("duplicate")) Send(out);
    ++sent_;
    if (Has("status")) SendStatus(/*ended=*/false);
    Misbehave();
    const bool stop =
        std::find(submit.stop_tokens().begin(), submit.stop_tokens().end(), token) != submit.stop_tokens().end();
    if (!stop && request.produced < submit.max_new_tokens()) {
      requests_.push_back(std::move(request));
      return;
    }
    if (misbehave_ && Has("mute_end")) kill(getpid(), SIGKILL);
    const auto reason = stop ? pb::RequestFinished::REASON_STOP : pb::RequestFinished::REASON_LENGTH;
    SendFinished(submit.request(), submit.max_new_tokens() == 0 ? pb::RequestFinished::REASON_SCORED : reason);
  }

  void Finish(uint64_t id, pb::RequestFinished::Reason reason) {
    std::erase_if(requests_, [&](const Request& request) { return request.submit.request() == id; });
    SendFinished(id, reason);
  }

  void SendFinished(uint64_t id, pb::RequestFinished::Reason reason) {
    pb::EngineMessage out;
    pb::RequestFinished* finished = out.mutable_events()->add_finished();
    finished->set_request(id);
    finished->set_reason(reason);
    Send(out);
  }

  void BeHostile(const std::string& kind) {
    const auto write_bytes = [&](const std::string& bytes) {
      CHECK_EQ(send(channel_->descriptor(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
               static_cast<ssize_t>(bytes.size()));
    };
    pb::EngineMessage out;
    if (kind == "length") {
      write_bytes(std::string(4, '\xff'));
    } else if (kind == "garbage") {
      write_bytes(std::string("\x05\0\0\0", 4) + "\xff\xff\xff\xff\xff");
    } else if (kind == "torn") {
      write_bytes(std::string("\x50\0\0\0", 4) + "half");
      _exit(0);
    } else if (kind == "submit") {
      out.mutable_submit()->set_request(1);
      Send(out);
    } else {
      out.mutable_ready()->set_context(1000);
      Send(out);
      pb::TokenDelta* delta = out.mutable_events()->add_tokens();
      delta->set_request(kind == "unknown_request" ? 77 : 1);
      pb::SampledToken* token = delta->add_tokens();
      token->set_position(kind == "negative_token" ? 2 : 0);
      token->set_token(kind == "negative_token" ? -5 : 5);
      Send(out);
    }
    while (true) pause();
  }

  std::map<std::string, std::string> options_;
  const std::string socket_;
  int launch_ = 1;
  bool misbehave_ = true;
  std::unique_ptr<EngineChannel> channel_;
  std::deque<Request> requests_;
  bool configured_ = false;
  uint64_t sent_ = 0;
};

std::map<std::string, std::string> ParseOptions(const std::string& text) {
  std::map<std::string, std::string> options;
  for (const absl::string_view item : absl::StrSplit(text, ',', absl::SkipEmpty())) {
    const std::pair<std::string, std::string> pair = absl::StrSplit(item, absl::MaxSplits('=', 1));
    options.insert(pair);
  }
  return options;
}

}  // namespace

TokenId FakeToken(const std::vector<TokenId>& prompt, uint64_t seed, int64_t position) {
  uint64_t state = seed;
  for (const TokenId token : prompt) state = MixBits(state * 31 + static_cast<uint64_t>(token) + 1);
  return static_cast<TokenId>(1 + MixBits(state + static_cast<uint64_t>(position)) % 30000);
}

void MaybeRunFakeProgram(int argc, char** argv) {
  // As a stage under a real mpirun.
  if (absl::EndsWith(argv[0], "stage_worker")) {
    while (true) pause();
  }
  // As mpirun.
  if (argc == 2 && std::strcmp(argv[1], "--version") == 0) {
    std::puts("mpirun (Open MPI) 4.1.4");
    std::exit(0);
  }
  const char* environment = std::getenv("STAGECOACH_FAKE_ENGINE");
  std::string fake = environment != nullptr ? environment : "";
  std::string socket;
  std::vector<std::string> directories;
  for (int i = 1; i + 1 < argc; ++i) {
    if (std::strcmp(argv[i], "--fake") == 0) fake = argv[i + 1];
    if (std::strcmp(argv[i], "--connect") == 0) socket = argv[i + 1];
    if (std::strcmp(argv[i], "--cleanup") == 0) directories.push_back(argv[i + 1]);
  }
  if (socket.empty()) return;
  FakeEngine(ParseOptions(fake), socket, directories).Run();
}

}  // namespace stagecoach
