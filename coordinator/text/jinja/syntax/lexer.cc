#include "coordinator/text/jinja/syntax/lexer.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/shown_text.h"
#include "common/base/status_macros.h"
#include "coordinator/text/jinja/syntax/literals.h"
#include "coordinator/text/jinja/values/characters.h"
#include "coordinator/text/unicode_tables.h"
#include "coordinator/text/utf8.h"

namespace stagecoach::jinja {
namespace {

// Longest first.
constexpr absl::string_view kOperators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
                                            "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};

bool IsAnyOf(char c, absl::string_view set) { return set.find(c) != absl::string_view::npos; }

class Lexer {
 public:
  explicit Lexer(absl::string_view source) : source_(source) {}

  absl::StatusOr<std::vector<Token>> Run() {
    while (position_ < source_.size()) RETURN_IF_ERROR(TextAndTag());
    Push(Token::Kind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  using Kind = Token::Kind;

  absl::string_view Rest() const { return source_.substr(position_); }

  Token& Push(Kind kind, absl::string_view text) {
    tokens_.push_back(Token{kind, line_, std::string(text)});
    return tokens_.back();
  }

  // Goes on to `position`, counting lines.
  void MoveTo(size_t position) {
    line_ += static_cast<int>(std::count(source_.begin() + position_, source_.begin() + position, '\n'));
    position_ = position;
  }

  // Where the next "{{", "{%" or "{#" begins; the source's end when there is none.
  size_t NextTag() const {
    for (size_t at = source_.find('{', position_); at != absl::string_view::npos; at = source_.find('{', at + 1)) {
      if (at + 1 < source_.size() && IsAnyOf(source_[at + 1], "{%#")) return at;
    }
    return source_.size();
  }

  // How many bytes of the text before a tag stay. `sign` is what follows the tag's two characters.
  size_t KeptBefore(absl::string_view text, char sign, bool is_variable) const {
    if (sign == '-') return SizeWithoutTrailingSpace(text);
    if (sign == '+' || is_variable) return text.size();
    const size_t last_line_end = text.rfind('\n');
    const size_t line_start = last_line_end == absl::string_view::npos ? 0 : last_line_end + 1;
    const bool starts_line = line_start > 0 || at_line_start_;
    return starts_line && SkipWhiteSpace(text, line_start) == text.size() ? line_start : text.size();
  }

  // The text up to the next tag, and that tag.
  absl::Status TextAndTag() {
    const size_t tag = NextTag();
    const absl::string_view text = source_.substr(position_, tag - position_);
    if (tag == source_.size()) {
      PushText(text, text.size(), tag);
      return absl::OkStatus();
    }
    const char kind = source_[tag + 1];
    size_t content = tag + 2;
    const char sign = content < source_.size() && IsAnyOf(source_[content], "-+") ? source_[content++] : ' ';
    PushText(text, KeptBefore(text, sign, kind == '{'), tag);
    if (kind == '#') return Comment(content);
    if (kind == '%') {
      if (const size_t raw = EndOfRawBegin(content); raw > 0) return RawText(raw);
    }
    Push(kind == '{' ? Kind::kVariableBegin : Kind::kBlockBegin, source_.substr(tag, 2));
    MoveTo(content);
    return InsideTag(kind == '{');
  }

  void PushText(absl::string_view text, size_t kept, size_t next) {
    if (kept > 0) Push(Kind::kText, text.substr(0, kept));
    MoveTo(next);
  }

  // After a tag of blocks or comments, whose closing characters end at `end`; `sign` is what is before them.
  void CloseTag(size_t end, char sign) {
    if (sign == '-') {
      end = SkipWhiteSpace(source_, end);
    } else if (sign != '+' && end < source_.size() && source_[end] == '\n') {
      ++end;
    }
    MoveTo(end);
    at_line_start_ = source_[end - 1] == '\n';
  }

  absl::Status Comment(size_t content) {
    const size_t end = source_.find("#}", content);
    if (end == absl::string_view::npos) return ErrorAt(line_, "the comment has no end '#}'");
    CloseTag(end + 2, end > content ? source_[end - 1] : ' ');
    return absl::OkStatus();
  }

  // When the tag whose content begins at `content` is {% raw %}: where its text begins; else 0.
  size_t EndOfRawBegin(size_t content) const {
    const size_t name = SkipWhiteSpace(source_, content);
    if (!absl::StartsWith(source_.substr(name), "raw")) return 0;
    const absl::string_view end = source_.substr(SkipWhiteSpace(source_, name + 3));
    if (absl::StartsWith(end, "%}")) return source_.size() - end.size() + 2;
    return absl::StartsWith(end, "-%}") ? SkipWhiteSpace(source_, source_.size() - end.size() + 3) : 0;
  }

  absl::Status RawText(size_t begin) {
    const int line = line_;
    MoveTo(begin);
    at_line_start_ = false;
    for (size_t tag = source_.find("{%", begin); tag != absl::string_view::npos; tag = source_.find("{%", tag + 1)) {
      size_t content = tag + 2;
      const char sign = content < source_.size() && IsAnyOf(source_[content], "-+") ? source_[content++] : ' ';
      const size_t name = SkipWhiteSpace(source_, content);
      if (!absl::StartsWith(source_.substr(name), "endraw")) continue;
      size_t end = SkipWhiteSpace(source_, name + 6);
      const char end_sign = end < source_.size() && IsAnyOf(source_[end], "-+") ? source_[end++] : ' ';
      if (!absl::StartsWith(source_.substr(end), "%}")) continue;
      const absl::string_view text = source_.substr(begin, tag - begin);
      PushText(text, KeptBefore(text, sign, /*is_variable=*/false), tag);
      CloseTag(end + 2, end_sign);
      return absl::OkStatus();
    }
    return ErrorAt(line, "'raw' has no 'endraw'");
  }

  absl::Status InsideTag(bool is_variable) {
    const int line = line_;
    std::string open;  // the brackets that are open
    for (;;) {
      MoveTo(SkipWhiteSpace(source_, position_));
      if (position_ == source_.size()) return ErrorAt(line, is_variable ? "'{{' has no '}}'" : "'{%' has no '%}'");
      if (open.empty() && TagEnds(is_variable)) return absl::OkStatus();
      RETURN_IF_ERROR(OneToken(&open));
    }
  }

  bool TagEnds(bool is_variable) {
    size_t end = position_;
    char sign = ' ';
    if (source_[end] == '-' || (source_[end] == '+' && !is_variable)) sign = source_[end++];
    if (!absl::StartsWith(source_.substr(end), is_variable ? "}}" : "%}")) return false;
    Push(is_variable ? Kind::kVariableEnd : Kind::kBlockEnd, source_.substr(end, 2));
    end += 2;
    if (!is_variable) {
      CloseTag(end, sign);
      return true;
    }
    MoveTo(sign == '-' ? SkipWhiteSpace(source_, end) : end);
    at_line_start_ = source_[position_ - 1] == '\n';
    return true;
  }

  absl::Status OneToken(std::string* open) {
    const char c = source_[position_];
    if (c >= '0' && c <= '9') return Number();
    if (c == '\'' || c == '"') return StringLiteral(c);
    if (const size_t bytes = NameBytes(); bytes > 0) {
      Push(Kind::kName, Rest().substr(0, bytes));
      position_ += bytes;
      return absl::OkStatus();
    }
    for (const absl::string_view op : kOperators) {
      if (!absl::StartsWith(Rest(), op)) continue;
      RETURN_IF_ERROR(CountBrackets(op[0], open));
      Push(Kind::kOperator, op);
      position_ += op.size();
      return absl::OkStatus();
    }
    return ErrorAt(line_,
                   absl::StrCat("unexpected character '", Rest().substr(0, DecodeUtf8(source_, position_).bytes), "'"));
  }

  absl::Status CountBrackets(char c, std::string* open) const {
    if (IsAnyOf(c, "([{")) open->push_back(c);
    if (!IsAnyOf(c, ")]}")) return absl::OkStatus();
    if (open->empty()) return ErrorAt(line_, absl::StrCat("unexpected '", std::string(1, c), "'"));
    const char expected = open->back() == '(' ? ')' : open->back() == '[' ? ']' : '}';
    if (c != expected) {
      return ErrorAt(line_,
                     absl::StrCat("unexpected '", std::string(1, c), "', expected '", std::string(1, expected), "'"));
    }
    open->pop_back();
    return absl::OkStatus();
  }

  size_t NameBytes() const {
    size_t end = position_;
    while (end < source_.size()) {
      const DecodedChar next = DecodeUtf8(source_, end);
      const CharClass kind = ClassOf(next.code_point);
      if (next.code_point != '_' && kind != CharClass::kLetter && kind != CharClass::kNumber) break;
      end += next.bytes;
    }
    return end - position_;
  }

  absl::Status Number() {
    const bool after_dot = position_ > 0 && source_[position_ - 1] == '.';
    const size_t float_bytes = after_dot ? 0 : FloatBytes(Rest());
    if (float_bytes > 0) {
      Push(Kind::kFloat, Rest().substr(0, float_bytes)).real = ParseFloat(Rest().substr(0, float_bytes));
      position_ += float_bytes;
      return absl::OkStatus();
    }
    const size_t bytes = IntegerBytes(Rest());
    const absl::string_view text = Rest().substr(0, bytes);
    Integer value = 0;
    if (!ParseInteger(text, &value)) return ErrorAt(line_, absl::StrCat("the number ", CutText(text), " is too large"));
    Push(Kind::kInteger, text).integer = value;
    position_ += bytes;
    return absl::OkStatus();
  }

  absl::Status StringLiteral(char quote) {
    size_t end = position_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) return ErrorAt(line_, "a string has no end");
    absl::StatusOr<std::string> text = Unescaped(source_.substr(position_ + 1, end - position_ - 1));
    if (!text.ok()) return ErrorAt(line_, text.status().message());
    Push(Kind::kString, *text);
    MoveTo(end + 1);
    return absl::OkStatus();
  }

  const absl::string_view source_;
  size_t position_ = 0;
  int line_ = 1;
  bool at_line_start_ = true;  // whether what was read last ended with a line
  std::vector<Token> tokens_;
};

}  // namespace

std::string Describe(const Token& token) {
  switch (token.kind) {
    case Token::Kind::kText: return "text";
    case Token::Kind::kEnd: return "the end of the template";
    case Token::Kind::kString: return "a string";
    default: return ShownText(token.text);
  }
}

absl::StatusOr<std::vector<Token>> Tokenize(absl::string_view source) { return Lexer(source).Run(); }

std::string NormalizedSource(absl::string_view source) {
  std::string normalized;
  normalized.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r' && i + 1 < source.size() && source[i + 1] == '\n') continue;
    normalized.push_back(source[i] == '\r' ? '\n' : source[i]);
  }
  if (absl::EndsWith(normalized, "\n")) normalized.pop_back();
  return normalized;
}

absl::Status ErrorAt(int line, absl::string_view message) {
  return absl::InvalidArgumentError(absl::StrCat("line ", line, ": ", message));
}

}  // namespace stagecoach::jinja
