// Bodies of requests to every route that takes one, and what a session may say of the calls that they make, in any
// order.

#include <algorithm>
#include <limits>
#include <set>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/gguf/gguf_file.h"
#include "common/grammar/program.h"
#include "common/json/json.h"
#include "common/json/json_value.h"
#include "common/step/step.h"
#include "coordinator/serve/api/batch_line.h"
#include "coordinator/serve/api/dialects/messages.h"
#include "coordinator/serve/api/dialects/responses.h"
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
    grammars = std::make_unique<AnswerGrammars>(tokenizer.get());
    model.grammars = grammars.get();
    model.names = {"demo", "other"};
    model.any_name = false;
  }
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<ChatFormat> chat;
  std::unique_ptr<AnswerGrammars> grammars;
  ServedModel model;
};

// What a body is read for, by a byte of choice.
struct Served {
  ServedModel model;
  CallContext context;
};

Served ServedBy(uint8_t choice) {
  static const testing::ToyService kToy;
  static const ChatFormat kToyTools({.given = ChatTemplateSource{"tools", testing::kToolTemplate}, .built_in = ""},
                                    GgufMetadata(), kToy.tokenizer.get());
  static const DemoService kDemo;
  static const std::vector<absl::string_view> kFormats = OutputFormatNames();
  Served served = {kToy.model, kToy.context};
  served.model.chat = &kToyTools;
  served.context.context_tokens = 2000;
  if ((choice & 1) != 0) {
    served.model = kDemo.model;
    served.context.context_tokens = 200;
  }
  served.context.max_choices = 4;
  served.context.max_requests = 8;
  served.model.output_format = *OutputFormatByName(kFormats[(choice >> 3) % kFormats.size()]);
  served.model.tool_format = served.model.output_format;
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

// The same in the form of Messages.
void CheckMessagesError(const Json& json) {
  FuzzCheck(json["type"] == "error" && json["request_id"].is_string(), "an error is an object");
  for (const char* field : {"message", "type"}) FuzzCheck(json["error"][field].is_string(), field);
}

void CheckRefusal(const ApiError& error) {
  FuzzCheck(error.status >= 400 && error.status < 500, absl::StrCat("a bad body is the client's: ", error.message));
  CheckErrorJson(ParsedOrDie(ErrorBody(error), "a refusal"));
  CheckMessagesError(ParsedOrDie(kMessagesApi.error_body(error, "r1"), "a refusal"));
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
    if (request.grammar == nullptr) continue;
    FuzzCheck(GrammarProgram::Decode(*request.grammar).ok(), "a grammar is one");
    for (const TokenId end : served.model.tokenizer->end_of_generation()) {
      FuzzCheck(absl::c_linear_search(request.stop_tokens, end), "an answer of a form ends");
    }
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
  Answer(const ApiDialect& api, ApiCall* call)
      : messages_(&api == &kMessagesApi), call_(call), texts_(call->choices()), reasons_(call->choices()) {}

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
      if (messages_) {
        AddNamedEvent(event);
        continue;
      }
      if (absl::ConsumePrefix(&event, "event: ")) {
        AddNamed(event, /*last=*/bytes.empty());
        continue;
      }
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

  // Of Responses: what the name and the data of an event say.
  void AddNamed(absl::string_view event, bool last) {
    const size_t line = event.find('\n');
    FuzzCheck(line != event.npos && absl::StartsWith(event.substr(line), "\ndata: "), "an event has a name and data");
    const std::string type(event.substr(0, line));
    const Json json = ParsedOrDie(event.substr(line + 7), "an event");
    FuzzCheck(json["type"] == type && json["sequence_number"] == named_++, "events have their name and number");
    if (!json.contains("response")) return AddToItem(type, json);
    const std::string status = json["response"]["status"].get<std::string>();
    if (status == "in_progress") return;
    FuzzCheck(last && type == "response." + status && failed_ == (status == "failed"), "the end says how it came");
    done_ = !failed_;
    FuzzCheck(failed_ || items_ == json["response"]["output"].size(), "all items were told of");
    if (!failed_) AddResponse(json["response"]);
  }

  void AddToItem(const std::string& type, const Json& json) {
    const size_t index = json["output_index"].get<size_t>();
    if (type == "response.output_item.added") {
      FuzzCheck(index == items_++ && open_.empty(), "one item after the other");
      open_ = json["item"]["id"].get<std::string>();
      text_.clear();
      return;
    }
    FuzzCheck(index + 1 == items_, "an event is about the open item");
    if (absl::EndsWith(type, ".delta")) text_ += json["delta"].get<std::string>();
    if (type != "response.output_item.done") return FuzzCheck(json["item_id"] == open_, "and names it");
    FuzzCheck(json["item"]["id"] == open_ && TextOfItem(json["item"]) == text_, "an item is what was told of it");
    open_.clear();
  }

  static std::string TextOfItem(const Json& item) {
    for (const char* member : {"arguments", "input"}) {
      if (item.contains(member)) return item[member].get<std::string>();
    }
    return item["content"].at(0)["text"].get<std::string>();
  }

  void AddResponse(const Json& response) {
    for (const Json& item : response["output"]) {
      texts_[0] += item["type"].get<std::string>() + item.value("name", "") + TextOfItem(item);
    }
    reasons_[0] = response["status"].get<std::string>();
    usage_ = response["usage"];
  }

  void AddBody(absl::string_view bytes) {
    const Json json = ParsedOrDie(bytes, "an answer");
    if (messages_) return AddMessage(json);
    if (failed_) return CheckErrorJson(json);
    if (json.contains("output")) return AddResponse(json);
    FuzzCheck(json["choices"].size() == texts_.size(), "all choices are answered");
    for (const Json& choice : json["choices"]) {
      AddChoice(choice, choice.contains("message") ? choice["message"] : choice);
    }
    usage_ = json["usage"];
    for (const std::string& reason : reasons_) FuzzCheck(!reason.empty(), "a choice has its reason");
  }

  // Of Messages: blocks, one after the other, and then why there are no more.
  void AddNamedEvent(absl::string_view event) {
    const std::pair<absl::string_view, absl::string_view> lines = absl::StrSplit(event, absl::MaxSplits('\n', 1));
    absl::string_view name = lines.first, data = lines.second;
    FuzzCheck(
        absl::ConsumePrefix(&name, "event: ") && absl::ConsumePrefix(&data, "data: ") && data.find('\n') == data.npos,
        "an event is its name and one line");
    const Json json = ParsedOrDie(data, "an event");
    FuzzCheck(json["type"] == std::string(name), "an event's name is its type");
    const bool starts = name == "content_block_start", stops = name == "content_block_stop";
    if (starts || stops || name == "content_block_delta") {
      FuzzCheck(json["index"] == blocks_ && block_open_ != starts, "one block is open at a time");
      block_open_ = !stops;
      if (stops) ++blocks_;
      if (!stops) AddBlock(json[starts ? "content_block" : "delta"]);
    } else if (name == "message_delta") {
      FuzzCheck(!block_open_, "blocks end before the message");
      AddStop(json["delta"], json["usage"]);
    } else if (name == "error") {
      FuzzCheck(failed_, "an error is the last event");
      CheckMessagesError(json);
    } else {
      done_ = name == "message_stop";
      FuzzCheck(done_ || name == "message_start", "an event that clients know");
    }
  }

  void AddMessage(const Json& message) {
    if (failed_) return CheckMessagesError(message);
    for (const Json& block : message["content"]) AddBlock(block);
    AddStop(message, message["usage"]);
  }

  // A block, or a part of one; not the arguments of a call, which a body has as an object.
  void AddBlock(const Json& block) {
    for (const char* member : {"text", "thinking", "id", "name"}) {
      if (block.contains(member)) texts_[0] += block[member].get<std::string>();
    }
  }

  void AddStop(const Json& stop, const Json& usage) {
    reasons_[0] = stop["stop_reason"].get<std::string>();
    FuzzCheck((reasons_[0] == "stop_sequence") == stop["stop_sequence"].is_string(), "what stopped it is told");
    usage_ = usage;
  }

  void AddChoice(const Json& choice, const Json& said) {
    const size_t index = choice["index"].get<size_t>();
    FuzzCheck(index < texts_.size() && reasons_[index].empty(), "nothing follows a choice's end");
    const bool calls = said.contains("tool_calls"), whole = choice.contains("message");
    FuzzCheck(said.contains("text") || said["content"].is_string() || (calls && whole), "there is a text");
    for (const char* field : {"text", "content"}) {
      if (said.contains(field) && said[field].is_string()) texts_[index] += said[field].get<std::string>();
    }
    if (calls) AddCalls(said["tool_calls"], whole, &texts_[index]);
    if (said.contains("reasoning_content")) texts_[index] += "\x01" + said["reasoning_content"].get<std::string>();
    if (choice["finish_reason"].is_null()) return;
    reasons_[index] = choice["finish_reason"].get<std::string>();
    const std::set<std::string> known = {"stop", "length", "tool_calls"};
    FuzzCheck(known.contains(reasons_[index]), "a reason that clients know");
  }

  // Whole calls, or a part of one: only its first has an id, a type and a name.
  static void AddCalls(const Json& calls, bool whole, std::string* text) {
    FuzzCheck(calls.is_array() && !calls.empty() && (whole || calls.size() == 1), "calls are a list");
    for (const Json& call : calls) {
      FuzzCheck(whole != call.contains("index"), "parts have a place");
      const char* kind = call.contains("custom") ? "custom" : "function";
      const Json& called = call[kind];
      const bool first = call.contains("id");
      FuzzCheck(first == called.contains("name") && (first || !whole), "a call has a name and an id");
      if (first) *text += call["id"].get<std::string>() + call["type"].get<std::string>();
      for (const auto& [name, value] : called.items()) *text += value.get<std::string>();
    }
  }

  const bool messages_;  // its form is that of Messages
  ApiCall* call_;
  bool ended_ = false, failed_ = false, done_ = false;
  std::set<int> cancelled_;
  std::vector<std::string> texts_, reasons_;
  Json usage_;
  // Of Messages.
  bool block_open_ = false;
  size_t blocks_ = 0;  // that have ended
  // Of Responses.
  int64_t named_ = 0;
  size_t items_ = 0;
  std::string open_, text_;  // the open item's id, and what was told of it
};

Answer Play(const ApiDialect& api, ApiCall* call, absl::string_view bytes, const Served& served) {
  CheckRequests(call->TakeRequests(), *call, served);
  Answer answer(api, call);
  answer.Add(call->Begin());
  Script script(bytes, served);
  while (!script.done()) {
    const int choice = script.Choice(call->choices());
    const SessionEvent event = script.Event();
    if (choice < 0) answer.Add(call->Idle());
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
  const Answer answer = Play(api, prepared.call.get(), script, served);
  // The other way of sending the same.
  Json other = *ParseJson(body);
  other["stream"] = !prepared.call->streams();
  other.erase("stream_options");
  if (!prepared.call->streams()) other["stream_options"] = {{"include_usage", true}};
  const PreparedCall again = PrepareParsedCall(api, other, served.model, served.context);
  FuzzCheck(again.call != nullptr, absl::StrCat("a stream asks for the same: ", body));
  const Answer other_answer = Play(api, again.call.get(), script, served);
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
  if (answer.error.has_value()) return CheckRefusal(*answer.error);
  ParsedOrDie(answer.body, "a body");
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
  Answer answer(*line.api, &call);
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
  switch (route % 12) {
    case 0:
    case 1: return CheckCall(kChatApi, body, script, served);
    case 2:
    case 3: return CheckCall(kCompletionsApi, body, script, served);
    case 4: return CheckBody(TokenizeBody(body, served.model, served.context));
    case 5: return CheckBody(DetokenizeBody(body, served.model));
    case 6: return CheckBody(ApplyTemplateBody(body, served.model, served.context));
    case 7: return CheckBody(CountInputTokensBody(body, served.model, served.context));
    case 8: return CheckCall(kResponsesApi, body, script, served);
    case 10: return CheckCall(kMessagesApi, body, script, served);
    case 11: return CheckBody(CountTokensBody(body, served.model, served.context));
    default: return CheckBatchLine(body, script, served);
  }
}

}  // namespace stagecoach
