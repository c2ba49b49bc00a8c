#include "coordinator/cli/chat/dialogue.h"

#include <utility>

#include "common/base/status_macros.h"
#include "common/json/json.h"
#include "coordinator/text/chat/chat_template.h"

namespace stagecoach {
namespace {

Json Message(absl::string_view role, absl::string_view content) {
  return {{"role", std::string(role)}, {"content", std::string(content)}};
}

bool HasRole(const Json& message, absl::string_view role) { return message.at("role").get<std::string>() == role; }

}  // namespace

std::string Dialogue::system() const {
  if (messages_.empty() || !HasRole(messages_.front(), "system")) return "";
  const Json& content = messages_.front().at("content");
  return content.is_string() ? content.get<std::string>() : CompactJson(content);
}

void Dialogue::SetSystem(absl::string_view text) {
  const bool there = !messages_.empty() && HasRole(messages_.front(), "system");
  if (there) messages_.erase(messages_.begin());
  if (!text.empty()) messages_.insert(messages_.begin(), Message("system", text));
}

void Dialogue::AddUser(absl::string_view text) { messages_.push_back(Message("user", text)); }

void Dialogue::AddAnswer(absl::string_view content, absl::string_view reasoning) {
  Json message = Message("assistant", content);
  if (!reasoning.empty()) message["reasoning_content"] = std::string(reasoning);
  messages_.push_back(std::move(message));
}

size_t Dialogue::LastUser() const {
  for (size_t i = messages_.size(); i > 0; --i) {
    if (HasRole(messages_[i - 1], "user")) return i - 1;
  }
  return messages_.size();
}

bool Dialogue::HasUser() const { return LastUser() < messages_.size(); }

void Dialogue::TakeBackMessage() {
  messages_.erase(messages_.begin() + static_cast<ptrdiff_t>(LastUser()), messages_.end());
}

void Dialogue::TakeBackAnswer() {
  const size_t user = LastUser();
  if (user == messages_.size()) return;
  messages_.erase(messages_.begin() + static_cast<ptrdiff_t>(user) + 1, messages_.end());
}

void Dialogue::Clear() {
  const bool system = !messages_.empty() && HasRole(messages_.front(), "system");
  messages_.erase(messages_.begin() + (system ? 1 : 0), messages_.end());
}

std::string Dialogue::Text() const { return PrettyJson(messages_); }

absl::Status Dialogue::Load(absl::string_view text) {
  ASSIGN_OR_RETURN(Json messages, ParseJson(text));
  RETURN_IF_ERROR(CheckMessages(messages));
  messages_ = std::move(messages);
  return absl::OkStatus();
}

}  // namespace stagecoach
