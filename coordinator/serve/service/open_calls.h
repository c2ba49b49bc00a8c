#ifndef STAGECOACH_COORDINATOR_SERVE_SERVICE_OPEN_CALLS_H_
#define STAGECOACH_COORDINATOR_SERVE_SERVICE_OPEN_CALLS_H_

// The calls that produce tokens, from the complete body to the last byte of the answer: places in the queue,
// preparation on other threads, the session's requests and events, and early ends. Runs on the I/O thread.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/ids.h"
#include "common/json/json.h"
#include "coordinator/serve/api/api_call.h"
#include "coordinator/serve/api/api_dialect.h"
#include "coordinator/serve/api/api_error.h"
#include "coordinator/serve/api/served_model.h"
#include "coordinator/serve/http/http_server.h"
#include "coordinator/serve/metrics/service_metrics.h"
#include "coordinator/serve/service/queue_places.h"
#include "coordinator/session/session_thread.h"

namespace stagecoach {

class PreparationPool;

// A file that grows by one line of JSON for each thing that happened. Not thread-safe.
class LineLog {
 public:
  // Appends to what is there. `secret`: a file that is made can be read by its owner alone.
  static absl::StatusOr<std::unique_ptr<LineLog>> Open(const std::string& path, bool secret);
  ~LineLog();
  LineLog(const LineLog&) = delete;

  // Writes the line at once. A failure is logged once; writing resumes when there is room again.
  void Write(const Json& line);

 private:
  LineLog(std::string path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}

  const std::string path_;
  const int descriptor_;
  bool failed_ = false;
  bool cut_ = false;  // the latest line is not whole
};

struct CallOptions {
  QueuePlaces::Limits queue;
  absl::Duration queue_timeout = absl::Seconds(600);  // to the first token: 504
  // From its first token on, however long it waited for that; then the answer ends with what is there.
  absl::Duration request_timeout = absl::InfiniteDuration();
  absl::Duration idle_time = kIdleTime;  // of a stream that says nothing of its own: ApiCall::Idle
  bool cache_shared = false;             // keys find what others asked in the prefix cache
  int max_choices = 8;                   // of one request
  int preparation_threads = 2;
  std::optional<uint64_t> seed;         // of calls without one; absent: drawn for each
  std::shared_ptr<LineLog> access_log;  // null: none
  std::shared_ptr<LineLog> prompt_log;  // what was asked and answered; null: none
};

class OpenCalls {
 public:
  // What is pointed to outlives this.
  OpenCalls(CallOptions options, const ServedModel* model, ServiceMetrics* metrics);
  ~OpenCalls();

  // Once, before anything else. `on_prepared`: after the preparation of each call.
  void Attach(HttpServer* server, SessionThread* session, std::function<void()> on_prepared);

  // Why another call of this tenant is refused now: the queue is full, or the tenant has its share. With Retry-After.
  std::optional<ApiError> Refusal(const std::string& tenant);
  // A whole request: takes a place, to be answered later, or refuses.
  void Take(const ApiDialect& api, std::shared_ptr<HttpExchange> exchange);

  void HandleEvents(std::vector<SessionEvent> events);
  void Tick();  // deadlines

  enum class Cancelled { kYes, kNotOwner, kNotFound };
  // Ends the calls with this id, the request's or the answer's, with the tokens so far, or as cancelled without any.
  Cancelled Cancel(const std::string& id, const std::string& tenant);

  // Writes what was kept back for slow clients.
  void FeedAllHeld();
  void FailAll(const ApiError& error);
  // To the access log; calls of Take are logged when they end.
  void LogAnswer(const HttpRequest& request, int status) const;
  // The session has ended, OK or not, which fails what is unfinished.
  void SessionEnds(const absl::Status& ended);

  // Runs `work` on another thread, then `done` on the I/O thread; dropped when the service ends.
  void Prepare(size_t bytes, std::function<void()> work, std::function<void()> done);
  void StopPreparing();  // not on the I/O thread

  size_t preparing() const { return preparing_; }  // calls
  size_t size() const { return calls_.size(); }
  const QueuePlaces& places() const { return places_; }

 private:
  struct Choice {
    RequestId request = 0;
    int64_t prompt_tokens = 0;  // that wait with it: none with one whose prompt an earlier choice has
    bool waits = true;          // holds a place: no token yet
    bool running = false;       // the session has it
    // Of a slow client: what it is to be told, in one piece.
    std::optional<SessionEvent> held;
  };
  struct Call {
    uint64_t number = 0;
    const ApiDialect* dialect = nullptr;
    std::shared_ptr<HttpExchange> exchange;
    std::string answer_id, tenant;
    int64_t accepted_us = 0, first_token_us = 0;
    int64_t queue_deadline_us = 0, deadline_us = 0;  // of MonotonicUs()
    std::unique_ptr<ApiCall> api;                    // null while it is prepared
    std::vector<Choice> choices;                     // empty "
    int64_t held_bytes = 0;                          // of all choices, about
    bool streaming = false;                          // the head is out
    int64_t said_us = 0;                             // when its stream said something of its own
    std::string prompt, answer;                      // with a prompt log
  };
  // A request that the session has, until its last event.
  struct Running {
    uint64_t call = 0;  // 0: it is over
    int choice = 0;
    // Why it was cancelled, which its last event does not know. REASON_LENGTH: by a deadline.
    pb::RequestFinished::Reason ended_as = pb::RequestFinished::REASON_UNSPECIFIED;
    MeteredRequest metered;
  };

  Call* Find(uint64_t number);
  void Prepared(uint64_t number, PreparedCall prepared);
  std::optional<ApiError> Submit(Call* call);
  void HandleEvent(SessionEvent event);
  void Feed(Call* call, int choice, const SessionEvent& event);
  void FeedHeldOf(uint64_t number);
  void Apply(Call* call, ApiCall::Output output);
  void EndChoice(Call* call, int choice, pb::RequestFinished::Reason as);
  void FinishWith(uint64_t number, pb::RequestFinished::Reason reason);
  void Fail(Call* call, const ApiError& error);
  void Refuse(Call* call, const ApiError& error);  // the same of one that was not taken
  // The numbers of the open calls that are wanted: what is done with one may end others.
  std::vector<uint64_t> CallsWhere(absl::FunctionRef<bool(const Call&)> wanted) const;
  void Close(Call* call, int status);
  void LeaveQueue(Call* call, Choice* choice);
  void LogCall(const Call& call, int status) const;
  void LogIgnored(const ApiCall& call);
  void SpeakWhereIdle(int64_t now_us);
  CallContext ContextOf(const HttpRequest& request, const std::string& answer_id) const;
  HttpHeaders AnswerHeaders(const Call& call) const;
  ApiError QueueError(QueuePlaces::Verdict verdict, const std::string& tenant);
  double PromptPace() const;
  void ReadBodiesOrWait();

  const CallOptions options_;
  const ServedModel* const model_;
  ServiceMetrics* const metrics_;
  HttpServer* server_ = nullptr;
  SessionThread* session_ = nullptr;
  std::function<void()> on_prepared_;

  const std::unique_ptr<PreparationPool> pool_;
  QueuePlaces places_;
  RetryTimes retry_times_;
  uint64_t last_number_ = 0;
  RequestId last_request_ = 0;
  absl::flat_hash_map<uint64_t, std::unique_ptr<Call>> calls_;  // by number
  absl::flat_hash_map<RequestId, Running> running_;
  size_t preparing_ = 0;
  bool bodies_wait_ = false;
  std::optional<absl::Status> session_ended_;
  absl::flat_hash_set<std::string> ignored_names_;  // that were logged
};

// An error as a client is told, in the form of the request's route, with the headers that say whether to try again.
HttpResponse ErrorResponse(const ApiError& error, const HttpRequest& request);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SERVE_SERVICE_OPEN_CALLS_H_
