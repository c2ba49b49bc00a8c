#ifndef STAGECOACH_COORDINATOR_CLI_CHAT_DIALOGUE_H_
#define STAGECOACH_COORDINATOR_CLI_CHAT_DIALOGUE_H_

// The messages of a conversation, in the form of chat templates.

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/json/json_value.h"

namespace stagecoach {

// Not thread-safe.
class Dialogue {
 public:
  const Json& messages() const { return messages_; }  // a list
  size_t size() const { return messages_.size(); }    // of it

  // The text of the system message, which is the first one; empty: none.
  std::string system() const;
  void SetSystem(absl::string_view text);  // "" removes it

  void AddUser(absl::string_view text);
  void AddAnswer(absl::string_view content, absl::string_view reasoning);

  bool HasUser() const;  // there is a message of the user
  // Removes the user's last message and everything after it, or only what follows it. Does nothing without a user
  // message.
  void TakeBackMessage();
  void TakeBackAnswer();
  void Clear();  // all but the system message

  // JSON as apply-template reads it. A failed Load (kInvalidArgument) changes nothing.
  std::string Text() const;
  absl::Status Load(absl::string_view text);

 private:
  size_t LastUser() const;  // size() if there is none

  Json messages_ = Json::array();
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_CLI_CHAT_DIALOGUE_H_
