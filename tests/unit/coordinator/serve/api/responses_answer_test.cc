#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "coordinator/serve/api/batch_line.h"
#include "coordinator/serve/api/dialects/responses.h"
#include "tests/testing/matchers.h"
#include "tests/unit/coordinator/serve/api/toy_service.h"

namespace stagecoach::testing {
namespace {

using End = pb::RequestFinished;

// A model that thinks and calls in the form of hermes_json.
struct ResponsesAnswer : ToyServiceTest {
  ResponsesAnswer()
      : format({.given = ChatTemplateSource{"tools", kToolTemplate}, .built_in = ""}, GgufMetadata(),
               service.tokenizer.get()) {
    service.model.chat = &format;
    service.model.output_format = service.model.tool_format = OutputFormat::kHermesJson;
    service.context.context_tokens = 8192;
  }

  PreparedCall Respond(const std::string& more) const {
    PreparedCall prepared = service.Prepare(
        kResponsesApi,
        absl::StrCat(R"({"input":"Hi",)", R"("tools":[{"type":"function","name":"look"},)",
                     R"({"type":"custom","name":"patch"},{"type":"namespace","name":"team",)",
                     R"("tools":[{"type":"function","name":"send"}]}])", more.empty() ? "" : ",", more, "}"));
    EXPECT_FALSE(prepared.error.has_value()) << prepared.error->message;
    return prepared;
  }
  // The answer to a request for a stream.
  std::vector<Json> Told(const std::vector<TokenId>& tokens, End::Reason reason, const std::string& more = "",
                         bool at_once = false) const;
  ApiError Refused(const std::string& body) const {
    return service.Prepare(kResponsesApi, body).error.value_or(ApiError());
  }

  ChatFormat format;
};

// The data of a stream's events, each of which has its name and number.
std::vector<Json> NamedEvents(const std::string& bytes, int64_t first = 0) {
  std::vector<Json> events;
  EXPECT_TRUE(bytes.empty() || absl::EndsWith(bytes, "\n\n"));
  for (absl::string_view event : absl::StrSplit(bytes, "\n\n", absl::SkipEmpty())) {
    EXPECT_TRUE(absl::ConsumePrefix(&event, "event: ")) << event;
    const std::pair<absl::string_view, absl::string_view> lines = absl::StrSplit(event, absl::MaxSplits('\n', 1));
    absl::string_view data = lines.second;
    EXPECT_TRUE(absl::ConsumePrefix(&data, "data: ")) << event;
    const Json& json = events.emplace_back(Json::parse(data.begin(), data.end()));
    EXPECT_EQ(json["type"].get<std::string>(), std::string(lines.first));
    EXPECT_EQ(json["sequence_number"], first + static_cast<int64_t>(events.size()) - 1);
  }
  return events;
}

std::vector<Json> ResponsesAnswer::Told(const std::vector<TokenId>& tokens, End::Reason reason, const std::string& more,
                                        bool at_once) const {
  const PreparedCall prepared = Respond(absl::StrCat(R"("stream":true)", more));
  return NamedEvents(Answer(prepared.call.get(), tokens, reason, at_once));
}

// What a client that puts the events together has in the end; it wants all that an item consists of announced.
class Accumulator {
 public:
  void Take(const Json& event) {
    const std::string type = event["type"];
    const auto ends = [&type](absl::string_view with) { return absl::EndsWith(type, with); };
    if (type == "response.output_item.added") {
      EXPECT_EQ(event["output_index"], items_.size());
      EXPECT_TRUE(ids_.insert(event["item"]["id"].get<std::string>()).second);
      EXPECT_EQ(event["item"]["status"], "in_progress");
      items_.push_back(event["item"]);
    } else if (type == "response.content_part.added") {
      Json& item = Item(event);
      EXPECT_EQ(event["content_index"], item["content"].size());
      item["content"].push_back(event["part"]);
    } else if (ends(".delta")) {
      Json& text = Text(event);
      text = text.get<std::string>() + event["delta"].get<std::string>();
      if (event.contains("logprobs")) {
        Json& logprobs = Item(event)["content"][0]["logprobs"];
        logprobs.insert(logprobs.end(), event["logprobs"].begin(), event["logprobs"].end());
      }
    } else if (type == "response.content_part.done") {
      EXPECT_EQ(event["part"], Item(event)["content"][0]);
    } else if (type == "response.output_item.done") {
      Json& item = items_[event["output_index"].get<size_t>()];
      item["status"] = event["item"]["status"];
      EXPECT_EQ(event["item"], item);
    } else if (ends("text.done") || ends("arguments.done") || ends("input.done")) {
      const char* member = ends("text.done") ? "text" : ends("input.done") ? "input" : "arguments";
      EXPECT_EQ(event[member], Text(event)) << event;
    }
  }
  const Json& items() const { return items_; }

 private:
  Json& Item(const Json& event) {
    Json& item = items_[event["output_index"].get<size_t>()];
    EXPECT_EQ(event["item_id"], item["id"]);
    return item;
  }
  Json& Text(const Json& event) {
    Json& item = Item(event);
    if (!event.contains("content_index")) return item[item.contains("input") ? "input" : "arguments"];
    return item["content"].at(event["content_index"].get<size_t>())["text"];
  }

  Json items_ = Json::array();
  std::set<std::string> ids_;
};

Json Accumulated(const std::vector<Json>& events) {
  Accumulator accumulator;
  for (const Json& event : events) accumulator.Take(event);
  return accumulator.items();
}

std::vector<std::string> TypesOf(const std::vector<Json>& events) {
  std::vector<std::string> types;
  for (const Json& event : events) {
    std::string type = event["type"];
    types.push_back(std::string(absl::StripPrefix(type, "response.")));
  }
  return types;
}

std::vector<TokenId> WithEnd(const std::string& text) {
  std::vector<TokenId> tokens = Bytes(text);
  tokens.push_back(kImEnd);
  return tokens;
}

constexpr char kLookHere[] = "<tool_call>\n{\"name\": \"look\", \"arguments\": {\"at\": \"here\"}}\n</tool_call>";
constexpr char kPatchIt[] =
    "<tool_call>\n{\"name\": \"patch\", \"arguments\": {\"input\": \"a\\n\\\"b\"}}\n</tool_call>";
constexpr char kSendIt[] = "<tool_call>\n{\"name\": \"team__send\", \"arguments\": {}}\n</tool_call>";

constexpr char kAtBegin[] =
    R"({"id":"resp_id7","object":"response","created_at":1700000000,"completed_at":null,"status":"in_progress",)"
    R"("error":null,"incomplete_details":null,"instructions":null,"max_output_tokens":null,"metadata":{},)"
    R"("model":"toy","output":[],"parallel_tool_calls":true,"previous_response_id":null,)"
    R"("reasoning":{"effort":null,"summary":null},"store":false,"temperature":0.0,)"
    R"("text":{"format":{"type":"text"}},"tool_choice":"auto","tools":[],"top_p":1.0,"truncation":"disabled",)"
    R"("usage":null})";

TEST_F(ResponsesAnswer, IsAStreamOfEventsInTheOrderThatClientsKnow) {
  const PreparedCall prepared = service.Prepare(kResponsesApi, R"({"input":"Hi","stream":true})");
  ASSERT_FALSE(prepared.error.has_value()) << prepared.error->message;
  ASSERT_TRUE(prepared.call->streams());
  const std::string bytes = Answer(prepared.call.get(), {'N', 'o', kImEnd}, End::REASON_STOP);
  const std::vector<Json> events = NamedEvents(bytes);
  ASSERT_EQ(events.size(), 10u);
  const std::string id = events[2]["item"]["id"];
  EXPECT_EQ(id.size(), 28u);
  const std::string at = absl::StrCat(R"("item_id":")", id, R"(","output_index":0,"content_index":0,)");
  const std::string item = absl::StrCat(R"({"id":")", id, R"(","type":"message","role":"assistant",)");
  const std::string part = R"({"type":"output_text","text":"No","annotations":[],"logprobs":[]})";
  const std::string whole = absl::StrCat(item, R"("content":[)", part, R"(],"status":"completed"})");
  std::string end = kAtBegin;
  end.replace(end.find("null"), 4, "1700000000");
  end.replace(end.find("in_progress"), 11, "completed");
  end.replace(end.find("[]"), 2, absl::StrCat("[", whole, "]"));
  end.replace(end.rfind("null"), 4,
              R"({"input_tokens":21,"input_tokens_details":{"cached_tokens":0,"cache_write_tokens":0},)"
              R"("output_tokens":3,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":24})");
  const auto event = [](const std::string& type, int number, const std::string& members) {
    return absl::StrCat("event: response.", type, "\ndata: {\"type\":\"response.", type,
                        "\",\"sequence_number\":", number, ",", members, "}\n\n");
  };
  EXPECT_EQ(bytes, absl::StrCat(event("created", 0, absl::StrCat("\"response\":", kAtBegin)),
                                event("in_progress", 1, absl::StrCat("\"response\":", kAtBegin)),
                                event("output_item.added", 2,
                                      absl::StrCat("\"output_index\":0,\"item\":", item,
                                                   "\"content\":[],\"status\":\"in_progress\"}")),
                                event("content_part.added", 3,
                                      at + R"("part":{"type":"output_text","text":"","annotations":[],"logprobs":[]})"),
                                event("output_text.delta", 4, at + R"("delta":"N","logprobs":[])"),
                                event("output_text.delta", 5, at + R"("delta":"o","logprobs":[])")) +
                       absl::StrCat(event("output_text.done", 6, at + R"("text":"No","logprobs":[])"),
                                    event("content_part.done", 7, absl::StrCat(at, "\"part\":", part)),
                                    event("output_item.done", 8, absl::StrCat("\"output_index\":0,\"item\":", whole)),
                                    event("completed", 9, absl::StrCat("\"response\":", end))));
  const PreparedCall body = service.Prepare(kResponsesApi, R"({"input":"Hi"})");
  EXPECT_EQ(Answer(body.call.get(), {'N', 'o', kImEnd}, End::REASON_STOP), end) << "the same as a body";
}

TEST_F(ResponsesAnswer, KeepsReasoningApartFromTheMessage) {
  const std::vector<Json> events = Told(WithEnd("<think>Hm.</think>Yes"), End::REASON_STOP, "", /*at_once=*/true);
  EXPECT_THAT(TypesOf(events),
              ElementsAre("created", "in_progress", "output_item.added", "content_part.added", "reasoning_text.delta",
                          "reasoning_text.done", "content_part.done", "output_item.done", "output_item.added",
                          "content_part.added", "output_text.delta", "output_text.done", "content_part.done",
                          "output_item.done", "completed"));
  const Json items = Accumulated(events);
  ASSERT_EQ(items.size(), 2u);
  EXPECT_TRUE(absl::StartsWith(items[0]["id"].get<std::string>(), "rs_"));
  EXPECT_EQ(items[0]["type"], "reasoning");
  EXPECT_EQ(items[0]["summary"], Json::array());
  EXPECT_EQ(CompactJson(items[0]["content"]), R"([{"type":"reasoning_text","text":"Hm."}])");
  EXPECT_EQ(items[1]["content"][0]["text"], "Yes");
  EXPECT_EQ(events.back()["response"]["output"], items);
  EXPECT_GT(events.back()["response"]["usage"]["output_tokens_details"]["reasoning_tokens"], 0);
}

TEST_F(ResponsesAnswer, TellsOfCallsOneByOne) {
  const std::string text = absl::StrCat("One moment.\n", kLookHere, "\n", kSendIt);
  const std::vector<Json> events = Told(WithEnd(text), End::REASON_STOP, "", /*at_once=*/true);
  EXPECT_THAT(TypesOf(events),
              ElementsAre("created", "in_progress", "output_item.added", "content_part.added", "output_text.delta",
                          "output_text.done", "content_part.done", "output_item.done", "output_item.added",
                          "function_call_arguments.delta", "function_call_arguments.done", "output_item.done",
                          "output_item.added", "function_call_arguments.delta", "function_call_arguments.done",
                          "output_item.done", "completed"));
  EXPECT_EQ(events[10]["name"], "look");
  EXPECT_FALSE(events[10].contains("content_index"));
  const Json items = Accumulated(events);
  ASSERT_EQ(items.size(), 3u);
  EXPECT_EQ(items[1]["type"], "function_call");
  EXPECT_EQ(items[1]["name"], "look");
  EXPECT_EQ(Json::parse(items[1]["arguments"].get<std::string>()), (Json{{"at", "here"}}));
  EXPECT_FALSE(items[1].contains("namespace"));
  EXPECT_TRUE(absl::StartsWith(items[1]["id"].get<std::string>(), "fc_"));
  EXPECT_TRUE(absl::StartsWith(items[1]["call_id"].get<std::string>(), "call_"));
  EXPECT_EQ(items[2]["name"], "send");
  EXPECT_EQ(items[2]["namespace"], "team");
  EXPECT_NE(items[1]["call_id"], items[2]["call_id"]);
  EXPECT_EQ(events.back()["response"]["output"], items);
  EXPECT_EQ(events.back()["response"]["status"], "completed");
}

TEST_F(ResponsesAnswer, GivesACustomToolItsInputAsText) {
  const std::vector<Json> events = Told(WithEnd(kPatchIt), End::REASON_STOP, "", /*at_once=*/true);
  EXPECT_THAT(TypesOf(events),
              ElementsAre("created", "in_progress", "output_item.added", "custom_tool_call_input.delta",
                          "custom_tool_call_input.done", "output_item.done", "completed"));
  const Json items = Accumulated(events);
  EXPECT_EQ(items[0]["type"], "custom_tool_call");
  EXPECT_TRUE(absl::StartsWith(items[0]["id"].get<std::string>(), "ctc_"));
  EXPECT_EQ(items[0]["input"], "a\n\"b");
  EXPECT_FALSE(items[0].contains("arguments"));
}

// One answer, by what ends it where.
struct ResponsesScript {
  const char* name;
  std::vector<TokenId> tokens;
  End::Reason end;
  const char* status;
};

std::vector<ResponsesScript> ResponsesScripts() {
  const std::string all = absl::StrCat("<think>Hm.</think>One.\n", kLookHere, "\n", kPatchIt, "\n", kSendIt, "\nTwo.");
  const std::string many(400, 'x');
  const std::string long_call = absl::StrCat("So.\n<tool_call>\n{\"name\": \"look\", \"arguments\": {\"at\": \"", many);
  const std::string long_input =
      absl::StrCat("<tool_call>\n{\"name\": \"patch\", \"arguments\": {\"input\": \"", many, "\\n\\");
  return {
      {"text", WithEnd("Hello"), End::REASON_STOP, "completed"},
      {"nothing", WithEnd(""), End::REASON_STOP, "completed"},
      {"everything", WithEnd(all), End::REASON_STOP, "completed"},
      {"everything, cut", Bytes(all), End::REASON_LENGTH, "incomplete"},
      {"reasoning, cut", Bytes("<think>Hm"), End::REASON_LENGTH, "incomplete"},
      {"a call, cut", Bytes(absl::StrCat("So: ", std::string(kLookHere).substr(0, 60))), End::REASON_LENGTH,
       "incomplete"},
      {"a long call", WithEnd(long_call + R"(\n\u00e9"}})" + "\n</tool_call>"), End::REASON_STOP, "completed"},
      {"a long call, cut", Bytes(long_call), End::REASON_LENGTH, "incomplete"},
      {"a long input, cut", Bytes(long_input), End::REASON_LENGTH, "incomplete"},
      {"a call that is none", WithEnd("<tool_call>\nno\n</tool_call>"), End::REASON_STOP, "completed"},
      {"half a character", Bytes("a\xE2\x82"), End::REASON_LENGTH, "incomplete"},
  };
}

TEST_F(ResponsesAnswer, IsTheSameAsAStreamAndWholeAndHoweverEventsAreCut) {
  const std::string listed = R"("include":["message.output_text.logprobs"],"top_logprobs":2)";
  for (const ResponsesScript& script : ResponsesScripts()) {
    const PreparedCall prepared = Respond(listed);
    const Json whole = Whole(prepared, script.tokens, script.end);
    EXPECT_EQ(whole["status"], script.status) << script.name;
    for (const bool merged : {false, true}) {
      const std::vector<Json> events = Told(script.tokens, script.end, absl::StrCat(",", listed), merged);
      EXPECT_EQ(events.back()["type"], absl::StrCat("response.", script.status));
      EXPECT_EQ(events.back()["response"], whole) << script.name;
      EXPECT_EQ(Accumulated(events), whole["output"]) << script.name;
    }
  }
}

TEST_F(ResponsesAnswer, ThatIsCutIsIncomplete) {
  const PreparedCall prepared = Respond("");
  const Json whole = Whole(prepared, Bytes("<think>Hm.</think>Yes, b"), End::REASON_LENGTH);
  EXPECT_EQ(whole["status"], "incomplete");
  EXPECT_EQ(whole["incomplete_details"], (Json{{"reason", "max_output_tokens"}}));
  EXPECT_EQ(whole["completed_at"], nullptr);
  EXPECT_EQ(whole["output"][0]["status"], "completed");
  EXPECT_EQ(whole["output"][1]["status"], "incomplete");
}

TEST_F(ResponsesAnswer, TellsOfALongCallWhileItIsWrittenAndThatItWasCut) {
  for (const ResponsesScript& script : ResponsesScripts()) {
    if (script.name != std::string("a long call, cut") && script.name != std::string("a long input, cut")) continue;
    const PreparedCall prepared = Respond(R"("stream":true)");
    std::string bytes = prepared.call->Begin().bytes;
    bytes += prepared.call->Take(0, Tokens(script.tokens)).bytes;
    EXPECT_TRUE(absl::EndsWith(NamedEvents(bytes).back()["type"].get<std::string>(), ".delta")) << script.name;
    bytes += prepared.call->Take(0, Finished(script.end)).bytes;
    const Json item = Accumulated(NamedEvents(bytes)).back();
    if (item["type"] == "function_call") {
      EXPECT_EQ(item["arguments"], "{\"at\": \"" + std::string(400, 'x'));
      EXPECT_EQ(item["status"], "incomplete");
    } else {
      EXPECT_EQ(item["input"], std::string(400, 'x') + "\n\\");
    }
  }
}

TEST_F(ResponsesAnswer, EndsAfterTheFirstCallWhereOneIsWanted) {
  const std::string text = absl::StrCat(kLookHere, "\n", kSendIt);
  const PreparedCall prepared = Respond(R"("parallel_tool_calls":false)");
  const Json whole = Whole(prepared, WithEnd(text), End::REASON_STOP);
  EXPECT_EQ(whole["parallel_tool_calls"], false);
  ASSERT_EQ(whole["output"].size(), 1u);
  EXPECT_EQ(whole["output"][0]["name"], "look");
}

TEST_F(ResponsesAnswer, HasAWholeCallAlsoWhereAKeyIsWrittenTwice) {
  const std::string arguments = R"({"at": 1, "at": 2})";
  const Json whole =
      Whole(Respond(""),
            WithEnd(absl::StrCat("<tool_call>\n{\"name\": \"look\", \"arguments\": ", arguments, "}\n</tool_call>")),
            End::REASON_STOP);
  EXPECT_EQ(whole["output"][0]["arguments"], arguments);
  EXPECT_EQ(whole["output"][0]["status"], "completed");
}

TEST_F(ResponsesAnswer, ThatFailsSaysSoAndWhatItHad) {
  const PreparedCall stream = Respond(R"("stream":true)");
  std::string bytes = stream.call->Begin().bytes;
  bytes += stream.call->Take(0, Text("So f")).bytes;
  const ApiCall::Output failed = stream.call->Fail(MakeApiError(ApiErrorCode::kStagesLost, "stage 2 is lost"));
  EXPECT_TRUE(failed.ended);
  const std::vector<Json> events = NamedEvents(bytes + failed.bytes);
  EXPECT_EQ(events.back()["type"], "response.failed");
  const Json& response = events.back()["response"];
  EXPECT_EQ(response["status"], "failed");
  EXPECT_EQ(response["error"], (Json{{"code", "stages_lost"}, {"message", "stage 2 is lost"}}));
  ASSERT_EQ(response["output"].size(), 1u);
  EXPECT_EQ(response["output"][0]["status"], "incomplete");
  EXPECT_EQ(response["output"][0]["content"][0]["text"], "So f");

  const PreparedCall whole = Respond("");
  whole.call->Begin();
  const Json body = Json::parse(whole.call->Fail(MakeApiError(ApiErrorCode::kStagesLost, "lost")).bytes);
  EXPECT_EQ(body["error"]["code"], "stages_lost");
}

TEST_F(ResponsesAnswer, ThatTheEngineRefusesFails) {
  const PreparedCall prepared = Respond(R"("stream":true)");
  std::string bytes = prepared.call->Begin().bytes;
  SessionEvent refused = Finished(End::REASON_REJECTED, "no room");
  refused.finished->set_code(pb::RequestFinished::CODE_NO_ROOM);
  const ApiCall::Output output = prepared.call->Take(0, refused);
  ASSERT_TRUE(output.error.has_value());
  const std::vector<Json> events = NamedEvents(bytes + output.bytes);
  EXPECT_THAT(TypesOf(events), ElementsAre("created", "in_progress", "failed"));
  EXPECT_EQ(events.back()["response"]["error"]["code"], "context_length_exceeded");
}

TEST_F(ResponsesAnswer, KeepsClientsWaitingWithWhatTheyKnow) {
  const PreparedCall prepared = Respond(R"("stream":true)");
  std::vector<Json> events = NamedEvents(prepared.call->Begin().bytes);
  const auto told = [&](const std::string& bytes) {
    std::vector<Json> more = NamedEvents(bytes, static_cast<int64_t>(events.size()));
    events.insert(events.end(), more.begin(), more.end());
    return more.empty() ? Json() : more.back();
  };
  Json idle = told(prepared.call->Idle().bytes);
  EXPECT_EQ(idle["type"], "response.in_progress");
  EXPECT_EQ(idle["response"]["output"], Json::array());
  told(prepared.call->Take(0, Text("Wait.")).bytes);
  idle = told(prepared.call->Idle().bytes);
  EXPECT_EQ(idle["type"], "response.output_text.delta");
  EXPECT_EQ(idle["delta"], "");
  told(prepared.call->Take(0, Text(kLookHere)).bytes);
  idle = told(prepared.call->Idle().bytes);
  EXPECT_EQ(idle["type"], "response.in_progress") << "nothing is open";
  EXPECT_EQ(idle["response"]["output"].size(), 2u);
  told(prepared.call->Take(0, Then(Tokens({kImEnd}), Finished(End::REASON_STOP))).bytes);
  EXPECT_EQ(events.back()["response"]["output"], Accumulated(events));
  EXPECT_EQ(prepared.call->Idle().bytes, "") << "it has ended";
}

TEST_F(ResponsesAnswer, ListsTheTokensOfItsMessagesAlone) {
  const PreparedCall prepared = Respond(R"("include":["message.output_text.logprobs"],"top_logprobs":1)");
  const Json whole = Whole(prepared, WithEnd(absl::StrCat("<think>Hm.</think>Yes", kLookHere)), End::REASON_STOP);
  const Json& logprobs = whole["output"][1]["content"][0]["logprobs"];
  ASSERT_EQ(logprobs.size(), 3u);
  EXPECT_EQ(logprobs[0]["token"], "Y");
  EXPECT_EQ(logprobs[0]["bytes"], Json::array({89}));
  EXPECT_TRUE(logprobs[0]["logprob"].is_number());
  EXPECT_EQ(logprobs[0]["top_logprobs"].size(), 2u);
  EXPECT_FALSE(whole["output"][0]["content"][0].contains("logprobs"));
}

TEST_F(ResponsesAnswer, RepeatsWhatWasAsked) {
  const PreparedCall prepared = service.Prepare(
      kResponsesApi,
      R"({"input":"Hi","instructions":"Be brief.","max_output_tokens":9,"metadata":{"a":"b"},"temperature":0.5,)"
      R"("top_p":0.25,"reasoning":{"effort":"low","summary":"auto"},"text":{"format":{"type":"text"},)"
      R"("verbosity":"low"},"tools":[{"type":"web_search"}],"tool_choice":"none","store":true,"user":"u"})");
  ASSERT_FALSE(prepared.error.has_value()) << prepared.error->message;
  EXPECT_THAT(prepared.call->skipped(), ElementsAre("tools.web_search"));
  EXPECT_EQ(prepared.call->TakeRequests().front().max_new_tokens, 9);
  const Json whole = Whole(prepared, {'a'}, End::REASON_LENGTH);
  EXPECT_EQ(whole["instructions"], "Be brief.");
  EXPECT_EQ(whole["max_output_tokens"], 9);
  EXPECT_EQ(whole["metadata"], (Json{{"a", "b"}}));
  EXPECT_EQ(whole["temperature"], 0.5);
  EXPECT_EQ(whole["top_p"], 0.25);
  EXPECT_EQ(whole["reasoning"], (Json{{"effort", "low"}, {"summary", nullptr}}));
  EXPECT_EQ(whole["text"], (Json{{"format", {{"type", "text"}}}}));
  EXPECT_EQ(whole["tools"], Json::array({{{"type", "web_search"}}}));
  EXPECT_EQ(whole["tool_choice"], "none");
  EXPECT_EQ(whole["store"], false);
}

TEST_F(ResponsesAnswer, TellsOfProgressAndTimesToThoseWhoAsk) {
  const PreparedCall prepared = Respond(R"("stream":true,"return_progress":true,"timings":true)");
  std::string bytes = prepared.call->Begin().bytes;
  SessionEvent half;
  half.prefill.emplace();
  half.prefill->set_total(40);
  half.prefill->set_processed(20);
  half.prefill->set_cached(8);
  bytes += prepared.call->Take(0, half).bytes;
  SessionEvent end = Then(Tokens({'a', kImEnd}), Finished(End::REASON_STOP));
  end.finished->mutable_cost()->set_queue_us(4'000'000);
  end.finished->mutable_cost()->set_prefill_us(3'000'000);
  end.finished->mutable_cost()->set_cached_tokens(8);
  bytes += prepared.call->Take(0, end).bytes;
  const std::vector<Json> events = NamedEvents(bytes);
  EXPECT_EQ(events[2]["type"], "response.in_progress");
  EXPECT_EQ(events[2]["prompt_progress"], (Json{{"total", 40}, {"cache", 8}, {"processed", 20}}));
  const Json& response = events.back()["response"];
  EXPECT_EQ(response["timings"]["prompt_ms"], 3000.0);
  EXPECT_EQ(response["completed_at"], 1700000007);
  EXPECT_EQ(response["usage"]["input_tokens_details"]["cached_tokens"], 8);
}

TEST_F(ResponsesAnswer, IsRefusedWithWhatToDoInstead) {
  for (const auto& [field, what] : {std::pair{R"("previous_response_id":"resp_1")", "send the whole conversation"},
                                    {R"("conversation":{"id":"conv_1"})", "send the whole conversation"},
                                    {R"("background":true)", "send stream"},
                                    {R"("prompt":{"id":"pmpt_1"})", "as instructions and input"},
                                    {R"("chat_template":"x")", "templates in requests are refused"}}) {
    const ApiError error = Refused(absl::StrCat(R"({"input":"Hi",)", field, "}"));
    EXPECT_EQ(error.status, 400) << field;
    EXPECT_EQ(error.code, "unsupported_parameter") << field;
    EXPECT_THAT(error.message, HasSubstr(what)) << field;
  }
  for (const auto& [field, param] : {std::pair{R"("include":"x")", "include"},
                                     {R"("include":[7])", "include"},
                                     {R"("text":7)", "text"},
                                     {R"("text":{"format":{"type":"verse"}})", "text.format"},
                                     {R"("reasoning":"high")", "reasoning"},
                                     {R"("reasoning":{"effort":7})", "reasoning.effort"},
                                     {R"("reasoning":{"effort":"hard"})", "reasoning.effort"},
                                     {R"("metadata":[])", "metadata"},
                                     {R"("top_logprobs":21)", "top_logprobs"},
                                     {R"("max_output_tokens":0)", "max_output_tokens"},
                                     {R"("max_output_tokens":"9")", "max_output_tokens"},
                                     {R"("temperature":3)", "temperature"},
                                     {R"("stream":"yes")", "stream"}}) {
    const ApiError error = Refused(absl::StrCat(R"({"input":"Hi",)", field, "}"));
    EXPECT_EQ(error.code, "invalid_value") << field << error.message;
    EXPECT_EQ(error.param, param) << field;
  }
  EXPECT_EQ(Refused(R"({"input":"Hi","previous_response_id":null,"background":false,"conversation":null,)"
                    R"("prompt":null,"truncation":"auto","include":["reasoning.encrypted_content"]})")
                .code,
            "");
}

TEST_F(ResponsesAnswer, NeedsRoomInTheContext) {
  const std::string body = absl::StrCat(R"({"input":")", std::string(9000, 'x'), R"("})");
  const ApiError error = Refused(body);
  EXPECT_EQ(error.code, "context_length_exceeded");
  EXPECT_EQ(error.message, "prompt is too long: 9019 tokens > 8191 maximum");
  // Who asks how long it is is told, up to twice the context.
  EXPECT_EQ(Json::parse(CountInputTokensBody(body, service.model, service.context).body)["input_tokens"], 9019);
  const std::string longer = absl::StrCat(R"({"input":")", std::string(17'000, 'x'), R"("})");
  EXPECT_EQ(CountInputTokensBody(longer, service.model, service.context).error->code, "context_length_exceeded");
}

TEST_F(ResponsesAnswer, IsALineOfABatchToo) {
  BatchLine line = ParseBatchLine(1, R"({"custom_id":"a","method":"POST","url":"/v1/responses","body":{)"
                                     R"("input":"Hi","store":false,"truncation":"disabled","metadata":{}}})");
  ASSERT_FALSE(line.error.has_value()) << line.error->message;
  PrepareBatchLine(service.model, service.context, &line);
  ASSERT_FALSE(line.error.has_value()) << line.error->message;
  const std::string body = Answer(line.call.get(), {'Y', kImEnd}, End::REASON_STOP);
  EXPECT_EQ(BatchAnswerJson("1", line, body)["response"]["body"]["output"][0]["content"][0]["text"], "Y");
}

// The tokens of a call, and how many the route says that they are.
TEST_F(ResponsesAnswer, HasThePromptOfTheSameChatCompletion) {
  constexpr char kNestedTools[] = R"([{"type":"function","function":{"name":"look","description":"d","strict":true,)"
                                  R"("parameters":{"type":"object","properties":{"at":{"type":"string"}}}}}])";
  constexpr char kFlatTools[] =
      R"([{"type":"function","strict":true,"name":"look",)"
      R"("parameters":{"type":"object","properties":{"at":{"type":"string"}}},"description":"d"}])";
  const std::string chat = absl::StrCat(
      R"({"messages":[{"role":"system","content":"s"},{"role":"user","content":[{"type":"text","text":"a"},)",
      R"({"type":"text","text":"b"}]},{"role":"assistant","content":"One.","reasoning_content":"Hm.","tool_calls":[)",
      R"({"id":"c","type":"function","function":{"name":"look","arguments":"{\"at\":\"x\"}"}}]},)",
      R"({"role":"tool","tool_call_id":"c","content":"A tree."}],"reasoning_effort":"high","tools":)", kNestedTools,
      "}");
  const std::string responses = absl::StrCat(
      R"({"instructions":"s","input":[{"role":"user","content":[{"type":"input_text","text":"a"},)",
      R"({"type":"input_text","text":"b"}]},{"type":"reasoning","summary":[],"content":[{"type":"reasoning_text",)",
      R"("text":"Hm."}]},{"type":"message","role":"assistant","content":[{"type":"output_text","text":"One."}]},)",
      R"({"type":"function_call","call_id":"c","name":"look","arguments":"{\"at\":\"x\"}"},)",
      R"({"type":"function_call_output","call_id":"c","output":"A tree."}],"reasoning":{"effort":"high"},"tools":)",
      kFlatTools, "}");
  const ChatFormat whole(
      {.given = ChatTemplateSource{"all", "{{ messages | tojson }}{{ tools | tojson }}{{ reasoning_effort }}"},
       .built_in = ""},
      GgufMetadata(), service.tokenizer.get());
  for (const ChatFormat* chat_format : {&whole, static_cast<const ChatFormat*>(&format)}) {
    service.model.chat = chat_format;
    const PreparedCall by_chat = service.Prepare(kChatApi, chat),
                       by_responses = service.Prepare(kResponsesApi, responses);
    ASSERT_FALSE(by_chat.error.has_value()) << by_chat.error->message;
    ASSERT_FALSE(by_responses.error.has_value()) << by_responses.error->message;
    const GenerationRequest expected = by_chat.call->TakeRequests().front();
    const GenerationRequest request = by_responses.call->TakeRequests().front();
    EXPECT_EQ(service.tokenizer->Decode(request.prompt, true), service.tokenizer->Decode(expected.prompt, true));
    EXPECT_EQ(request.prompt, expected.prompt);
    EXPECT_EQ(request.sampling, expected.sampling);
    EXPECT_EQ(request.stop_tokens, expected.stop_tokens);
    EXPECT_EQ(request.max_new_tokens, expected.max_new_tokens);
    const BodyAnswer counted = CountInputTokensBody(responses, service.model, service.context);
    ASSERT_FALSE(counted.error.has_value()) << counted.body;
    EXPECT_EQ(counted.body,
              absl::StrCat(R"({"object":"response.input_tokens","input_tokens":)", request.prompt.size(), "}"));
  }
  EXPECT_EQ(CountInputTokensBody("{}", service.model, service.context).error->param, "input");
  EXPECT_EQ(CountInputTokensBody("[", service.model, service.context).error->code, "invalid_json");
}

}  // namespace
}  // namespace stagecoach::testing
