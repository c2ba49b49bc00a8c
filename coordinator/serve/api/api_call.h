#ifndef STAGECOACH_COORDINATOR_SERVE_API_API_CALL_H_
#define STAGECOACH_COORDINATOR_SERVE_API_API_CALL_H_

// A request of one of the HTTP APIs, from its body to the bytes of its answer. No sockets, clocks or threads.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/json/json.h"
#include "coordinator/serve/api/api_error.h"
#include "coordinator/serve/api/served_model.h"
#include "coordinator/session/session.h"

namespace stagecoach {

struct ApiDialect;  // of the API that the call speaks, see api_dialect.h
struct CallPlan;    // what a body asks for, and what it takes to answer it

// Beside pings: some clients give up a stream that says nothing of its own for longer.
inline constexpr absl::Duration kIdleTime = absl::Seconds(60);

// Made by PrepareCall; used by one thread at a time.
class ApiCall {
 public:
  struct Output {
    std::string bytes;        // of a stream: whole events to send now. Else nothing until the end, then the body
    std::vector<int> cancel;  // choices whose request is of no more use: a stop string came
    bool ended = false;       // the answer is complete: `bytes` are its last
    // The call failed, and has ended. `bytes` are the error's event in a stream and its body elsewhere, with the
    // error's status if no byte of the answer was sent.
    std::optional<ApiError> error;
  };
  struct Usage {
    int64_t prompt_tokens = 0;      // of each prompt once
    int64_t completion_tokens = 0;  // every sampled token, those that end answers too
    int64_t cached_tokens = 0;
    int64_t reasoning_tokens = 0;
    int64_t accepted_prediction_tokens = 0, rejected_prediction_tokens = 0;  // see prediction_guesser.h
  };

  explicit ApiCall(CallPlan plan);  // by PrepareCall
  ~ApiCall();
  ApiCall(const ApiCall&) = delete;

  // For the session: request i gives choice i. Once.
  std::vector<GenerationRequest> TakeRequests();

  size_t choices() const;
  bool streams() const;
  int choices_a_prompt() const;  // the choices of the first prompt come first, then those of the second
  Usage usage() const;           // so far
  // Names of what was in the body and is not known or has no effect here, in the order found: for the header
  // x-stagecoach-ignored (IgnoredHeader) and the log. They are the client's words.
  const std::vector<std::string>& ignored() const;
  // The same of tools and parts of the conversation that were left out: "tools.web_search".
  const std::vector<std::string>& skipped() const;
  // Of the request, from its arrival: the answer ends with what is there (finish reason length).
  std::optional<absl::Duration> timeout() const;

  // All requests were taken into the queue: a stream's first events.
  Output Begin();
  // Takes what the session says of a choice's request; several of its events may be put into one, whose text then comes
  // as one delta. REASON_CANCELLED ends a choice with the finish reason length. After its end a call takes nothing.
  Output Take(int choice, const SessionEvent& event);
  // The call cannot go on.
  Output Fail(const ApiError& error);
  // A stream has said nothing for kIdleTime, perhaps again.
  Output Idle();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Exactly one of the two.
struct PreparedCall {
  std::unique_ptr<ApiCall> call;
  std::optional<ApiError> error;
};

// Reads the body of a request. `model` outlives the call. Tokenizes the prompt: not for a thread that others wait for.
PreparedCall PrepareCall(const ApiDialect& api, absl::string_view body, const ServedModel& model,
                         const CallContext& context);
// The same of an object that ParseJson gave.
PreparedCall PrepareParsedCall(const ApiDialect& api, const Json& body, const ServedModel& model,
                               const CallContext& context);

// At most 1 KiB of names separated by ", "; what could not stand in a header is left out.
std::string IgnoredHeader(const std::vector<std::string>& ignored);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SERVE_API_API_CALL_H_
