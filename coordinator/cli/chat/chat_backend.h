#ifndef STAGECOACH_COORDINATOR_CLI_CHAT_CHAT_BACKEND_H_
#define STAGECOACH_COORDINATOR_CLI_CHAT_CHAT_BACKEND_H_

// Who answers in a conversation: our own cluster, or a server.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/json/json.h"
#include "coordinator/cli/chat/line_source.h"

namespace stagecoach {

enum class AnswerPart {
  kContent,
  kReasoning,  // what the model thought before
};

// Receives text as it is decoded: UTF-8, whole characters. An error ends the answer, and becomes its error.
using TakeText = std::function<absl::Status(AnswerPart part, absl::string_view text)>;

struct ChatTurn {
  const Json* messages;          // as CheckMessages asks for; outlives the answer
  std::optional<bool> thinking;  // absent: the template's default
  int attempt = 0;               // how often the same messages were answered before: random numbers are other ones
};

struct ChatAnswer {
  std::string content;
  std::string reasoning;
  std::string finish_reason;  // "stop", "length", "cancelled": by a signal
  // Why there is no answer, or an incomplete one, and what can be done; empty otherwise. The conversation can continue.
  std::string refusal;
  bool failed = false;  // with a refusal: it could not be computed, whatever was asked

  int64_t prompt_tokens = 0;
  std::optional<int64_t> cached_tokens;  // of them; absent: unknown
  int64_t tokens = 0;                    // of the answer
  bool counted = true;                   // false: unknown; `tokens` is then the number of pieces that its text came in
  double first_token_s = 0;              // after the turn was begun
  double decode_s = 0;                   // from the first token to the last
};

// Not thread-safe: one thread calls everything. Signals are those that SignalWatch counts; the caller resets them.
// Errors are final and carry their exit code.
class ChatBackend {
 public:
  virtual ~ChatBackend() = default;

  // Waits until answers are possible. kCancelled: a signal came first.
  virtual absl::Status Prepare() = 0;
  // See line_source.h.
  virtual absl::StatusOr<Awaited> AwaitInput(int descriptor) = 0;
  // Streams an answer. A first signal to stop ends it early, keeping what came.
  virtual absl::StatusOr<ChatAnswer> Answer(const ChatTurn& turn, const TakeText& take) = 0;

  // Sets a sampling option, "temp" to "0.7"; "default" undoes a change. kInvalidArgument: an unknown name, or a bad
  // value.
  virtual absl::Status Set(absl::string_view name, absl::string_view value) = 0;
  virtual std::string Settings() const = 0;     // a line each
  virtual bool AlwaysAnswersAlike() const = 0;  // the same messages get the same answer, whatever the attempt
  virtual std::string Name() const = 0;         // of the model
  // Most tokens of a prompt and its answer; 0: unknown.
  virtual int64_t context_tokens() const = 0;
  virtual std::string Describe() const = 0;  // what else there is to say of it; a line each
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_CLI_CHAT_CHAT_BACKEND_H_
