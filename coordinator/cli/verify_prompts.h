#ifndef STAGECOACH_COORDINATOR_CLI_VERIFY_PROMPTS_H_
#define STAGECOACH_COORDINATOR_CLI_VERIFY_PROMPTS_H_

// What `verify` asks: texts of its own and the user's, each greedily, and the first of them sampled by a seed too.

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
};

// `tokenizer`: nullptr: there is none, and made-up token ids, always the same ones, stand for the built-in texts; there
// are no prompts of the user then.
std::vector<VerifyRequest> VerifyRequests(const VerifyQuestion& question, const Tokenizer* tokenizer);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_CLI_VERIFY_PROMPTS_H_
