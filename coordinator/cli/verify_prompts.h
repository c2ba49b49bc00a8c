#ifndef STAGECOACH_COORDINATOR_CLI_VERIFY_PROMPTS_H_
#define STAGECOACH_COORDINATOR_CLI_VERIFY_PROMPTS_H_

// What `verify` asks: texts of its own and the user's, each greedily, and the first of them sampled by a seed too. Where
// layers have a window that none of these is longer than, a long prompt comes last, so that blocks behind a window are
// given back.

#include <cstdint>
#include <string>
#include <vector>

#include "coordinator/cli/verify_answer.h"
#include "coordinator/text/tokenizer.h"

namespace stagecoach {

struct VerifyQuestion {
  std::vector<std::string> prompts;  // the user's
  int64_t new_tokens = 16;
  uint64_t seed = 0;
  int64_t context = 0;  // of the model: built-in prompts are cut to it
  int64_t vocab = 0;
  int64_t window = 0;  // the largest of the model's layers; 0: none has one
  int64_t block_tokens = 0;
};

struct VerifyAsked {
  std::vector<VerifyRequest> requests;
  int64_t cut_to = 0;        // tokens that the context has left of a built-in prompt; 0: all are whole
  bool long_prompt = false;  // the last request is there for the window alone
  std::string note;          // why there is no long prompt where there should be one; otherwise empty
};

// Windows up to this one get a long prompt.
inline constexpr int64_t kMostVerifiedWindow = 4096;

// `tokenizer`: nullptr: there is none, and made-up token ids, always the same ones, stand for the built-in texts; there
// are no prompts of the user then.
VerifyAsked VerifyRequests(const VerifyQuestion& question, const Tokenizer* tokenizer);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_CLI_VERIFY_PROMPTS_H_
