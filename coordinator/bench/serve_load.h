#ifndef STAGECOACH_COORDINATOR_BENCH_SERVE_LOAD_H_
#define STAGECOACH_COORDINATOR_BENCH_SERVE_LOAD_H_

// Clients of a server that speaks OpenAI's API, ours or another's: which requests they send and when, and what came of
// each. The load is deterministic by its seed; with another rate the same requests come closer together.

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "coordinator/serve/http/http_client.h"

namespace stagecoach {

inline constexpr int64_t kMostServeRequests = 1'000'000;
inline constexpr int64_t kMostServeClients = 4096;  // requests under way: each has a thread

enum class ServeEndpoint { kCompletions, kChat };

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
  ServeEndpoint endpoint = ServeEndpoint::kCompletions;
  std::string model;  // what the requests name
  ServeDataset dataset;
  int64_t requests = 100;
  double rate_per_s = std::numeric_limits<double>::infinity();  // all at once
  double burstiness = 1;        // shape of the gamma distribution of the gaps; 1: a Poisson process
  int64_t max_concurrency = 0;  // under way at once; 0: no limit
  uint64_t seed = 0;
  bool ignore_eos = true;
  int64_t vocab = 0;  // of the server's model; random prompts of completions are ids below it
};

// Of one request: when it is due, in seconds since the first, and its body.
struct ServeRequest {
  double due_s = 0;
  std::string body;
};

// A random prompt of `completions` is token ids; of `chat`, as many short words, which is not quite as many tokens. A
// line of a file is an object with `prompt`, a text or a list of token ids, or `messages`, and perhaps `output_len`;
// files with fewer lines than requests are read again from their start. kNotFound, kInvalidArgument (with the file's
// name and the line): the dataset. kFailedPrecondition: `vocab` is needed, and nobody said it.
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

  bool ok() const { return error.empty(); }
  int64_t first_us() const { return text_at_us.empty() ? end_us : text_at_us.front(); }
  int64_t last_us() const { return text_at_us.empty() ? end_us : text_at_us.back(); }
};

// Takes the events of one streamed answer; its fields are those of both endpoints. Whatever else the events hold is
// passed over.
class ServeAnswerReader {
 public:
  explicit ServeAnswerReader(ServeOutcome* outcome) : outcome_(outcome) {}
  void TakeEvent(absl::string_view data, int64_t at_us);
  bool done() const { return done_; }

 private:
  ServeOutcome* const outcome_;
  bool done_ = false;
};

struct ServeRun {
  std::vector<ServeOutcome> outcomes;  // in the order of the requests
  int64_t start_us = 0;                // the first request was due
  int64_t end_us = 0;                  // the last answer had ended
  // No more requests than these could be under way at once, although more were asked for: the system gave no more
  // threads, or there are kMostServeClients.
  std::optional<int64_t> fewer_clients;
};

// How many clients send the requests. Fewer than were asked for: more are due at once than kMostServeClients; those
// that come at a rate can still be sent in time, and are late where they cannot.
struct ServeClients {
  int64_t clients = 0;
  bool fewer = false;
};
ServeClients ClientsFor(const ServeLoad& load);

// Sends them all and waits for the answers. `progress` is called now and then, by this thread, with the number that
// have ended; false: no more are sent, those under way are ended, and the rest count as failed.
ServeRun RunServeLoad(const HttpUrl& url, const HttpClientOptions& client, const ServeLoad& load,
                      const std::vector<ServeRequest>& requests, const std::function<bool(int64_t ended)>& progress);

// The model that a server names first; numbers are 0 when it does not say. kUnauthenticated: it asks for a key;
// kNotFound: it names none.
struct ServedModelInfo {
  std::string id;
  int64_t vocab = 0;
  int64_t context = 0;  // tokens
};
absl::StatusOr<ServedModelInfo> AskServedModel(const HttpUrl& url, const HttpClientOptions& client);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_BENCH_SERVE_LOAD_H_
