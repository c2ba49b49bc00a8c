#ifndef STAGECOACH_COORDINATOR_CLI_CHAT_DIALOGUE_H_
#define STAGECOACH_COORDINATOR_CLI_CHAT_DIALOGUE_H_

// What was said so far, as messages in the form that chat templates take.

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/json/json.h"

namespace stagecoach {

// Not thread-safe.
class Dialogue {
 public:
  Dialogue();
  ~Dialogue();
  Dialogue(const Dialogue& other);
  Dialogue& operator=(const Dialogue& other);

  const Json& messages() const { return *messages_; }  // a list
  size_t size() const;                                 // of it

  // The text of the system message, which is the first one; empty: none.
  std::string system() const;
  void SetSystem(absl::string_view text);  // "" removes it

  void AddUser(absl::string_view text);
  void AddAnswer(absl::string_view content, absl::string_view reasoning);

  bool HasUser() const;  // somebody said something
  // Takes back the user's last message with all that follows it, or what follows it alone. Nothing without one.
  void TakeBackMessage();
  void TakeBackAnswer();
  void Clear();  // all but the system message

  // JSON as apply-template reads it. A failed Load (kInvalidArgument) changes nothing.
  std::string Text() const;
  absl::Status Load(absl::string_view text);

 private:
  size_t LastUser() const;  // size() when there is none

  std::unique_ptr<Json> messages_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_CLI_CHAT_DIALOGUE_H_
