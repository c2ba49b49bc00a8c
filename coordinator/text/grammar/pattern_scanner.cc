#include "coordinator/text/grammar/pattern_scanner.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/shown_text.h"
#include "common/base/status_macros.h"
#include "coordinator/text/utf8.h"

namespace stagecoach {
namespace {

bool IsDecimalDigit(char byte) { return absl::ascii_isdigit(static_cast<unsigned char>(byte)); }
bool IsBlankInBraces(char byte) { return byte == ' ' || byte == '\t'; }

}  // namespace

absl::Status PatternScanner::CheckText() const {
  if (text_.size() > kMostGrammarTextBytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat(what_, ": ", text_.size(), " bytes long, at most ", kMostGrammarTextBytes, " are allowed"));
  }
  for (size_t at = 0; at < text_.size();) {
    const DecodedChar next = DecodeUtf8(text_, at);
    if (next.bytes == 1 && next.code_point == kReplacementCharacter) return ErrorAt(at, "this is no UTF-8");
    at += next.bytes;
  }
  return absl::OkStatus();
}

bool PatternScanner::Try(absl::string_view mark) {
  if (!absl::StartsWith(text_.substr(position_), mark)) return false;
  position_ += mark.size();
  return true;
}

uint32_t PatternScanner::Next() {
  const DecodedChar next = DecodeUtf8(text_, position_);
  position_ += next.bytes;
  return next.code_point;
}

absl::string_view PatternScanner::While(bool (*belongs)(char)) {
  const size_t begin = position_;
  while (PeekIs(belongs)) ++position_;
  return text_.substr(begin, position_ - begin);
}

absl::StatusOr<uint32_t> PatternScanner::ReadHex(int digits) {
  uint32_t value = 0;
  for (int i = 0; i < digits; ++i, ++position_) {
    const char digit = absl::ascii_tolower(static_cast<unsigned char>(Peek()));
    const size_t index = absl::string_view("0123456789abcdef").find(digit);
    if (AtEnd() || index == absl::string_view::npos) {
      return Error(absl::StrCat("expected ", digits, " hexadecimal digits"));
    }
    value = value * 16 + static_cast<uint32_t>(index);
  }
  if (value > CodePointSet::kLast) return Error("expected a character up to 10FFFF");
  return value;
}

absl::StatusOr<int> PatternScanner::ReadCount() {
  const size_t begin = position_;
  int count = 0;
  for (const char digit : While(IsDecimalDigit)) count = std::min(count * 10 + (digit - '0'), kMostRepeats + 1);
  if (count <= kMostRepeats) return count;
  return ErrorAt(begin, absl::StrCat("expected a count up to ", kMostRepeats));
}

absl::StatusOr<std::optional<PatternScanner::Bounds>> PatternScanner::ReadQuantifier(bool blanks) {
  if (Try("*")) return Bounds{0, kUnbounded};
  if (Try("+")) return Bounds{1, kUnbounded};
  if (Try("?")) return Bounds{0, 1};
  if (Peek() != '{') return std::nullopt;
  size_t ahead = 1;
  while (blanks && IsBlankInBraces(Peek(ahead))) ++ahead;
  if (Peek(ahead) == ',') return Error("expected a count before the ',', as in {0,5}");
  if (!IsDecimalDigit(Peek(ahead))) return std::nullopt;
  const size_t begin = position_;
  position_ += ahead;
  const auto skip_blanks = [&] {
    if (blanks) While(IsBlankInBraces);
  };
  Bounds bounds;
  ASSIGN_OR_RETURN(bounds.min, ReadCount());
  bounds.max = bounds.min;
  skip_blanks();
  if (Try(",")) {
    skip_blanks();
    bounds.max = kUnbounded;
    if (PeekIs(IsDecimalDigit)) {
      ASSIGN_OR_RETURN(bounds.max, ReadCount());
    }
    skip_blanks();
  }
  if (!Try("}")) return Error("expected '}' after a count");
  if (bounds.max != kUnbounded && bounds.max < bounds.min) {
    return ErrorAt(begin, "expected the larger count after the smaller one");
  }
  return bounds;
}

absl::StatusOr<CodePointSet> PatternScanner::ReadClassItem(EscapeReader read_escape) {
  if (AtEnd()) return Error("expected ']' at the end of a class");
  if (Try("\\")) return read_escape();
  return CodePointSet::One(Next());
}

absl::StatusOr<CodePointSet> PatternScanner::ReadClass(EscapeReader read_escape) {
  const bool negated = Try("^");
  if (Peek() == ']') return Error("expected a character in a class; write \\] for ']'");
  std::vector<CodePointRange> ranges;
  while (!Try("]")) {
    const size_t begin = position_;
    ASSIGN_OR_RETURN(const CodePointSet item, ReadClassItem(read_escape));
    if (!item.IsOne() || Peek() != '-' || Peek(1) == ']' || Peek(1) == '\0') {
      ranges.insert(ranges.end(), item.ranges().begin(), item.ranges().end());
      continue;
    }
    Try("-");
    ASSIGN_OR_RETURN(const CodePointSet last, ReadClassItem(read_escape));
    if (!last.IsOne() || last.ranges()[0].first < item.ranges()[0].first) {
      return ErrorAt(begin, "expected a range from one character up to another");
    }
    ranges.push_back({item.ranges()[0].first, last.ranges()[0].first});
  }
  const CodePointSet set(std::move(ranges));
  return negated ? set.Complement() : set;
}

absl::Status PatternScanner::ErrorAt(size_t position, absl::string_view message) const {
  const absl::string_view before = text_.substr(0, position);
  const size_t line_begin = before.rfind('\n') == absl::string_view::npos ? 0 : before.rfind('\n') + 1;
  std::string place = absl::StrCat("character ", CodePoints(before.substr(line_begin)) + 1);
  if (absl::StrContains(text_, '\n')) {
    place = absl::StrCat("line ", std::count(before.begin(), before.end(), '\n') + 1, ", ", place);
  }
  const absl::string_view rest = text_.substr(position);
  const std::string found = rest.empty() ? "the end" : ShownText(rest.substr(0, DecodeUtf8(text_, position).bytes));
  return absl::InvalidArgumentError(absl::StrCat(what_, ": ", message, ", at ", place, " (", found, ")"));
}

}  // namespace stagecoach
