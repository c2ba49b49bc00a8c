#include "coordinator/serve/api/dialects/responses_writer.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/json/json_value.h"
#include "coordinator/serve/api/conversation/tools.h"
#include "coordinator/serve/api/token_text.h"

namespace stagecoach {
namespace {

// What an item consists of, and how its growing text is told of.
struct ItemKind {
  const char* type;
  const char* id_prefix;
  const char* part;    // type of the one part that has the text; null: the text is a member of the item
  const char* member;  // the name of the text, in the part or the item
  const char* events;  // response.<events>.delta and .done
};
constexpr ItemKind kReasoningItem = {"reasoning", "rs_", "reasoning_text", "text", "reasoning_text"};
constexpr ItemKind kMessageItem = {"message", "msg_", "output_text", "text", "output_text"};
constexpr ItemKind kFunctionItem = {"function_call", "fc_", nullptr, "arguments", "function_call_arguments"};
constexpr ItemKind kCustomItem = {"custom_tool_call", "ctc_", nullptr, "input", "custom_tool_call_input"};

constexpr char kInProgress[] = "in_progress", kCompleted[] = "completed", kIncomplete[] = "incomplete";

Json ResponsesUsage(const ApiCall::Usage& usage) {
  return {{"input_tokens", usage.prompt_tokens},
          {"input_tokens_details", {{"cached_tokens", usage.cached_tokens}, {"cache_write_tokens", 0}}},
          {"output_tokens", usage.completion_tokens},
          {"output_tokens_details", {{"reasoning_tokens", usage.reasoning_tokens}}},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens}};
}

class ResponsesWriter final : public AnswerWriter {
 public:
  explicit ResponsesWriter(const CallPlan& plan) : plan_(plan) {}

  std::string Begin(size_t) override {
    if (!plan_.fields.stream) return "";
    Tell("created", {{"response", Response(kInProgress)}});
    Tell(kInProgress, {{"response", Response(kInProgress)}});
    return std::exchange(events_, "");
  }

  std::string Put(size_t, const AnswerPiece& piece) override {
    for (const ListedToken& token : piece.tokens) listed_.push_back(token);
    for (const OutputDelta& delta : piece.deltas) PutDelta(delta);
    return std::exchange(events_, "");
  }

  std::string PutProgress(size_t, const pb::PrefillProgress& progress) override {
    Tell(kInProgress, {{"response", Response(kInProgress)}, {"prompt_progress", ProgressJson(progress)}});
    return std::exchange(events_, "");
  }

  std::string Idle() override {
    if (kind_ != nullptr) {
      Append("");
    } else {
      Tell(kInProgress, {{"response", Response(kInProgress)}});
    }
    return std::exchange(events_, "");
  }

  std::string EndChoice(size_t, const AnswerEnd&) override { return ""; }  // there is one choice: it has End

  std::string End(size_t, const AnswerEnd& end, const AnswerTotals& totals) override {
    const bool whole = end.reason != AnswerEnd::Reason::kLength;
    const char* status = whole ? kCompleted : kIncomplete;
    Close(status);
    Json response = Response(status);
    if (whole) {
      const int64_t elapsed_us = totals.queue_us + totals.prompt_us + totals.predicted_us;
      response["completed_at"] = plan_.created + elapsed_us / 1'000'000;
    } else {
      response["incomplete_details"] = {{"reason", "max_output_tokens"}};
    }
    response["usage"] = ResponsesUsage(totals.usage);
    if (totals.timed) response["timings"] = TimingsJson(totals);
    return Last(status, std::move(response));
  }

  std::string Fail(const ApiError& error) override {
    if (!plan_.fields.stream) return ErrorBody(error);
    if (kind_ != nullptr) output_.push_back(Item(kIncomplete));
    Json response = Response("failed");
    response["error"] = {{"code", error.code}, {"message", error.message}};
    return Last("failed", std::move(response));
  }

 private:
  // Adds the event response.<name>. Its members say where and what.
  void Tell(absl::string_view name, const Json& members) {
    if (!plan_.fields.stream) return;
    const std::string type = absl::StrCat("response.", name);
    Json event = {{"type", type}, {"sequence_number", told_++}};
    event.update(members);
    absl::StrAppend(&events_, "event: ", type, "\ndata: ", CompactJson(event), "\n\n");
  }

  // The end: a body, or the last event.
  std::string Last(absl::string_view status, Json response) {
    if (!plan_.fields.stream) return CompactJson(response);
    Tell(status, {{"response", std::move(response)}});
    return std::exchange(events_, "");
  }

  Json Response(const char* status) const {
    const Json& repeated = *plan_.repeated;
    return {{"id", absl::StrCat(plan_.api->id_prefix, plan_.id)},
            {"object", "response"},
            {"created_at", plan_.created},
            {"completed_at", nullptr},
            {"status", status},
            {"error", nullptr},
            {"incomplete_details", nullptr},
            {"instructions", repeated.at("instructions")},
            {"max_output_tokens", repeated.at("max_output_tokens")},
            {"metadata", repeated.at("metadata")},
            {"model", plan_.fields.model},
            {"output", output_},
            {"parallel_tool_calls", repeated.at("parallel_tool_calls")},
            {"previous_response_id", nullptr},
            {"reasoning", repeated.at("reasoning")},
            {"store", false},
            {"temperature", FloatJson(plan_.fields.sampling.temperature)},
            {"text", repeated.at("text")},
            {"tool_choice", repeated.at("tool_choice")},
            {"tools", repeated.at("tools")},
            {"top_p", FloatJson(plan_.fields.sampling.top_p)},
            {"truncation", "disabled"},
            {"usage", nullptr}};
  }

  void PutDelta(const OutputDelta& delta) {
    switch (delta.kind) {
      case OutputKind::kReasoning:
        if (kind_ != &kReasoningItem) Open(kReasoningItem, {{"summary", Json::array()}});
        return Append(delta.text);
      case OutputKind::kContent:
        if (kind_ != &kMessageItem) Open(kMessageItem, {{"role", "assistant"}});
        return Append(delta.text);
      case OutputKind::kCallStart: return OpenCall(delta);
      case OutputKind::kCallArguments: return Append(delta.text);
      case OutputKind::kCallEnd: return CloseCall();
    }
  }

  // One that had begun to leave may have been cut off by the limit, or turned out to be none.
  void CloseCall() {
    const bool whole = kind_ == &kCustomItem || ParseJson(text_, RepeatedKeys::kLastCounts).ok();
    Close(whole ? kCompleted : kIncomplete);
  }

  void OpenCall(const OutputDelta& start) {
    const OfferedTool* tool = plan_.tools->Find(start.text);
    Json members = {{"call_id", start.call_id}, {"name", tool == nullptr ? start.text : tool->own_name}};
    if (tool != nullptr && !tool->name_space.empty()) members["namespace"] = tool->name_space;
    const bool custom = tool != nullptr && tool->kind == OfferedTool::Kind::kCustom;
    Open(custom ? kCustomItem : kFunctionItem, members);
  }

  void Open(const ItemKind& kind, const Json& members) {
    Close(kCompleted);
    kind_ = &kind;
    text_.clear();
    logprobs_ = Json::array();
    item_ = {{"id", MakeCallId(kind.id_prefix, plan_.id, /*choice=*/0, output_.size())}, {"type", kind.type}};
    item_.update(members);
    Json item = Item(kInProgress);
    if (kind.part != nullptr) item["content"] = Json::array();  // the part comes with an event of its own
    Tell("output_item.added", {{"output_index", output_.size()}, {"item", std::move(item)}});
    if (kind.part != nullptr) Tell("content_part.added", AtPlace({{"part", Part()}}));
  }

  void Append(absl::string_view text) {
    absl::StrAppend(&text_, text);
    Json members = {{"delta", std::string(text)}};
    if (kind_ == &kMessageItem) members["logprobs"] = TakeLogprobs();
    Tell(absl::StrCat(kind_->events, ".delta"), AtPlace(members));
  }

  void Close(const char* status) {
    if (kind_ == nullptr) return;
    const bool message = kind_ == &kMessageItem;
    // Tokens without a text, such as white space before a call.
    if (message && !listed_.empty() && listed_.front().part <= output_.size()) Append("");
    Json members = {{kind_->member, text_}};
    if (kind_ == &kFunctionItem) members["name"] = item_["name"];
    if (message) members["logprobs"] = logprobs_;
    Tell(absl::StrCat(kind_->events, ".done"), AtPlace(members));
    if (kind_->part != nullptr) Tell("content_part.done", AtPlace({{"part", Part()}}));
    Json item = Item(status);
    Tell("output_item.done", {{"output_index", output_.size()}, {"item", item}});
    output_.push_back(std::move(item));
    kind_ = nullptr;
  }

  // Members of an event that is about the open item.
  Json AtPlace(const Json& members) const {
    Json place = {{"item_id", item_.at("id")}, {"output_index", output_.size()}};
    if (kind_->part != nullptr) place["content_index"] = 0;
    place.update(members);
    return place;
  }

  Json Part() const {
    Json part = {{"type", kind_->part}, {kind_->member, text_}};
    if (kind_ != &kMessageItem) return part;
    part["annotations"] = Json::array();
    part["logprobs"] = logprobs_;
    return part;
  }

  Json Item(const char* status) const {
    Json item = item_;
    if (kind_->part != nullptr) {
      item["content"] = Json::array({Part()});
    } else {
      item[kind_->member] = text_;
    }
    item["status"] = status;
    return item;
  }

  // Those of the tokens of the open message that have come since the last time. Other items have none.
  Json TakeLogprobs() {
    Json taken = Json::array();
    size_t passed = 0;
    for (; passed < listed_.size() && listed_[passed].part <= output_.size(); ++passed) {
      const ListedToken& token = listed_[passed];
      if (token.part == output_.size()) taken.push_back(TokenJson(*plan_.model->tokenizer, token));
    }
    listed_.erase(listed_.begin(), listed_.begin() + static_cast<ptrdiff_t>(passed));
    for (const Json& token : taken) logprobs_.push_back(token);
    return taken;
  }

  const CallPlan& plan_;
  std::string events_;  // to be returned
  int64_t told_ = 0;    // events
  Json output_ = Json::array();

  // The open item; null: there is none.
  const ItemKind* kind_ = nullptr;
  Json item_;  // without its text and status
  std::string text_;
  Json logprobs_ = Json::array();

  std::vector<ListedToken> listed_;  // not told of yet
};

}  // namespace

std::unique_ptr<AnswerWriter> MakeResponsesWriter(const CallPlan& plan) {
  return std::make_unique<ResponsesWriter>(plan);
}

}  // namespace stagecoach
