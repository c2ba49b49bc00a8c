#ifndef STAGECOACH_COORDINATOR_FRONT_ANSWER_END_H_
#define STAGECOACH_COORDINATOR_FRONT_ANSWER_END_H_

#include <string>

#include "common/base/ids.h"
#include "coordinator/text/tokenizer.h"
#include "proto/engine.pb.h"

namespace stagecoach {

// Why an answer ended.
struct AnswerEnd {
  std::string reason;     // "stop", "length", "cancelled"; empty while it goes on
  std::string rejection;  // why it never ran, or failed; empty otherwise
  bool failed = false;    // it could not be computed to its end

  bool finished() const { return !reason.empty(); }
};

AnswerEnd EndOfAnswer(const pb::RequestFinished& finished);

// Such a token is never printed, even where it has a printable text.
bool IsEndOfGeneration(const Tokenizer& tokenizer, TokenId token);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_FRONT_ANSWER_END_H_
