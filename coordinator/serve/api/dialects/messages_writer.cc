#include "coordinator/serve/api/dialects/messages_writer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/json/json.h"
#include "common/json/json_value.h"

namespace stagecoach {
namespace {

Json MessagesUsage(int64_t prompt_tokens, int64_t cached_tokens, int64_t output_tokens) {
  return {{"input_tokens", prompt_tokens - cached_tokens},
          {"cache_creation_input_tokens", 0},
          {"cache_read_input_tokens", cached_tokens},
          {"output_tokens", output_tokens}};
}

Json MessagesUsage(const ApiCall::Usage& usage) {
  return MessagesUsage(usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens);
}

const char* StopReason(const AnswerEnd& end) {
  switch (end.reason) {
    case AnswerEnd::Reason::kStop: return end.stop_string.empty() ? "end_turn" : "stop_sequence";
    case AnswerEnd::Reason::kLength: return end.context_full ? "model_context_window_exceeded" : "max_tokens";
    case AnswerEnd::Reason::kToolCalls: return "tool_use";
  }
  return "";
}

// The members of a message that say how it ended; null: it has not.
Json StopJson(const AnswerEnd* end) {
  return {{"stop_reason", end == nullptr ? Json(nullptr) : Json(StopReason(*end))},
          {"stop_sequence", end == nullptr || end->stop_string.empty() ? Json(nullptr) : Json(end->stop_string)},
          {"stop_details", nullptr},
          {"container", nullptr}};
}

Json MessageJson(const CallPlan& plan, Json content, const AnswerEnd* end, Json usage) {
  Json message = {{"id", absl::StrCat(plan.api->id_prefix, plan.id)},
                  {"type", "message"},
                  {"role", "assistant"},
                  {"model", plan.fields.model},
                  {"content", std::move(content)}};
  message.update(StopJson(end));
  message["usage"] = std::move(usage);
  return message;
}

enum class Block { kNone, kThinking, kText, kTool };

Block BlockOf(OutputKind kind) {
  switch (kind) {
    case OutputKind::kReasoning: return Block::kThinking;
    case OutputKind::kContent: return Block::kText;
    default: return Block::kTool;
  }
}

// As it begins. `call`: of a kTool.
Json BlockJson(Block block, const OutputDelta& call) {
  switch (block) {
    case Block::kThinking: return {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}};
    case Block::kText: return {{"type", "text"}, {"text", ""}, {"citations", nullptr}};
    default: break;
  }
  return {{"type", "tool_use"}, {"id", call.call_id}, {"name", call.text}, {"input", Json::object()}};
}

// What streams and bodies have in common: the blocks of an answer, of which at most one is open.
class BlockWriter : public AnswerWriter {
 public:
  explicit BlockWriter(const CallPlan& plan) : plan_(plan) {}

  std::string Put(size_t /*choice*/, const AnswerPiece& piece) override {
    std::string bytes;
    for (const OutputDelta& delta : piece.deltas) {
      const Block block = BlockOf(delta.kind);
      const bool begins_call = delta.kind == OutputKind::kCallStart;
      if (block != open_ || begins_call) {
        bytes += Close();
        open_ = block;
        bytes += StartBlock(BlockJson(block, delta));
      }
      if (!begins_call && !delta.text.empty()) bytes += AddToBlock(delta.text);
      if (delta.kind == OutputKind::kCallEnd) bytes += Close();
    }
    return bytes;
  }

  std::string EndChoice(size_t /*choice*/, const AnswerEnd& /*end*/) override { return ""; }  // there is only one

 protected:
  virtual std::string StartBlock(Json block) = 0;
  virtual std::string AddToBlock(const std::string& text) = 0;
  virtual std::string StopBlock() = 0;

  std::string Close() {
    const std::string bytes = open_ == Block::kNone ? "" : StopBlock();
    open_ = Block::kNone;
    return bytes;
  }

  const CallPlan& plan_;
  Block open_ = Block::kNone;
};

// `json`: an object whose first member is the type.
std::string MessagesEvent(absl::string_view type, absl::string_view json) {
  return absl::StrCat("event: ", type, "\ndata: ", json, "\n\n");
}

class MessagesStreamWriter final : public BlockWriter {
 public:
  using BlockWriter::BlockWriter;

  std::string Begin(size_t /*choice*/) override {
    const Json message = MessageJson(plan_, Json::array(), nullptr, MessagesUsage(plan_.prompt_tokens, 0, 0));
    return MessagesEvent("message_start", CompactJson({{"type", "message_start"}, {"message", message}}));
  }

  std::string End(size_t /*choice*/, const AnswerEnd& end, const AnswerTotals& totals) override {
    std::string bytes = Close();
    const Json last = {{"type", "message_delta"}, {"delta", StopJson(&end)}, {"usage", MessagesUsage(totals.usage)}};
    bytes += MessagesEvent("message_delta", CompactJson(last));
    return bytes + MessagesEvent("message_stop", R"({"type":"message_stop"})");
  }

  std::string Fail(const ApiError& error) override {
    return MessagesEvent("error", MessagesErrorBody(error, plan_.request_id));
  }

 private:
  std::string StartBlock(Json block) override {
    return BlockEvent("content_block_start", "content_block", CompactJson(block));
  }

  std::string AddToBlock(const std::string& text) override {
    switch (open_) {
      case Block::kThinking: return Delta("thinking_delta", "thinking", text);
      case Block::kText: return Delta("text_delta", "text", text);
      default: return Delta("input_json_delta", "partial_json", text);
    }
  }

  std::string StopBlock() override {
    std::string bytes = open_ == Block::kThinking ? Delta("signature_delta", "signature", "") : "";
    bytes += BlockEvent("content_block_stop", "", "");
    ++index_;
    return bytes;
  }

  std::string Delta(absl::string_view type, absl::string_view member, absl::string_view text) const {
    return BlockEvent("content_block_delta", "delta",
                      absl::StrCat("{\"type\":\"", type, "\",\"", member, "\":", JsonString(text), "}"));
  }

  std::string BlockEvent(absl::string_view type, absl::string_view member, absl::string_view json) const {
    const std::string more = member.empty() ? "" : absl::StrCat(",\"", member, "\":", json);
    return MessagesEvent(type, absl::StrCat("{\"type\":\"", type, "\",\"index\":", index_, more, "}"));
  }

  size_t index_ = 0;  // of the open block, or the next one
};

class MessagesBodyWriter final : public BlockWriter {
 public:
  using BlockWriter::BlockWriter;

  std::string End(size_t /*choice*/, const AnswerEnd& end, const AnswerTotals& totals) override {
    Close();
    return CompactJson(MessageJson(plan_, std::move(content_), &end, MessagesUsage(totals.usage)));
  }

  std::string Fail(const ApiError& error) override { return MessagesErrorBody(error, plan_.request_id); }

 private:
  std::string StartBlock(Json block) override {
    content_.push_back(std::move(block));
    text_.clear();
    return "";
  }

  std::string AddToBlock(const std::string& text) override {
    text_ += text;
    return "";
  }

  std::string StopBlock() override {
    Json& block = content_.back();
    if (open_ != Block::kTool) {
      block[open_ == Block::kText ? "text" : "thinking"] = std::move(text_);
    } else if (absl::StatusOr<Json> input = ParseJson(text_, RepeatedKeys::kLastCounts);
               input.ok() && input->is_object()) {
      block["input"] = *std::move(input);
    }
    return "";
  }

  Json content_ = Json::array();
  std::string text_;  // of the open block
};

}  // namespace

std::string MessagesErrorBody(const ApiError& error, absl::string_view request_id) {
  std::string type = error.type;
  for (const auto& [ours, theirs] : {std::pair{"server_error", "api_error"},
                                     {"unavailable_error", "overloaded_error"},
                                     {"not_supported_error", ApiErrorCode::kInvalid}}) {
    if (error.type == ours) type = theirs;
  }
  if (error.status == 404) type = "not_found_error";
  return CompactJson({{"type", "error"},
                      {"error", {{"type", type}, {"message", error.message}}},
                      {"request_id", std::string(request_id)}});
}

std::unique_ptr<AnswerWriter> MakeMessagesWriter(const CallPlan& plan) {
  if (plan.fields.stream) return std::make_unique<MessagesStreamWriter>(plan);
  return std::make_unique<MessagesBodyWriter>(plan);
}

}  // namespace stagecoach
