#ifndef STAGECOACH_COORDINATOR_FRONT_SERVER_MESSAGE_H_
#define STAGECOACH_COORDINATOR_FRONT_SERVER_MESSAGE_H_

#include <string>

#include "absl/strings/string_view.h"

namespace stagecoach {

// What a server says of why it gave no answer: the message in a body or an event of OpenAI's form,
// {"error":{"message"}}, else the beginning of whatever it sent; never empty. It is the server's word, with any bytes
// in it.
std::string ServerMessage(absl::string_view sent);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_FRONT_SERVER_MESSAGE_H_
