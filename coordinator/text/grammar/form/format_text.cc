#include "coordinator/text/grammar/form/format_text.h"

#include <cstddef>

namespace stagecoach {

ExprId FormatText::Exactly(absl::string_view text) const {
  std::vector<ExprId> parts;
  for (const TokenId token : tokenizer_.Encode(text, /*add_special=*/false, /*parse_special=*/true)) {
    if (!tokenizer_.TokenBytes(token, /*render_control=*/false).empty()) continue;
    const std::string mark = tokenizer_.TokenBytes(token, /*render_control=*/true);
    const size_t at = text.find(mark);
    if (mark.empty() || at == absl::string_view::npos) continue;
    if (at > 0) parts.push_back(rules_.Literal(text.substr(0, at)));
    parts.push_back(rules_.Token(token));
    text.remove_prefix(at + mark.size());
  }
  if (!text.empty() || parts.empty()) parts.push_back(rules_.Literal(text));
  return parts.size() == 1 ? parts[0] : rules_.Sequence(parts);
}

bool FormatText::HasControl(absl::string_view text) const {
  return rules_.expr(Exactly(text)).kind != GrammarRules::Expr::Kind::kLiteral;
}

ExprId FormatText::Before(absl::string_view mark, const std::vector<std::string>& others) const {
  std::vector<std::string> marks = others;
  marks.emplace_back(mark);
  return rules_.TextWithout(marks);
}

ExprId FormatText::UpTo(absl::string_view mark, const std::vector<std::string>& others) const {
  if (!HasControl(mark)) return rules_.TextUntil(mark, others);
  return rules_.Sequence({Before(mark, others), Exactly(mark)});
}

}  // namespace stagecoach
