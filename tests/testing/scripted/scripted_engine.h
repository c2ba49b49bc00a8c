#ifndef STAGECOACH_TESTS_TESTING_SCRIPTED_SCRIPTED_ENGINE_H_
#define STAGECOACH_TESTS_TESTING_SCRIPTED_SCRIPTED_ENGINE_H_

// The engine's side of the socket, played by a thread that emits given tokens for given prompts at given times: so that
// what stands in front of an engine is tested against exact answers, without a model's weights.

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "common/base/ids.h"
#include "coordinator/channel/engine_channel.h"
#include "coordinator/session/session.h"
#include "proto/engine.pb.h"

namespace stagecoach::testing {

struct ScriptedAnswer {
  // In order; one of the request's stop tokens ends the answer. After the last one comes a stop token, or where there
  // are none the tokens again, until the request has as many as it wants.
  std::vector<TokenId> tokens;
  int64_t first_us = 0;       // before the first token
  int64_t each_us = 0;        // before each further one
  pb::RequestCost cost = {};  // told at the end
};

struct ScriptedEngineOptions {
  std::function<ScriptedAnswer(const pb::SubmitRequest&)> script;
  int64_t context = 4096;
  int blocks = 1024, block_tokens = 16;
  int max_running = 8;  // the others wait in order
  bool ready = true;    // else after BeReady
};

// Every chosen token has the log-probability -0.5; those that come next in `top` have one less each, and the ids that
// follow. Tokens of a prompt that is scored have -1.
class ScriptedEngine {
 public:
  // Owns the descriptor, an end of a local stream socket.
  ScriptedEngine(int descriptor, ScriptedEngineOptions options);
  ~ScriptedEngine();

  void BeReady() { ready_ = true; }
  void GoAway() { leave_ = true; }    // as an engine that was killed
  void Hold(bool on) { held_ = on; }  // no tokens meanwhile
  int running() const { return running_count_; }
  int waiting() const { return waiting_count_; }
  int64_t cancelled() const { return cancelled_; }
  int64_t sent() const { return sent_; }  // tokens
  int64_t submitted() const { return submitted_; }

 private:
  struct Request {
    pb::SubmitRequest submit;
    ScriptedAnswer answer;
    int64_t produced = 0;  // since it was submitted
    int64_t due_us = -1;   // of the next token; -1: it waits
  };

  void Run();
  void SayReady();
  void SayStatus(bool ended);
  void SayProgress(const pb::SubmitRequest& submit);  // one word, to who wants it: all but the last token of the prompt
  void Handle(const pb::EngineMessage& message);
  int64_t Produce();  // what is due; when the next is
  bool ProduceOne(Request* request, pb::RequestEvents* events);
  void Score(const Request& request, pb::TokenDelta* delta) const;
  int BlocksUsed() const;
  void Count();

  EngineChannel channel_;
  const ScriptedEngineOptions options_;
  std::deque<Request> requests_;  // the first max_running run
  bool told_ready_ = false;
  int64_t told_status_us_ = 0;
  std::atomic<bool> ready_{false}, leave_{false}, held_{false};
  std::atomic<int> running_count_{0}, waiting_count_{0};
  std::atomic<int64_t> cancelled_{0}, sent_{0}, submitted_{0};
  std::thread thread_;
};

// A session that is joined to an engine which runs in this process.
std::unique_ptr<Session> JoinScriptedEngine(ScriptedEngineOptions options, std::unique_ptr<ScriptedEngine>* engine);

}  // namespace stagecoach::testing

#endif  // STAGECOACH_TESTS_TESTING_SCRIPTED_SCRIPTED_ENGINE_H_
