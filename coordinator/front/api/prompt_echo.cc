#include "coordinator/front/api/prompt_echo.h"

#include "absl/types/span.h"
#include "coordinator/front/api/token_text.h"

namespace stagecoach {

PromptEcho::PromptEcho(const Tokenizer& tokenizer, const std::vector<TokenId>& prompt, const std::string& text,
                       bool scored) {
  if (!text.empty()) piece_.deltas.push_back({OutputKind::kContent, text, ""});
  if (!scored) return;
  const std::vector<int64_t> offsets = PromptOffsets(tokenizer, prompt, text);
  for (size_t i = 0; i < prompt.size(); ++i) {
    ListedToken& token = piece_.tokens.emplace_back();
    token.token = prompt[i];
    token.text_offset = offsets[i];
  }
  missing_ = prompt.size() - 1;
}

void PromptEcho::Take(const std::vector<TargetLogprobs>& scores) {
  for (const TargetLogprobs& rows : scores) {
    const size_t tops = rows.logprobs.empty() ? 0 : rows.top.size() / rows.logprobs.size();
    for (size_t i = 0; i < rows.logprobs.size(); ++i) {
      // A row says how probable the token behind it was.
      const size_t place = static_cast<size_t>(rows.start) + i + 1;
      if (rows.start < 0 || place >= piece_.tokens.size() || piece_.tokens[place].logprob.has_value()) continue;
      ListedToken& token = piece_.tokens[place];
      token.logprob = rows.logprobs[i];
      for (const TokenLogprob& top : absl::MakeConstSpan(rows.top).subspan(i * tops, tops)) {
        if (top.token != kNoToken) token.top.push_back(top);
      }
      --missing_;
    }
  }
}

}  // namespace stagecoach
