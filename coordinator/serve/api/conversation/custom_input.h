#ifndef STAGECOACH_COORDINATOR_SERVE_API_CONVERSATION_CUSTOM_INPUT_H_
#define STAGECOACH_COORDINATOR_SERVE_API_CONVERSATION_CUSTOM_INPUT_H_

// The input of a custom tool's call. Such a tool is offered as a function with one string, so the model writes
// {"input": "TEXT"}, and clients want TEXT.

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace stagecoach {

// Fed with the arguments as they are written. The joined pieces do not depend on how the arguments are cut:
//   {"input": "TEXT"...   TEXT, piece by piece, no piece ending within an escape; what follows TEXT is dropped
//   other JSON            its member `input` if that is a string, at the end
//   anything else         the arguments as they are, at the end
// Not thread-safe.
class CustomInput {
 public:
  std::string Take(absl::string_view arguments);  // what this adds to the input
  std::string Finish();                           // the arguments have ended: the rest of the input

 private:
  enum class State {
    kBefore,  // of TEXT: held_ has all arguments so far
    kInside,  // held_ begins with an escape that is not whole, or is empty
    kAfter,
    kOther,  // no such arguments: held_ has all
  };

  void FindText();         // in held_
  std::string TakeText();  // of held_, what is certain

  State state_ = State::kBefore;
  std::string held_;
  size_t marks_ = 0, passed_ = 0;  // of kBefore: what has been found of {"input": ", and up to which byte of held_
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SERVE_API_CONVERSATION_CUSTOM_INPUT_H_
