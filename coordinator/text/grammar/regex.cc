#include "coordinator/text/grammar/regex.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "coordinator/text/grammar/pattern_scanner.h"

namespace stagecoach {
namespace {

// What \d, \w or \s stand for. Readers of patterns differ: ECMAScript goes by ASCII, mostly, and Python by Unicode.
struct RegexKind {
  CodePointSet narrow;  // all readers take it for such
  CodePointSet wide;    // some do
};

const RegexKind& RegexKindOf(char letter) {
  constexpr CodePointRange kBeyondAscii = {0x80, CodePointSet::kLast};
  static const auto* const kDigit = new RegexKind{{{'0', '9'}}, {{'0', '9'}, kBeyondAscii}};
  static const auto* const kWord = new RegexKind{{{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}},
                                                 {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}, kBeyondAscii}};
  static const auto* const kSpace = new RegexKind{{{'\t', '\r'}, {' ', ' '}},
                                                  {{'\t', '\r'},
                                                   {0x1C, ' '},
                                                   {0x85, 0x85},
                                                   {0xA0, 0xA0},
                                                   {0x1680, 0x1680},
                                                   {0x2000, 0x200A},
                                                   {0x2028, 0x2029},
                                                   {0x202F, 0x202F},
                                                   {0x205F, 0x205F},
                                                   {0x3000, 0x3000},
                                                   {0xFEFF, 0xFEFF}}};
  return letter == 'd' ? *kDigit : letter == 'w' ? *kWord : *kSpace;
}

const CodePointSet& RegexLineEnds() {
  static const auto* const kSet = new CodePointSet{{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};
  return *kSet;
}

bool IsHighSurrogate(uint32_t value) { return value >= 0xD800 && value < 0xDC00; }
bool IsLowSurrogate(uint32_t value) { return value >= 0xDC00 && value < 0xE000; }

bool IsGroupNameByte(char byte) { return absl::ascii_isalnum(static_cast<unsigned char>(byte)) || byte == '_'; }

// Counts of characters, kUnbounded among them, that stay where they can be added and multiplied.
int64_t BoundedCharacters(int64_t count) { return std::min<int64_t>(count, int64_t{1} << 30); }
int64_t AddCharacters(int64_t a, int64_t b) {
  return a == kUnbounded || b == kUnbounded ? kUnbounded : BoundedCharacters(a + b);
}
int64_t MultiplyCharacters(int64_t a, int64_t b) {
  if (a == 0 || b == 0) return 0;
  return a == kUnbounded || b == kUnbounded ? kUnbounded : BoundedCharacters(a * b);
}

class RegexReader {
 public:
  RegexReader(absl::string_view pattern, CharacterWriter write, GrammarRules* rules)
      : scanner_("pattern", pattern), write_(write), rules_(*rules) {}

  absl::StatusOr<RegexExpr> ReadAll() {
    RETURN_IF_ERROR(scanner_.CheckText());
    ASSIGN_OR_RETURN(RegexExpr all, ReadAlternatives(0));
    if (!scanner_.AtEnd()) return scanner_.Error("expected '(' before ')'");
    return all;
  }

 private:
  absl::StatusOr<RegexExpr> ReadAlternatives(int depth);
  absl::StatusOr<RegexExpr> ReadSequence(int depth);
  absl::StatusOr<RegexExpr> ReadAtom(int depth);
  absl::StatusOr<RegexExpr> ReadGroup(int depth);
  struct Class {  // that is being read
    bool negated = false;
    std::string kinds;  // of d, D, w, W, s and S those that stand in it
  };
  absl::StatusOr<RegexExpr> ReadClass();
  absl::StatusOr<CodePointSet> ReadEscape(Class* in_class);  // null: in none
  static CodePointSet CharactersOfKind(char letter, Class* in_class);
  absl::StatusOr<CodePointSet> ReadUnicodeEscape();
  absl::StatusOr<RegexExpr> Repeated(const RegexExpr& atom);
  RegexExpr Character(const CodePointSet& set) { return {write_(set), 1, 1}; }

  PatternScanner scanner_;
  const CharacterWriter write_;
  GrammarRules& rules_;
  bool at_start_ = true;              // nothing has been matched before the present place
  std::optional<size_t> end_anchor_;  // a $ that has been read: nothing may follow
  int anchors_ = 0;                   // so far
};

absl::StatusOr<RegexExpr> RegexReader::ReadAlternatives(int depth) {
  if (depth > kMostGroupDepth) {
    return scanner_.Error(absl::StrCat("expected at most ", kMostGroupDepth, " groups within each other"));
  }
  const bool at_start = at_start_;
  std::optional<size_t> end_anchor;
  RegexExpr all{0, std::numeric_limits<int64_t>::max(), 0};
  std::vector<ExprId> alternatives;
  do {
    at_start_ = at_start;
    end_anchor_.reset();
    ASSIGN_OR_RETURN(const RegexExpr one, ReadSequence(depth));
    alternatives.push_back(one.expr);
    all.min_characters = std::min(all.min_characters, one.min_characters);
    const bool unbounded = all.max_characters == kUnbounded || one.max_characters == kUnbounded;
    all.max_characters = unbounded ? kUnbounded : std::max(all.max_characters, one.max_characters);
    if (end_anchor_.has_value()) end_anchor = end_anchor_;
  } while (scanner_.Try("|"));
  end_anchor_ = end_anchor;
  all.expr = alternatives.size() == 1 ? alternatives[0] : rules_.Choice(alternatives);
  return all;
}

absl::StatusOr<RegexExpr> RegexReader::ReadSequence(int depth) {
  RegexExpr all{0, 0, 0};
  std::vector<ExprId> parts;
  while (!scanner_.AtEnd() && scanner_.Peek() != '|' && scanner_.Peek() != ')') {
    const size_t begin = scanner_.position();
    if (scanner_.Try("$")) {
      if (!end_anchor_.has_value()) end_anchor_ = begin;
      ++anchors_;
      continue;
    }
    if (end_anchor_.has_value()) return scanner_.ErrorAt(*end_anchor_, "expected '$' at the end alone");
    if (scanner_.Try("^")) {
      if (!at_start_) return scanner_.ErrorAt(begin, "expected '^' at the beginning alone");
      ++anchors_;
      continue;
    }
    const int anchors = anchors_;
    ASSIGN_OR_RETURN(const RegexExpr once, ReadAtom(depth));
    const size_t end = scanner_.position();
    ASSIGN_OR_RETURN(const RegexExpr atom, Repeated(once));
    if (anchors_ > anchors && scanner_.position() > end) {
      return scanner_.ErrorAt(begin, "expected a group without '^' and '$' before a repetition");
    }
    at_start_ = false;
    parts.push_back(atom.expr);
    all.min_characters = AddCharacters(all.min_characters, atom.min_characters);
    all.max_characters = AddCharacters(all.max_characters, atom.max_characters);
  }
  all.expr = parts.size() == 1 ? parts[0] : rules_.Sequence(parts);
  return all;
}

absl::StatusOr<RegexExpr> RegexReader::Repeated(const RegexExpr& atom) {
  ASSIGN_OR_RETURN(const std::optional<PatternScanner::Bounds> bounds, scanner_.ReadQuantifier());
  if (!bounds.has_value()) return atom;
  if (scanner_.Peek() == '+') return scanner_.Error("possessive repetition is not supported: leave out the '+'");
  scanner_.Try("?");
  return RegexExpr{rules_.Repeat(atom.expr, bounds->min, bounds->max),
                   MultiplyCharacters(atom.min_characters, bounds->min),
                   MultiplyCharacters(atom.max_characters, bounds->max)};
}

absl::StatusOr<RegexExpr> RegexReader::ReadAtom(int depth) {
  const size_t begin = scanner_.position();
  ASSIGN_OR_RETURN(const std::optional<PatternScanner::Bounds> bounds, scanner_.ReadQuantifier());
  if (bounds.has_value()) return scanner_.ErrorAt(begin, "expected a character or a group before a repetition");
  if (scanner_.Try("(")) return ReadGroup(depth);
  if (scanner_.Try(".")) return Character(RegexLineEnds().Complement());
  if (scanner_.Try("[")) return ReadClass();
  if (scanner_.Try("\\")) {
    ASSIGN_OR_RETURN(const CodePointSet set, ReadEscape(/*in_class=*/nullptr));
    return Character(set);
  }
  return Character(CodePointSet::One(scanner_.Next()));
}

// After '('.
absl::StatusOr<RegexExpr> RegexReader::ReadGroup(int depth) {
  const size_t begin = scanner_.position() - 1;
  if (scanner_.Try("?") && !scanner_.Try(":")) {
    scanner_.Try("P");
    if (scanner_.Try("=") || scanner_.Try("!") || scanner_.Try("<=") || scanner_.Try("<!")) {
      return scanner_.ErrorAt(begin, "look-around is not supported: write out the texts that match");
    }
    if (!scanner_.Try("<") || scanner_.While(IsGroupNameByte).empty() || !scanner_.Try(">")) {
      return scanner_.ErrorAt(begin,
                              "expected a group as '(...)', '(?:...)' or '(?<name>...)'; flags are not supported");
    }
  }
  ASSIGN_OR_RETURN(const RegexExpr group, ReadAlternatives(depth + 1));
  if (!scanner_.Try(")")) return scanner_.ErrorAt(begin, "expected ')' after this group");
  return group;
}

// After '['.
absl::StatusOr<RegexExpr> RegexReader::ReadClass() {
  Class read = {.negated = scanner_.Peek() == '^', .kinds = ""};
  ASSIGN_OR_RETURN(CodePointSet set, scanner_.ReadClass([&] { return ReadEscape(&read); }));
  for (const absl::string_view pair : {"dD", "wW", "sS"}) {
    const bool both = read.kinds.find(pair[0]) != std::string::npos && read.kinds.find(pair[1]) != std::string::npos;
    if (both) set = read.negated ? CodePointSet() : CodePointSet().Complement();  // on this all readers agree
  }
  return Character(set);
}

// What is written is to fit, whoever reads it.
CodePointSet RegexReader::CharactersOfKind(char letter, Class* in_class) {
  if (in_class != nullptr) in_class->kinds.push_back(letter);
  const bool complement = letter < 'a', negated = in_class != nullptr && in_class->negated;
  const RegexKind& kind = RegexKindOf(absl::ascii_tolower(static_cast<unsigned char>(letter)));
  const CodePointSet& set = complement != negated ? kind.wide : kind.narrow;
  return complement ? set.Complement() : set;
}

// After '\'.
absl::StatusOr<CodePointSet> RegexReader::ReadEscape(Class* in_class) {
  const size_t begin = scanner_.position() - 1;
  if (scanner_.AtEnd()) return scanner_.ErrorAt(begin, "expected a character after a backslash");
  const uint32_t escaped = scanner_.Next();
  switch (escaped) {
    case 'd':
    case 'D':
    case 'w':
    case 'W':
    case 's':
    case 'S': return CharactersOfKind(static_cast<char>(escaped), in_class);
    case 't': return CodePointSet::One('\t');
    case 'n': return CodePointSet::One('\n');
    case 'r': return CodePointSet::One('\r');
    case 'f': return CodePointSet::One('\f');
    case 'v': return CodePointSet::One('\v');
    case 'x': {
      ASSIGN_OR_RETURN(const uint32_t value, scanner_.ReadHex(2));
      return CodePointSet::One(value);
    }
    case 'u': return ReadUnicodeEscape();
    case 'b':
      if (in_class != nullptr) return CodePointSet::One('\b');
      return scanner_.ErrorAt(begin, "word boundaries are not supported: write out the texts that match");
    case '0':
      if (!scanner_.PeekIs([](char next) { return next >= '0' && next <= '9'; })) return CodePointSet::One(0);
      return scanner_.ErrorAt(begin, "octal escapes are not supported: write \\xHH");
    case 'p':
    case 'P': return scanner_.ErrorAt(begin, "properties of Unicode are not supported: write a class as '[a-z]'");
    default: break;
  }
  if (escaped == 'k' || (escaped >= '1' && escaped <= '9')) {
    return scanner_.ErrorAt(begin, "back references are not regular and not supported: write out the texts that match");
  }
  if (escaped < 0x80 && absl::ascii_isalnum(static_cast<unsigned char>(escaped))) {
    return scanner_.ErrorAt(begin, "there is no such escape");
  }
  return CodePointSet::One(escaped);
}

// After "\u".
absl::StatusOr<CodePointSet> RegexReader::ReadUnicodeEscape() {
  const size_t begin = scanner_.position() - 2;
  uint32_t value = 0;
  if (scanner_.Try("{")) {
    const absl::string_view digits =
        scanner_.While([](char byte) { return absl::ascii_isxdigit(static_cast<unsigned char>(byte)); });
    const bool fits = absl::SimpleHexAtoi(digits, &value) && value <= CodePointSet::kLast;
    if (!fits || !scanner_.Try("}")) return scanner_.ErrorAt(begin, "expected \\u{H} with a character up to 10FFFF");
  } else {
    ASSIGN_OR_RETURN(value, scanner_.ReadHex(4));
    if (IsHighSurrogate(value) && scanner_.Try("\\u")) {
      ASSIGN_OR_RETURN(const uint32_t low, scanner_.ReadHex(4));
      if (!IsLowSurrogate(low)) return scanner_.ErrorAt(begin, "expected the second half of a pair of surrogates");
      value = 0x10000 + ((value - 0xD800) << 10) + (low - 0xDC00);
    }
  }
  if (IsHighSurrogate(value) || IsLowSurrogate(value)) {
    return scanner_.ErrorAt(begin, "half a pair of surrogates is no character");
  }
  return CodePointSet::One(value);
}

}  // namespace

absl::StatusOr<RegexExpr> AddRegex(absl::string_view pattern, CharacterWriter write, GrammarRules* rules) {
  return RegexReader(pattern, write, rules).ReadAll();
}

absl::StatusOr<RegexExpr> AddPlainRegex(absl::string_view pattern, GrammarRules* rules) {
  return AddRegex(
      pattern, [rules](const CodePointSet& characters) { return rules->CodePoints(characters); }, rules);
}

}  // namespace stagecoach
