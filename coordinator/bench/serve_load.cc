#include "coordinator/bench/serve_load.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <fstream>
#include <mutex>
#include <random>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/counter_rng.h"
#include "common/base/shown_text.h"
#include "common/base/status_macros.h"
#include "common/json/json.h"
#include "common/json/json_value.h"
#include "coordinator/bench/arrivals.h"

namespace stagecoach {
namespace {

constexpr size_t kMostLineBytes = 16 << 20;
constexpr uint64_t kInputLengths = 1, kOutputLengths = 2, kPrefixTokens = 3, kTokenDraws = 4;

// Uniform in [low, high], by (seed, stream, number).
int64_t DrawAt(uint64_t seed, uint64_t stream, uint64_t number, int64_t low, int64_t high) {
  const double share = UniformAt(MixBits(seed + stream), number);
  return low + std::min(high - low, static_cast<int64_t>(share * static_cast<double>(high - low + 1)));
}

int64_t LengthAt(const ServeLoad& load, uint64_t stream, uint64_t number, int64_t mean) {
  const double spread = load.dataset.range_ratio * static_cast<double>(mean);
  const int64_t low = std::max<int64_t>(1, mean - static_cast<int64_t>(spread));
  return DrawAt(load.seed, stream, number, low, std::max(low, mean + static_cast<int64_t>(spread)));
}

// The ids at both ends of a vocabulary are those of control tokens and of single bytes.
int64_t TokenAt(const ServeLoad& load, uint64_t stream, uint64_t number) {
  const int64_t edge = load.vocab / 10;
  return DrawAt(load.seed, kTokenDraws + stream, number, edge, load.vocab - 1 - edge);
}

// Of random prompts.
bool HasTokenIds(const ServeLoad& load) { return load.api != &kChatApi && !load.dataset.words; }

Json RandomPrompt(const ServeLoad& load, uint64_t number) {
  const int64_t own = LengthAt(load, kInputLengths, number, load.dataset.input_tokens);
  Json tokens = Json::array();
  std::string words;
  const bool token_ids = HasTokenIds(load);
  const auto add = [&](uint64_t stream, uint64_t at) {
    if (token_ids) {
      tokens.push_back(TokenAt(load, stream, at));
    } else {  // two letters and a blank: about a token
      const uint64_t draw = static_cast<uint64_t>(DrawAt(load.seed, kTokenDraws + stream, at, 0, 26 * 26 - 1));
      words += {static_cast<char>('a' + draw / 26), static_cast<char>('a' + draw % 26), ' '};
    }
  };
  for (int64_t i = 0; i < load.dataset.prefix_tokens; ++i) add(kPrefixTokens, static_cast<uint64_t>(i));
  for (int64_t i = 0; i < own; ++i) add(kPrefixTokens + 1 + number, static_cast<uint64_t>(i));
  return token_ids ? tokens : Json(words);
}

// Null if there is no such member, or `object` is no object.
const Json& MemberOf(const Json& object, const char* name) {
  static const Json none;
  if (!object.is_object()) return none;
  const auto found = object.find(name);
  return found == object.end() ? none : *found;
}

struct DatasetLine {
  Json prompt;  // as the endpoint takes it
  int64_t output_tokens;
};

absl::StatusOr<DatasetLine> ParseDatasetLine(const ServeLoad& load, const std::string& text) {
  ASSIGN_OR_RETURN(Json line, ParseJson(text));
  if (!line.is_object()) return absl::InvalidArgumentError("expected a JSON object");
  DatasetLine result = {Json(), load.dataset.output_tokens};
  if (line.contains("output_len")) {
    const Json& length = line["output_len"];
    if (!length.is_number_integer() || length.get<int64_t>() < 1 || length.get<int64_t>() > kMostRequestTokens) {
      return absl::InvalidArgumentError(absl::StrCat("'output_len': expected 1 to ", kMostRequestTokens));
    }
    result.output_tokens = length.get<int64_t>();
  }
  const bool messages = line.contains("messages"), chat = load.api == &kChatApi;
  if (messages == line.contains("prompt")) {
    return absl::InvalidArgumentError("expected 'prompt' or 'messages', and one of them");
  }
  if (messages && !chat) return absl::InvalidArgumentError("'messages' need --endpoint chat");
  if (chat && !messages && !line["prompt"].is_string()) {
    return absl::InvalidArgumentError("'prompt': expected a text, as --endpoint chat takes no token ids");
  }
  result.prompt = std::move(line[messages ? "messages" : "prompt"]);
  return result;
}

absl::StatusOr<std::vector<DatasetLine>> ReadServeDataset(const ServeLoad& load) {
  const std::string& path = load.dataset.file;
  std::ifstream file(path);
  if (!file) return absl::NotFoundError(absl::StrCat("the dataset '", path, "' cannot be read"));
  std::vector<DatasetLine> lines;
  std::string text;
  for (int64_t number = 1; static_cast<int64_t>(lines.size()) < load.requests && std::getline(file, text); ++number) {
    if (text.empty()) continue;
    absl::StatusOr<DatasetLine> line = text.size() > kMostLineBytes
                                           ? absl::InvalidArgumentError("the line has more than 16 MiB")
                                           : ParseDatasetLine(load, text);
    if (!line.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("'", path, "', line ", number, ": ", line.status().message()));
    }
    lines.push_back(*std::move(line));
  }
  if (lines.empty()) return absl::InvalidArgumentError(absl::StrCat("the dataset '", path, "' is empty"));
  return lines;
}

std::string BodyOf(const ServeLoad& load, Json prompt, int64_t output_tokens) {
  Json body = {{"model", load.model}};
  if (load.api != &kChatApi) {
    body["prompt"] = std::move(prompt);
  } else {
    body["messages"] =
        prompt.is_array() ? std::move(prompt) : Json::array({{{"role", "user"}, {"content", std::move(prompt)}}});
  }
  body["max_tokens"] = output_tokens;
  body["temperature"] = 0;
  body["stream"] = true;
  body["stream_options"] = {{"include_usage", true}};
  if (load.ignore_eos) body["ignore_eos"] = true;
  return CompactJson(body);
}

// When each is due: gaps of a gamma distribution, of mean 1 / rate.
std::vector<double> DueTimes(const ServeLoad& load) {
  std::vector<double> due(static_cast<size_t>(load.requests), 0);
  if (std::isinf(load.rate_per_s)) return due;
  std::mt19937_64 random(load.seed);
  std::gamma_distribution<double> gap(load.burstiness, 1 / (load.rate_per_s * load.burstiness));
  for (size_t i = 1; i < due.size(); ++i) due[i] = due[i - 1] + gap(random);
  return due;
}

std::string TextIn(const Json& object, const char* name) {
  const Json& value = MemberOf(object, name);
  return value.is_string() ? value.get<std::string>() : "";
}

// A limit to a server's counts, so that their sums do not overflow.
constexpr int64_t kMostCounted = int64_t{1} << 40;

int64_t IntegerIn(const Json& object, const char* name) {
  const Json& value = MemberOf(object, name);
  if (!value.is_number_integer()) return 0;
  if (value.is_number_unsigned()) return static_cast<int64_t>(std::min<uint64_t>(value.get<uint64_t>(), kMostCounted));
  return std::clamp<int64_t>(value.get<int64_t>(), 0, kMostCounted);
}

// One run's threads. Each takes the next request, waits until it is due, and sends it.
class Clients {
 public:
  Clients(const HttpUrl& url, const HttpClientOptions& client, const ServeLoad& load,
          const std::vector<ServeRequest>& requests)
      : url_(url), client_(client), path_(load.api->path), requests_(requests) {
    run_.outcomes.resize(requests.size());
  }

  ServeRun Run(int64_t clients, const std::function<bool(int64_t)>& progress) {
    int stop[2];
    if (pipe(stop) != 0) stop[0] = stop[1] = -1;
    client_.cancel_descriptor = stop[0];
    run_.start_us = MonotonicUs();
    std::vector<std::thread> threads;
    try {
      for (int64_t i = 0; i < clients; ++i) threads.emplace_back([this] { Work(); });
    } catch (const std::system_error&) {
      run_.fewer_clients = static_cast<int64_t>(threads.size());  // those that run send all requests
      if (threads.empty()) Work();
    }
    {
      std::unique_lock<std::mutex> lock(mu_);
      while (ended_ < requests_.size()) {
        changed_.wait_for(lock, std::chrono::milliseconds(100));
        const int64_t ended = static_cast<int64_t>(ended_);
        lock.unlock();
        if (!stopped_ && !progress(ended)) {
          stopped_ = true;
          if (stop[1] >= 0) [[maybe_unused]]
            const ssize_t written = write(stop[1], "", 1);
        }
        lock.lock();
      }
    }
    for (std::thread& thread : threads) thread.join();
    for (const int descriptor : stop) {
      if (descriptor >= 0) close(descriptor);
    }
    run_.end_us = MonotonicUs();
    return std::move(run_);
  }

 private:
  void Work() {
    HttpClient client(url_, client_);
    for (size_t i = next_++; i < requests_.size(); i = next_++) {
      ServeOutcome& outcome = run_.outcomes[i];
      outcome.due_us = run_.start_us + static_cast<int64_t>(requests_[i].due_s * 1e6);
      AwaitDue(outcome.due_us);
      if (stopped_) {
        outcome.error = "not sent: interrupted";
      } else {
        Ask(client, requests_[i].body, &outcome);
      }
      const std::lock_guard<std::mutex> lock(mu_);
      if (++ended_ == requests_.size()) changed_.notify_one();
    }
  }

  void AwaitDue(int64_t due_us) const {
    for (int64_t left_us = due_us - MonotonicUs(); left_us > 0 && !stopped_; left_us = due_us - MonotonicUs()) {
      absl::SleepFor(absl::Microseconds(std::min<int64_t>(left_us, 100'000)));
    }
  }

  void Ask(HttpClient& client, const std::string& body, ServeOutcome* outcome) {
    SseReader events;
    HttpCall call;
    call.method = "POST";
    call.path = path_;
    call.body = body;
    call.on_body = [&](absl::string_view bytes, int64_t at_us) {
      const absl::Status status =
          events.Append(bytes, [&](const SseEvent& event) { TakeAnswerEvent(event.data, at_us, outcome); });
      if (!status.ok() && outcome->error.empty()) outcome->error = std::string(status.message());
      return status.ok();
    };
    outcome->sent_us = MonotonicUs();
    const absl::StatusOr<HttpReply> reply = client.Call(call);
    outcome->end_us = MonotonicUs();
    if (!reply.ok()) {
      outcome->error = std::string(reply.status().message());
      return;
    }
    outcome->sent_us = reply->sent_us;
    outcome->end_us = reply->end_us;
    if (!reply->succeeded()) {
      outcome->error = absl::StrCat("status ", reply->status, ": ", ServerMessage(reply->body));
    } else if (outcome->error.empty() && !outcome->done) {
      outcome->error = "the stream ended without [DONE]";
    }
  }

  const HttpUrl url_;
  HttpClientOptions client_;
  const std::string path_;
  const std::vector<ServeRequest>& requests_;
  ServeRun run_;  // each outcome is of the thread that took its request
  std::atomic<size_t> next_{0};
  std::atomic<bool> stopped_{false};

  std::mutex mu_;
  std::condition_variable changed_;
  size_t ended_ = 0;  // guarded by mu_
};

}  // namespace

absl::StatusOr<std::vector<ServeRequest>> MakeServeRequests(const ServeLoad& load) {
  std::vector<DatasetLine> lines;
  if (!load.dataset.file.empty()) {
    ASSIGN_OR_RETURN(lines, ReadServeDataset(load));
  } else if (HasTokenIds(load) && load.vocab < 10) {
    return absl::FailedPreconditionError(
        "the server does not say how many tokens its vocabulary has (meta.n_vocab of /v1/models), which random token "
        "ids need");
  }
  const std::vector<double> due = DueTimes(load);
  std::vector<ServeRequest> requests;
  for (size_t i = 0; i < due.size(); ++i) {
    Json prompt = lines.empty() ? RandomPrompt(load, i) : lines[i % lines.size()].prompt;
    const int64_t output = lines.empty() ? LengthAt(load, kOutputLengths, i, load.dataset.output_tokens)
                                         : lines[i % lines.size()].output_tokens;
    requests.push_back({due[i], BodyOf(load, std::move(prompt), output)});
  }
  return requests;
}

std::string ServerMessage(absl::string_view sent) {
  const absl::StatusOr<Json> json = ParseJson(sent);
  if (json.ok() && json->is_object()) {
    const auto error = json->find("error");
    if (error != json->end() && error->is_object()) {
      const auto message = error->find("message");
      std::string text = message != error->end() && message->is_string() ? message->get<std::string>() : "";
      if (!text.empty()) return text;
    }
  }
  return sent.empty() ? "without a word" : CutText(sent);
}

absl::StatusOr<AnswerEvent> ParseAnswerEvent(absl::string_view data) {
  AnswerEvent event;
  event.done = data == "[DONE]";
  if (event.done) return event;
  const absl::StatusOr<Json> json = ParseJson(data);
  if (!json.ok() || !json->is_object()) return absl::DataLossError("an event is no JSON object");
  if (json->contains("error")) {
    event.error = ServerMessage(data);
    return event;
  }
  if (const Json& choices = MemberOf(*json, "choices"); choices.is_array() && !choices.empty()) {
    const Json& choice = choices.front();
    const Json& delta = MemberOf(choice, "delta");
    event.content = absl::StrCat(TextIn(choice, "text"), TextIn(delta, "content"));
    event.reasoning = TextIn(delta, "reasoning_content");
    if (event.reasoning.empty()) event.reasoning = TextIn(delta, "reasoning");
    event.finish_reason = TextIn(choice, "finish_reason");
  }
  if (const Json& usage = MemberOf(*json, "usage"); usage.is_object()) {
    event.usage = {IntegerIn(usage, "prompt_tokens"), IntegerIn(usage, "completion_tokens"), std::nullopt};
    const Json& details = MemberOf(usage, "prompt_tokens_details");
    if (!MemberOf(details, "cached_tokens").is_null()) event.usage->cached_tokens = IntegerIn(details, "cached_tokens");
  }
  return event;
}

void TakeAnswerEvent(absl::string_view data, int64_t at_us, ServeOutcome* outcome) {
  const absl::StatusOr<AnswerEvent> event = ParseAnswerEvent(data);
  if (outcome->error.empty()) outcome->error = event.ok() ? event->error : std::string(event.status().message());
  if (!event.ok()) return;
  outcome->done = outcome->done || event->done;
  if (event->has_text()) outcome->text_at_us.push_back(at_us);
  if (!event->usage.has_value()) return;
  outcome->has_usage = true;
  outcome->input_tokens = event->usage->input_tokens;
  outcome->output_tokens = event->usage->output_tokens;
  outcome->cached_tokens = event->usage->cached_tokens.value_or(outcome->cached_tokens);
}

ServeClients ClientsFor(const ServeLoad& load) {
  const int64_t wanted = load.max_concurrency > 0 ? std::min(load.requests, load.max_concurrency) : load.requests;
  return {std::min(wanted, kMostServeClients), std::isinf(load.rate_per_s) && wanted > kMostServeClients};
}

ServeRun RunServeLoad(const HttpUrl& url, const HttpClientOptions& client, const ServeLoad& load,
                      const std::vector<ServeRequest>& requests, const std::function<bool(int64_t ended)>& progress) {
  const ServeClients wanted = ClientsFor(load);
  ServeRun run = Clients(url, client, load, requests).Run(wanted.clients, progress);
  if (wanted.fewer && !run.fewer_clients.has_value()) run.fewer_clients = wanted.clients;
  return run;
}

absl::StatusOr<ServedModelInfo> AskServedModel(const HttpUrl& url, const HttpClientOptions& client) {
  HttpCall call;
  call.path = "/v1/models";
  ASSIGN_OR_RETURN(const HttpReply reply, HttpClient(url, client).Call(call));
  if (!reply.succeeded()) {
    const std::string what = absl::StrCat("GET /v1/models: status ", reply.status, ": ", ServerMessage(reply.body));
    return reply.status == 401 ? absl::UnauthenticatedError(what) : absl::UnavailableError(what);
  }
  const Json json = ParseJson(reply.body).value_or(Json());
  if (const Json& data = MemberOf(json, "data"); data.is_array()) {
    for (const Json& model : data) {
      const Json& id = MemberOf(model, "id");
      if (!id.is_string() || id.get_ref<const std::string&>().empty()) continue;
      ServedModelInfo info = {id.get<std::string>()};
      info.context = IntegerIn(model, "max_model_len");
      info.vocab = IntegerIn(MemberOf(model, "meta"), "n_vocab");
      return info;
    }
  }
  return absl::NotFoundError("GET /v1/models names no model: this is no server of OpenAI's API");
}

}  // namespace stagecoach
