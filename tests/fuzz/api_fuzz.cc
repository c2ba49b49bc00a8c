// Bodies of requests to every route that takes one, and what a session may say of the calls that they make, in any
// order.

#include <algorithm>
#include <limits>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/gguf/gguf_file.h"
#include "common/json/json.h"
#include "common/json/json_value.h"
#include "common/step/step.h"
#include "coordinator/serve/api/batch_line.h"
#include "coordinator/serve/api/model_bodies.h"
#include "coordinator/text/utf8.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/testing/shared_data.h"
#include "tests/unit/coordinator/serve/api/toy_service.h"

namespace stagecoach {
namespace {

// The demo model, as it is served.
struct DemoService {
  DemoService() {
    const absl::StatusOr<std::unique_ptr<GgufFile>> file = GgufFile::Open(testing::DemoModelPath());
    FuzzCheck(file.ok(), "the demo model is there");
    tokenizer = *Tokenizer::Create((*file)->metadata());
    chat = std::make_unique<ChatFormat>(ChatTemplateChoice(), (*file)->metadata(), tokenizer.get());
    FuzzCheck(chat->usable(/*with_tools=*/false).ok(), "the demo model has a template");
    model.tokenizer = tokenizer.get();
    model.chat = chat.get();
    model.vocab = tokenizer->vocab_size();
    model.names = {"demo", "other"};
    model.any_name = false;
  }
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<ChatFormat> chat;
  ServedModel model;
};

// What a body is read for, by a byte of choice.
struct Served {
  ServedModel model;
  CallContext context;
};

Served ServedBy(uint8_t choice) {
  static const testing::ToyService kToy;
  static const DemoService kDemo;
  static const std::vector<absl::string_view> kFormats = OutputFormatNames();
  Served served = {kToy.model, kToy.context};
  if ((choice & 1) != 0) {
    served.model = kDemo.model;
    served.context.context_tokens = 200;
  }
  served.context.max_choices = 4;
  served.context.max_requests = 8;
  served.model.output_format = *OutputFormatByName(kFormats[(choice >> 3) % kFormats.size()]);
  served.model.reasoning = {.parse = (choice & 2) == 0, .as_reasoning = (choice & 4) != 0};
  return served;
}

Json ParsedOrDie(absl::string_view text, const std::string& what) {
  Json json = Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  FuzzCheck(!json.is_discarded(), absl::StrCat(what, " is JSON: ", text.substr(0, 1000)));
  return json;
}

void CheckErrorJson(const Json& json) {
  FuzzCheck(json.is_object() && json.size() == 1 && json.contains("error") && json["error"].is_object(),
            "an error is an object");
  const Json& error = json["error"];
  for (const char* field : {"message", "type", "param", "code"}) FuzzCheck(error.contains(field), field);
  FuzzCheck(error["message"].is_string() && !error["message"].get_ref<const std::string&>().empty(),
            "an error says why");
}

void CheckRefusal(const ApiError& error) {
  FuzzCheck(error.status >= 400 && error.status < 500, absl::StrCat("a bad body is the client's: ", error.message));
  CheckErrorJson(ParsedOrDie(ErrorBody(error), "a refusal"));
}

// What was made of a body is what the engine takes.
void CheckRequests(const std::vector<GenerationRequest>& requests, const ApiCall& call, const Served& served) {
  FuzzCheck(!requests.empty() && requests.size() == call.choices(), "a request for each choice");
  FuzzCheck(requests.size() <= 8, "requests have their limit");
  for (const GenerationRequest& request : requests) {
    FuzzCheck(!request.prompt.empty(), "there is a prompt");
    FuzzCheck(CheckTokenIds("prompt", request.prompt, served.model.vocab).ok(), "prompts are of the vocabulary");
    FuzzCheck(CheckTokenIds("stop", request.stop_tokens, served.model.vocab).ok(), "stops are of the vocabulary");
    const absl::Status sampling = CheckSamplingParams(request.sampling, served.model.vocab);
    FuzzCheck(sampling.ok(), sampling.ToString());
    FuzzCheck(request.max_new_tokens >= 0 && request.min_new_tokens <= request.max_new_tokens, "lengths agree");
    FuzzCheck(static_cast<int64_t>(request.prompt.size()) + request.max_new_tokens <= served.context.context_tokens,
              "prompt and answer fit");
    FuzzCheck(request.max_new_tokens > 0 || request.score_from > 0, "something is computed");
  }
}

// What a session says, from bytes.
class Script {
 public:
  Script(absl::string_view bytes, const Served& served)
      : input_(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()), vocab_(served.model.vocab) {}

  bool done() const { return input_.rest().empty(); }
  int Choice(size_t choices) {
    return input_.Byte() % (static_cast<int>(choices) + 1) - (input_.Byte() == 255 ? 1 : 0);
  }

  SessionEvent Event() {
    SessionEvent event;
    const uint8_t kinds = input_.Byte();
    for (int i = 0; i < kinds % 8; ++i) event.tokens.push_back(Token());
    if ((kinds & 8) != 0) {
      TargetLogprobs& row = event.scores.emplace_back();
      row.start = input_.Byte();
      for (int i = input_.Byte() % 8; i > 0; --i) row.logprobs.push_back(Logprob());
      const size_t tops = row.logprobs.size() * (input_.Byte() % 3);
      for (size_t i = 0; i < tops; ++i) row.top.push_back({input_.Byte() == 0 ? kNoToken : Id(), Logprob()});
    }
    if ((kinds & 16) != 0) {
      event.prefill.emplace();
      event.prefill->set_total(input_.Byte());
      event.prefill->set_processed(input_.Byte());
      event.prefill->set_cached(input_.Byte());
    }
    if ((kinds & 32) != 0) event.cost.emplace().set_cached_tokens(input_.Byte());
    if ((kinds & 192) == 192) {
      event.finished.emplace();
      event.finished->set_reason(static_cast<pb::RequestFinished::Reason>(input_.Byte() % 7));
      event.finished->set_code(static_cast<pb::RequestFinished::Code>(input_.Byte() % 9));
      if ((kinds & 1) != 0) event.finished->set_error("no \"room\"\n\xC3\xA9\xFF");
    }
    return event;
  }

 private:
  SampledToken Token() {
    SampledToken sampled;
    sampled.token = Id();
    sampled.logprob = Logprob();
    sampled.top = {{sampled.token, sampled.logprob}, {Id(), Logprob()}};
    return sampled;
  }
  TokenId Id() {
    const int high = vocab_ > 512 ? input_.Byte() : 0;
    // Most of a small vocabulary are bytes: what else there is stands above them.
    const int low = input_.Byte();
    return static_cast<TokenId>((high << 8 | (vocab_ <= 512 && low >= 128 && low < 136 ? low + 128 : low)) % vocab_);
  }
  float Logprob() {
    const uint8_t byte = input_.Byte();
    if (byte == 255) return -std::numeric_limits<float>::infinity();
    if (byte == 254) return std::nanf("");
    return -static_cast<float>(byte) / 16;
  }

  FuzzInput input_;
  int64_t vocab_;
};

// What has come of a call, looked at as it comes.
class Answer {
 public:
  explicit Answer(ApiCall* call) : call_(call), texts_(call->choices()), reasons_(call->choices()) {}

  void Add(const ApiCall::Output& output) {
    FuzzCheck(!ended_ || (output.bytes.empty() && !output.ended && output.cancel.empty()), "nothing follows the end");
    for (const int choice : output.cancel) {
      FuzzCheck(choice >= 0 && static_cast<size_t>(choice) < call_->choices(), "a choice that there is");
      FuzzCheck(cancelled_.insert(choice).second, "a choice is given up once");
    }
    if (output.error.has_value()) {
      failed_ = true;
      FuzzCheck(output.ended, "a failure is the end");
      FuzzCheck(output.error->status >= 400 && output.error->status < 600, "a failure has a status");
    }
    if (call_->streams()) {
      AddEvents(output.bytes);
    } else {
      FuzzCheck(output.bytes.empty() || output.ended, "a body comes at the end");
      if (output.ended) AddBody(output.bytes);
    }
    ended_ = ended_ || output.ended;
    FuzzCheck(!call_->streams() || ended_ == (done_ || failed_), "a stream says that it ended");
  }

  bool ended() const { return ended_; }
  bool failed() const { return failed_; }
  const std::vector<std::string>& texts() const { return texts_; }
  const std::vector<std::string>& reasons() const { return reasons_; }
  const Json& usage() const { return usage_; }

 private:
  void AddEvents(absl::string_view bytes) {
    while (!bytes.empty()) {
      FuzzCheck(!done_, "nothing follows [DONE]");
      const size_t end = bytes.find("\n\n");
      FuzzCheck(end != bytes.npos, "events are whole");
      absl::string_view event = bytes.substr(0, end);
      bytes.remove_prefix(end + 2);
      FuzzCheck(absl::ConsumePrefix(&event, "data: ") && event.find('\n') == event.npos, "an event is one line");
      if (event == "[DONE]") {
        FuzzCheck(!failed_, "a failure has no [DONE]");
        done_ = true;
        continue;
      }
      const Json json = ParsedOrDie(event, "an event");
      if (json.contains("error")) {
        FuzzCheck(failed_ && bytes.empty(), "an error is the last event");
        CheckErrorJson(json);
        continue;
      }
      for (const Json& choice : json["choices"]) AddChoice(choice, choice.contains("delta") ? choice["delta"] : choice);
      if (json.contains("usage") && json["usage"].is_object()) usage_ = json["usage"];
    }
  }

  void AddBody(absl::string_view bytes) {
    const Json json = ParsedOrDie(bytes, "an answer");
    if (failed_) return CheckErrorJson(json);
    FuzzCheck(json["choices"].size() == texts_.size(), "all choices are answered");
    for (const Json& choice : json["choices"]) {
      AddChoice(choice, choice.contains("message") ? choice["message"] : choice);
    }
    usage_ = json["usage"];
    for (const std::string& reason : reasons_) FuzzCheck(!reason.empty(), "a choice has its reason");
  }

  void AddChoice(const Json& choice, const Json& said) {
    const size_t index = choice["index"].get<size_t>();
    FuzzCheck(index < texts_.size() && reasons_[index].empty(), "nothing follows a choice's end");
    FuzzCheck(said.contains("text") || said["content"].is_string(), "there is a text");
    for (const char* field : {"text", "content"}) {
      if (said.contains(field)) texts_[index] += said[field].get<std::string>();
    }
    if (said.contains("reasoning_content")) texts_[index] += "\x01" + said["reasoning_content"].get<std::string>();
    if (choice["finish_reason"].is_null()) return;
    reasons_[index] = choice["finish_reason"].get<std::string>();
    FuzzCheck(reasons_[index] == "stop" || reasons_[index] == "length", "a reason that clients know");
  }

  ApiCall* call_;
  bool ended_ = false, failed_ = false, done_ = false;
  std::set<int> cancelled_;
  std::vector<std::string> texts_, reasons_;
  Json usage_;
};

Answer Play(ApiCall* call, absl::string_view bytes, const Served& served) {
  CheckRequests(call->TakeRequests(), *call, served);
  Answer answer(call);
  answer.Add(call->Begin());
  Script script(bytes, served);
  while (!script.done()) {
    const int choice = script.Choice(call->choices());
    const SessionEvent event = script.Event();
    // What comes after an end is what a session had sent before it knew.
    answer.Add(choice == static_cast<int>(call->choices()) && event.prefill.has_value()
                   ? call->Fail(MakeApiError(ApiErrorCode::kDraining, "the server ends"))
                   : call->Take(choice, event));
  }
  for (size_t i = 0; i < call->choices(); ++i) {
    answer.Add(call->Take(static_cast<int>(i), testing::Finished(pb::RequestFinished::REASON_CANCELLED)));
  }
  FuzzCheck(answer.ended(), "a call ends with its last choice");
  IgnoredHeader(call->ignored());
  return answer;
}

// Reasoning and content in one order of their own each: a body has all of one before the other.
std::string Sorted(const std::string& text) {
  std::string sorted = text;
  sorted.erase(std::remove(sorted.begin(), sorted.end(), '\x01'), sorted.end());
  std::sort(sorted.begin(), sorted.end());
  return sorted;
}

void CheckCall(const ApiDialect& api, absl::string_view body, absl::string_view script, const Served& served) {
  const PreparedCall prepared = PrepareCall(api, body, served.model, served.context);
  FuzzCheck((prepared.call != nullptr) != prepared.error.has_value(), "a call or an error");
  if (prepared.error.has_value()) return CheckRefusal(*prepared.error);
  const Answer answer = Play(prepared.call.get(), script, served);
  // The other way of sending the same.
  Json other = *ParseJson(body);
  other["stream"] = !prepared.call->streams();
  other.erase("stream_options");
  if (!prepared.call->streams()) other["stream_options"] = {{"include_usage", true}};
  const PreparedCall again = PrepareParsedCall(api, other, served.model, served.context);
  FuzzCheck(again.call != nullptr, absl::StrCat("a stream asks for the same: ", body));
  const Answer other_answer = Play(again.call.get(), script, served);
  FuzzCheck(answer.failed() == other_answer.failed(), "a stream fails where a body does");
  if (answer.failed()) return;
  FuzzCheck(answer.reasons() == other_answer.reasons(), "a stream ends for the same reasons");
  for (size_t i = 0; i < answer.texts().size(); ++i) {
    FuzzCheck(Sorted(answer.texts()[i]) == Sorted(other_answer.texts()[i]),
              absl::StrCat("a stream says the same: ", answer.texts()[i], " / ", other_answer.texts()[i]));
  }
  if (answer.usage().is_object()) FuzzCheck(answer.usage() == other_answer.usage(), "a stream costs the same");
}

void CheckBody(const BodyAnswer& answer) {
  const Json json = ParsedOrDie(answer.body, "a body");
  if (!answer.error.has_value()) return;
  CheckRefusal(*answer.error);
  CheckErrorJson(json);
}

void CheckBatchLine(absl::string_view text, absl::string_view script, const Served& served) {
  BatchLine line = ParseBatchLine(1, text);
  if (!line.error.has_value()) PrepareBatchLine(served.model, served.context, &line);
  FuzzCheck((line.call != nullptr) != line.error.has_value(), "a call or an error");
  if (line.error.has_value()) {
    FuzzCheck(!line.error->message.empty(), "a line's error says why");
    ParsedOrDie(CompactJson(BatchErrorJson("1", line)), "a line's error");
    return;
  }
  FuzzCheck(line.call->choices() == 1 && !line.call->streams(), "a line has one answer");
  ApiCall& call = *line.call;
  CheckRequests(call.TakeRequests(), call, served);
  Answer answer(&call);
  answer.Add(call.Begin());
  Script events(script, served);
  while (!answer.ended()) {
    const bool last = events.done();
    const SessionEvent event = last ? testing::Finished(pb::RequestFinished::REASON_LENGTH) : events.Event();
    const ApiCall::Output output = call.Take(0, event);
    answer.Add(output);
    if (output.ended && !output.error.has_value()) {
      ParsedOrDie(CompactJson(BatchAnswerJson("1", line, output.bytes)), "a line's answer");
    }
  }
}

}  // namespace

void Fuzz(FuzzInput input) {
  const uint8_t route = input.Byte();
  const Served served = ServedBy(input.Byte());
  const absl::string_view body = input.Text();
  const absl::string_view script = input.rest();
  switch (route % 8) {
    case 0:
    case 1: return CheckCall(kChatApi, body, script, served);
    case 2:
    case 3: return CheckCall(kCompletionsApi, body, script, served);
    case 4: return CheckBody(TokenizeBody(body, served.model, served.context));
    case 5: return CheckBody(DetokenizeBody(body, served.model));
    case 6: return CheckBody(ApplyTemplateBody(body, served.model, served.context));
    default: return CheckBatchLine(body, script, served);
  }
}

}  // namespace stagecoach
