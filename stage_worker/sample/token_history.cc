#include "stage_worker/sample/token_history.h"

namespace stagecoach {

TokenHistory::TokenHistory(const OpenSequence& open)
    : sampling_(open.sampling), prompt_(static_cast<int64_t>(open.prompt.size())) {
  tokens_.reserve(open.prompt.size() + open.output.size() + kRoom);
  tokens_.assign(open.prompt.begin(), open.prompt.end());
  output_counts_.reserve(kRoom);
  place_.reserve(kRoom);
  for (const TokenId token : open.output) AppendOutput(token);
}

void TokenHistory::AppendOutput(TokenId token) {
  tokens_.push_back(token);
  const auto [entry, first] = place_.try_emplace(token, output_counts_.size());
  if (first) output_counts_.push_back({token, 0});
  ++output_counts_[entry->second].count;
}

}  // namespace stagecoach
