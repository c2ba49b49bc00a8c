#ifndef STAGECOACH_COORDINATOR_VERIFY_VERIFY_REQUESTS_H_
#define STAGECOACH_COORDINATOR_VERIFY_VERIFY_REQUESTS_H_

// The requests of `verify`, the answers of a run, and the bitwise comparison of two runs.
//
// Requests are built-in texts and the user's, each greedy, and the first one sampled by a seed too. If layers have a
// window longer than all of these, a long prompt is added, so that blocks behind a window are freed.
//
// A row is a position whose token is computed. Row p yields a hidden state behind each layer, and then the distribution
// of the token at position p + 1. Runs are compared in that order, so the first difference has identical causes and is
// where the runs diverge.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/base/ids.h"
#include "common/step/step.h"
#include "coordinator/text/tokenizer.h"

namespace stagecoach {

struct VerifyRequest {
  std::string name;  // "prompt 2, greedy"
  std::vector<TokenId> prompt;
  SamplingParams sampling;
  int64_t new_tokens = 0;
};

struct VerifyAnswer {
  std::vector<float> prompt_logprobs;                  // [prompt tokens - 1] of the prompt's tokens from position 1 on
  std::vector<SampledToken> tokens;                    // after a restart those that came since
  std::map<int64_t, std::vector<uint32_t>> checksums;  // by row: [layers] of its hidden states; may be empty
  std::optional<int64_t> unsteady_row;                 // that was computed twice, with different checksums

  void Take(const RowChecksums& rows);
};

// Checks that the answer is complete; kInternal otherwise. `kept`: output tokens that the request came with. `layers`:
// checksums that each row must have; 0: none required.
absl::Status CheckAnswer(const VerifyRequest& request, const VerifyAnswer& answer, int64_t kept, int64_t layers);

struct OutputDifference {
  int64_t position = 0;  // of the token
  bool prompt = false;   // it is one of the prompt, whose log-probability differs
  // Tokens where these differ; otherwise kNoToken and the log-probabilities that do, of `of`.
  TokenId tokens[2] = {kNoToken, kNoToken};
  TokenId of = kNoToken;
  float logprobs[2] = {0, 0};
};
struct HiddenDifference {
  int64_t position = 0;  // of the row
  int64_t layer = 0;     // the first behind which its hidden states differ
};
struct AnswerDifference {
  size_t request = 0;
  std::optional<OutputDifference> output;
  std::optional<HiddenDifference> hidden;  // only where both runs have checksums
};

// The first differences of the first request that has any; absent if there is none. Both runs have as many answers.
// Positions that only one answer has are not compared.
std::optional<AnswerDifference> FirstDifference(absl::Span<const VerifyRequest> requests,
                                                absl::Span<const VerifyAnswer> a, absl::Span<const VerifyAnswer> b);

// The amounts that two runs have in common and were compared.
struct VerifyCount {
  int64_t tokens = 0;
  int64_t logprobs = 0;   // of the prompts' tokens, of the new ones, and of the best ones beside these
  int64_t checksums = 0;  // hidden states: rows times layers
};
VerifyCount CountCompared(absl::Span<const VerifyRequest> requests, absl::Span<const VerifyAnswer> a,
                          absl::Span<const VerifyAnswer> b);

// Groups of agreeing runs, by index: each run joins the first group whose first run it agrees with. Run 0 is in the
// first group.
std::vector<std::vector<size_t>> AgreeingRuns(absl::Span<const VerifyRequest> requests,
                                              absl::Span<const std::vector<VerifyAnswer>> runs);

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
  bool long_prompt = false;  // the last request exists only for the window; dropped if there is no memory for it
  std::string note;          // what is not examined, such as a window without a long prompt; may be empty
};

// Windows up to this one get a long prompt.
inline constexpr int64_t kMostVerifiedWindow = 4096;

// Without a `tokenizer` (nullptr) fixed made-up token ids replace the built-in texts, and there are no prompts of the
// user.
VerifyAsked VerifyRequests(const VerifyQuestion& question, const Tokenizer* tokenizer);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_VERIFY_VERIFY_REQUESTS_H_
