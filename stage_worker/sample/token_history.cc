#include "stage_worker/sample/token_history.h"

namespace stagecoach {

TokenHistory::TokenHistory(const OpenSequence& open) : sampling_(open.sampling) {
  tokens_.reserve(open.prompt.size() + open.output.size() + kRoom);
  tokens_.assign(open.prompt.begin(), open.prompt.end());
  output_counts_.reserve(kRoom);
  for (const TokenId token : open.output) AppendOutput(token);
}

void TokenHistory::AppendOutput(TokenId token) {
  tokens_.push_back(token);
  ++output_counts_[token];
}

}  // namespace stagecoach
