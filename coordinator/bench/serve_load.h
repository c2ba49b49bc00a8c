#ifndef STAGECOACH_COORDINATOR_BENCH_SERVE_LOAD_H_
#define STAGECOACH_COORDINATOR_BENCH_SERVE_LOAD_H_

// A load of many clients on a server of OpenAI's API, ours or another's: its requests, their times and their outcomes.
// Deterministic by its seed; another rate only scales the times.

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "coordinator/serve/api/api_dialect.h"
#include "coordinator/serve/http/http_client.h"

namespace stagecoach {

inline constexpr int64_t kMostServeRequests = 1'000'000;
inline constexpr int64_t kMostServeClients = 4096;  // requests in flight: each has a thread
inline constexpr const ApiDialect* kLoadApis[] = {&kCompletionsApi, &kChatApi};  // that can be asked

// What the requests hold.
struct ServeDataset {
  std::string file;             // JSON lines, see ReadServeDataset; empty: random prompts
  int64_t input_tokens = 128;   // of a random prompt, beside the shared ones
  int64_t output_tokens = 128;  // asked for; of a file's lines that do not say
  double range_ratio = 0;       // lengths are uniform from (1 - this) to (1 + this) times those
  int64_t prefix_tokens = 0;    // that all random prompts begin with
  bool words = false;           // random prompts of `completions` are words too, as those of `chat`
};

struct ServeLoad {
  const ApiDialect* api = &kCompletionsApi;  // of kLoadApis
  std::string model;                         // what the requests name
  ServeDataset dataset;
  int64_t requests = 100;
  double rate_per_s = std::numeric_limits<double>::infinity();  // all at once
  double burstiness = 1;        // shape of the gamma distribution of the gaps; 1: a Poisson process
  int64_t max_concurrency = 0;  // in flight at once; 0: no limit
  uint64_t seed = 0;
  bool ignore_eos = true;
  int64_t vocab = 0;  // of the server's model; random prompts of completions are ids below it
};

// Of one request: when it is due, in seconds since the first, and its body.
struct ServeRequest {
  double due_s = 0;
  std::string body;
};

// Random prompts of `completions` are token ids; of `chat`, as many short words, which is roughly as many tokens. A
// line of a file is an object with `prompt` (a text or a list of token ids) or `messages`, and optionally `output_len`.
// Files with fewer lines than requests are repeated. kNotFound, kInvalidArgument (with file and line): the dataset.
// kFailedPrecondition: `vocab` is needed and unknown.
absl::StatusOr<std::vector<ServeRequest>> MakeServeRequests(const ServeLoad& load);

// Times in microseconds of MonotonicUs().
struct ServeOutcome {
  std::string error;  // empty: it was answered to its end
  int64_t due_us = 0, sent_us = 0;
  std::vector<int64_t> text_at_us;  // of each event that brought text
  int64_t end_us = 0;
  int64_t input_tokens = 0, output_tokens = 0;  // as `usage` says
  int64_t cached_tokens = 0;                    // of the input, as far as the server says
  bool has_usage = false;
  bool done = false;  // [DONE] came

  bool ok() const { return error.empty(); }
  int64_t first_us() const { return text_at_us.empty() ? end_us : text_at_us.front(); }
  int64_t last_us() const { return text_at_us.empty() ? end_us : text_at_us.back(); }
};

// What a server says of why it gave no answer: the message in a body or an event of OpenAI's form,
// {"error":{"message"}}, else the beginning of whatever it sent; never empty. It is the server's word, with any bytes
// in it.
std::string ServerMessage(absl::string_view sent);

// What an event of a streamed answer says, whichever of the APIs it is of. What else it holds is passed over.
struct AnswerEvent {
  struct Usage {
    int64_t input_tokens = 0, output_tokens = 0;  // at most 2^40: sums are still numbers, whatever a server says
    std::optional<int64_t> cached_tokens;         // of the input; absent: the server does not say
  };
  bool done = false;                              // [DONE]: the answer is whole
  std::string error;                              // the server gave up; empty: it did not
  std::string content, reasoning, finish_reason;  // of the first choice
  std::optional<Usage> usage;
  bool has_text() const { return !content.empty() || !reasoning.empty(); }
};
// kDataLoss: it is neither [DONE] nor a JSON object.
absl::StatusOr<AnswerEvent> ParseAnswerEvent(absl::string_view data);

// Takes an event of the answer, which arrived at that time.
void TakeAnswerEvent(absl::string_view data, int64_t at_us, ServeOutcome* outcome);

struct ServeRun {
  std::vector<ServeOutcome> outcomes;  // in the order of the requests
  int64_t start_us = 0;                // the first request was due
  int64_t end_us = 0;                  // the last answer had ended
  // The number of clients if it limited the concurrency that was asked for: the system refused more threads, or there
  // are kMostServeClients.
  std::optional<int64_t> fewer_clients;
};

// How many clients send the requests. `fewer`: more requests are due at once than kMostServeClients. Requests at a rate
// can still be sent in time, and are reported late if not.
struct ServeClients {
  int64_t clients = 0;
  bool fewer = false;
};
ServeClients ClientsFor(const ServeLoad& load);

// Sends all requests and waits for the answers. Calls `progress` from time to time on the calling thread with the
// number of ended requests; false stops the run: requests in flight are cancelled, and the rest count as failed.
ServeRun RunServeLoad(const HttpUrl& url, const HttpClientOptions& client, const ServeLoad& load,
                      const std::vector<ServeRequest>& requests, const std::function<bool(int64_t ended)>& progress);

// The first model that a server lists; numbers it does not give are 0. kUnauthenticated: it asks for a key. kNotFound:
// it lists none.
struct ServedModelInfo {
  std::string id;
  int64_t vocab = 0;
  int64_t context = 0;  // tokens
};
absl::StatusOr<ServedModelInfo> AskServedModel(const HttpUrl& url, const HttpClientOptions& client);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_BENCH_SERVE_LOAD_H_
