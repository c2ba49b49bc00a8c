#include "coordinator/cli/chat/chat_server.h"

#include <poll.h>

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/json/json_value.h"
#include "coordinator/bench/serve_load.h"
#include "coordinator/cli/chat/chat_screen.h"
#include "coordinator/front/exit_codes.h"
#include "coordinator/front/signals.h"

namespace stagecoach {
namespace {

// No terminal obeys them.
std::string ServersWords(absl::string_view sent) { return ForTerminal(ServerMessage(sent)); }

ChatAnswer Refused(const HttpReply& reply) {
  ChatAnswer answer;
  answer.refusal = absl::StrCat("the server refused (status ", reply.status, "): ", ServersWords(reply.body));
  int64_t seconds = 0;
  if (absl::SimpleAtoi(FindHeader(reply.headers, "retry-after"), &seconds) && seconds > 0) {
    absl::StrAppend(&answer.refusal, "; it asks to try again in ", seconds, " s");
  }
  answer.failed = reply.status >= 500;
  return answer;
}

// Takes the events of one answer.
class AnswerEvents {
 public:
  AnswerEvents(const TakeText& take, ChatAnswer* answer) : take_(take), answer_(answer) {}

  // Not OK: the answer is of no use any more.
  absl::Status Take(const SseEvent& event, int64_t at_us) {
    const absl::StatusOr<AnswerEvent> said = ParseAnswerEvent(event.data);
    if (!said.ok()) return absl::DataLossError("the server sent an event that is no JSON object");
    done_ = said->done || !said->error.empty();
    if (!said->error.empty()) {
      answer_->refusal = absl::StrCat("the server gave up: ", ForTerminal(said->error));
      answer_->failed = true;
    }
    if (said->usage.has_value()) {
      has_usage_ = true;
      answer_->prompt_tokens = said->usage->input_tokens;
      answer_->tokens = said->usage->output_tokens;
      if (said->usage->cached_tokens.has_value()) answer_->cached_tokens = said->usage->cached_tokens;
    }
    if (!said->finish_reason.empty()) answer_->finish_reason = said->finish_reason;
    if (!said->has_text()) return absl::OkStatus();
    ++pieces_;
    last_us_ = at_us;
    if (first_us_ == 0) first_us_ = at_us;
    answer_->reasoning += said->reasoning;
    answer_->content += said->content;
    if (!said->reasoning.empty()) RETURN_IF_ERROR(take_(AnswerPart::kReasoning, said->reasoning));
    return said->content.empty() ? absl::OkStatus() : take_(AnswerPart::kContent, said->content);
  }

  // The answer has ended, or was stopped: servers tell how many tokens it has behind its last piece, or not at all.
  void Finish() {
    if (has_usage_ || pieces_ == 0) return;
    answer_->tokens = pieces_;
    answer_->counted = false;
  }

  bool done() const { return done_; }
  int64_t first_us() const { return first_us_; }
  int64_t last_us() const { return last_us_; }

 private:
  const TakeText& take_;
  ChatAnswer* const answer_;
  bool done_ = false, has_usage_ = false;
  int64_t pieces_ = 0;  // events that brought text
  int64_t first_us_ = 0, last_us_ = 0;
};

// A signal that came before this is still counted.
void ClearOldWakeUps() { SignalWatch::Get().Clear(); }

}  // namespace

ChatServer::ChatServer(HttpUrl url, HttpClientOptions client, ChatSettings settings, std::vector<std::string> stops)
    : url_(url),
      options_([&] {
        client.cancel_descriptor = SignalWatch::Get().descriptor();
        return client;
      }()),
      client_(std::move(url), options_),
      stops_(std::move(stops)),
      given_(settings),
      settings_(settings) {}

absl::Status ChatServer::Prepare() {
  ClearOldWakeUps();
  const absl::StatusOr<ServedModelInfo> served = AskServedModel(url_, options_);
  if (absl::IsCancelled(served.status())) return served.status();
  if (!served.ok()) {  // the server's fault, not a file's
    const std::string what = ForTerminal(served.status().message());
    return absl::IsUnauthenticated(served.status())
               ? UsageError(absl::StrCat(what, " (--api-key-file, STAGECOACH_API_KEY)"))
               : absl::UnavailableError(what);
  }
  model_ = served->id;
  context_tokens_ = served->context;
  return absl::OkStatus();
}

absl::StatusOr<Awaited> ChatServer::AwaitInput(int descriptor) {
  SignalWatch& signals = SignalWatch::Get();
  if (signals.stops() > 0 || signals.drain()) return Awaited::kSignal;
  pollfd waits[] = {{descriptor, POLLIN, 0}, {signals.descriptor(), POLLIN, 0}};
  if (poll(waits, 2, /*timeout=*/1000) <= 0) return Awaited::kNothing;
  if (waits[1].revents != 0) {
    signals.Clear();
    return Awaited::kNothing;  // whose signal it was, the next call sees
  }
  return Awaited::kReadable;
}

std::string ChatServer::Body(const ChatTurn& turn) const {
  Json body = {{"model", model_}, {"messages", *turn.messages}, {"stream", true}};
  body["stream_options"] = {{"include_usage", true}};
  for (const GivenSetting& setting : GivenSettings(settings_)) {
    body[setting.field] = setting.value;
  }
  if (settings_.sampling.seed.has_value()) {
    body["seed"] = *settings_.sampling.seed + static_cast<uint64_t>(turn.attempt);
  }
  if (settings_.sampling.ignore_eos) body["ignore_eos"] = true;
  if (!stops_.empty()) body["stop"] = stops_;
  if (turn.thinking.has_value()) {
    // One switch, which templates know by either name.
    body["chat_template_kwargs"] = {{"enable_thinking", *turn.thinking}, {"thinking", *turn.thinking}};
  }
  return CompactJson(body);
}

absl::StatusOr<ChatAnswer> ChatServer::Answer(const ChatTurn& turn, const TakeText& take) {
  ClearOldWakeUps();
  ChatAnswer answer;
  if (SignalWatch::Get().stops() > 0) {  // as one that came a moment later
    answer.finish_reason = "cancelled";
    return answer;
  }
  AnswerEvents events(take, &answer);
  SseReader reader;
  absl::Status status;
  HttpCall call;
  call.method = "POST";
  call.path = kChatApi.path;
  call.body = Body(turn);
  call.on_body = [&](absl::string_view bytes, int64_t at_us) {
    const absl::Status read = reader.Append(bytes, [&](const SseEvent& event) {
      if (status.ok() && !events.done()) status = events.Take(event, at_us);
    });
    if (status.ok()) status = read;
    return status.ok();
  };
  const int64_t begun_us = MonotonicUs();
  const absl::StatusOr<HttpReply> reply = client_.Call(call);
  events.Finish();
  if (absl::IsDataLoss(status)) {
    answer.refusal = std::string(status.message());
    answer.failed = true;
  } else {
    RETURN_IF_ERROR(status);  // of `take`
  }
  if (absl::IsCancelled(reply.status())) {
    answer.finish_reason = "cancelled";
  } else if (!reply.ok()) {
    answer.refusal = std::string(reply.status().message());
    answer.failed = true;
  } else if (!reply->succeeded()) {
    return Refused(*reply);
  } else if (!events.done() && answer.refusal.empty()) {
    answer.refusal = "the server's answer ended in the middle";
    answer.failed = true;
  }
  if (events.first_us() > 0) answer.first_token_s = static_cast<double>(events.first_us() - begun_us) * 1e-6;
  answer.decode_s = static_cast<double>(events.last_us() - events.first_us()) * 1e-6;
  return answer;
}

absl::Status ChatServer::Set(absl::string_view name, absl::string_view value) {
  return SetChatSetting(name, value, SettingRanges::kApi, given_, &settings_);
}

std::string ChatServer::Settings() const {
  std::string text;
  for (const GivenSetting& setting : GivenSettings(settings_)) {
    absl::StrAppendFormat(&text, "  %-18s %s\n", setting.name, CompactJson(setting.value));
  }
  if (settings_.sampling.seed.has_value())
    absl::StrAppendFormat(&text, "  %-18s %d\n", "seed", *settings_.sampling.seed);
  return text + "  all else: the server's defaults\n";
}

bool ChatServer::AlwaysAnswersAlike() const { return settings_.sampling[&SamplingParams::temperature] == 0.0f; }

std::string ChatServer::Describe() const { return absl::StrCat("server        ", UrlText(url_), "\n"); }

}  // namespace stagecoach
