#include "coordinator/text/grammar/json/json_rules.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/check.h"
#include "common/json/json_value.h"

namespace stagecoach {
namespace {

constexpr int kMostDigits = 18;
constexpr int kMostFractionDigits = 20;
constexpr int kMostIndent = 20;

ByteSet JsonBytes(absl::string_view bytes) {
  ByteSet set;
  for (const char byte : bytes) set.set(static_cast<unsigned char>(byte));
  return set;
}

ByteSet JsonDigits(char first, char last) {
  ByteSet set;
  for (char digit = first; digit <= last; ++digit) set.set(static_cast<unsigned char>(digit));
  return set;
}

bool IsAll(char digit, absl::string_view digits) { return digits.find_first_not_of(digit) == absl::string_view::npos; }

CodePointSet JsonCharactersWithout(absl::string_view spared) {
  CodePointSet set = {{' ', '!'}, {'#', '['}, {']', 0xD7FF}, {0xE000, CodePointSet::kLast}};
  for (const char sign : spared) set = set.Without(CodePointSet::One(static_cast<unsigned char>(sign)));
  return set;
}

// Digits of a number, of which two texts of one length are given.
class DigitRules {
 public:
  explicit DigitRules(GrammarRules* rules) : rules_(*rules) {}

  // From `min` to `max`, which are of one length and ascending. may_end: also with zeros at the end left out, but not
  // all digits.
  ExprId Between(absl::string_view min, absl::string_view max, bool may_end) {
    const int digits = static_cast<int>(min.size());
    if (IsAll('0', min) && IsAll('9', max)) {
      return rules_.Repeat(rules_.Class(JsonDigits('0', '9')), may_end ? std::min(digits, 1) : digits, digits);
    }
    const auto from = [&](char first, char last, absl::string_view min_rest, absl::string_view max_rest) {
      const ExprId rest = Between(min_rest, max_rest, may_end);
      const bool or_none = may_end && IsAll('0', min_rest);
      return rules_.Sequence({rules_.Class(JsonDigits(first, last)), or_none ? rules_.Repeat(rest, 0, 1) : rest});
    };
    const absl::string_view min_rest = min.substr(1), max_rest = max.substr(1);
    if (min[0] == max[0]) return from(min[0], min[0], min_rest, max_rest);
    // Between these any rest will do.
    const char low = static_cast<char>(min[0] + (IsAll('0', min_rest) ? 0 : 1));
    const char high = static_cast<char>(max[0] - (IsAll('9', max_rest) ? 0 : 1));
    const std::string zeros(min_rest.size(), '0'), nines(min_rest.size(), '9');
    std::vector<ExprId> ways;
    if (min[0] < low) ways.push_back(from(min[0], min[0], min_rest, nines));
    if (low <= high) ways.push_back(from(low, high, zeros, nines));
    if (high < max[0]) ways.push_back(from(max[0], max[0], zeros, max_rest));
    return rules_.Choice(ways);
  }

  // Numbers of any length from `min` to `max`, both 0 or more.
  ExprId Natural(int64_t min, int64_t max) {
    const std::string most = absl::StrCat(max);
    std::vector<ExprId> ways;
    for (size_t digits = absl::StrCat(min).size(); digits <= most.size(); ++digits) {
      const std::string least = digits == 1 ? "0" : absl::StrCat("1", std::string(digits - 1, '0'));
      const std::string greatest(digits, '9');
      const std::string first = absl::StrCat(min).size() == digits ? absl::StrCat(min) : least;
      ways.push_back(Between(first, digits == most.size() ? most : greatest, /*may_end=*/false));
    }
    return rules_.Choice(ways);
  }

  // The same in units of the last of kBoundedFraction digits behind the point.
  ExprId Decimal(int64_t min, int64_t max) {
    constexpr int64_t kOne = 1'000'000;
    static_assert(JsonRules::kBoundedFraction == 6);
    const int64_t first = min / kOne, last = max / kOne;
    const auto from = [&](int64_t least, int64_t most, int64_t min_fraction, int64_t max_fraction) {
      return rules_.Sequence({Natural(least, most), Fraction(min_fraction, max_fraction)});
    };
    if (first == last) return from(first, last, min % kOne, max % kOne);
    std::vector<ExprId> ways = {from(first, first, min % kOne, kOne - 1), from(last, last, 0, max % kOne)};
    if (first + 1 < last) ways.push_back(from(first + 1, last - 1, 0, kOne - 1));
    return rules_.Choice(ways);
  }

 private:
  ExprId Fraction(int64_t min, int64_t max) {
    const auto digits = [](int64_t value) { return absl::StrCat(absl::Dec(value, absl::kZeroPad6)); };
    const ExprId some = rules_.Sequence({rules_.Literal("."), Between(digits(min), digits(max), /*may_end=*/true)});
    return min == 0 ? rules_.Repeat(some, 0, 1) : some;
  }

  GrammarRules& rules_;
};

// With a sign those below 0, which is not among them.
ExprId WithSign(int64_t min, int64_t max, absl::FunctionRef<ExprId(int64_t min, int64_t max)> natural,
                GrammarRules* rules) {
  std::vector<ExprId> ways;
  if (min < 0 && min <= max) {
    ways.push_back(rules->Sequence({rules->Literal("-"), natural(std::max<int64_t>(-max, 1), -min)}));
  }
  if (max >= 0 && min <= max) ways.push_back(natural(std::max<int64_t>(min, 0), max));
  return rules->Choice(ways);
}

}  // namespace

JsonRules::JsonRules(GrammarRules* rules, absl::string_view spared)
    : rules_(*rules), spared_(spared), without_escape_(JsonCharactersWithout(spared)) {}

ExprId JsonRules::RuleOf(const std::string& name, absl::FunctionRef<ExprId()> make) {
  const auto [rule, is_new] = made_.try_emplace(name, -1);
  if (is_new) {
    rule->second = rules_.Declare(name);
    rules_.Define(rule->second, make());  // which may call it
  }
  return rules_.Call(rule->second);
}

ExprId JsonRules::Space() {
  if (space_ >= 0) return space_;
  const ExprId indent = RuleOf("indent", [this] {
    const ExprId blanks = rules_.Repeat(rules_.Class(JsonBytes(" \t")), 0, kMostIndent);
    return rules_.Sequence({rules_.Literal("\n"), blanks});
  });
  return space_ = rules_.Choice({rules_.Literal(""), rules_.Literal(" "), indent});
}

ExprId JsonRules::Comma() {
  if (comma_ < 0) comma_ = rules_.Sequence({Space(), rules_.Literal(","), Space()});
  return comma_;
}

ExprId JsonRules::Enclosed(absl::string_view open, ExprId content, absl::string_view close, bool or_empty) {
  const ExprId inside = rules_.Sequence({content, Space()});
  return rules_.Sequence({rules_.Literal(open), Space(), or_empty ? Optional(inside) : inside, rules_.Literal(close)});
}

ExprId JsonRules::Member(ExprId key, ExprId value) {
  return rules_.Sequence({key, Space(), rules_.Literal(":"), Space(), value});
}

ExprId JsonRules::List(absl::string_view open, ExprId item, absl::string_view close) {
  const ExprId more = rules_.Repeat(rules_.Sequence({Comma(), item}), 0);
  return Enclosed(open, rules_.Sequence({item, more}), close, /*or_empty=*/true);
}

ExprId JsonRules::Value() {
  return RuleOf("value", [this] {
    // Not by their rules: each object or list within another costs one call that way.
    return rules_.Choice(
        {List("{", Member(String(), Value()), "}"), List("[", Value(), "]"), String(), Number(), Boolean(), Null()});
  });
}

ExprId JsonRules::Object() {
  return RuleOf("object", [this] { return List("{", Member(String(), Value()), "}"); });
}

ExprId JsonRules::Boolean() { return rules_.Choice({rules_.Literal("true"), rules_.Literal("false")}); }

ExprId JsonRules::Number() {
  return RuleOf("number", [this] {
    const auto digits = [this](int min, int max) {
      return rules_.Repeat(rules_.Class(JsonDigits('0', '9')), min, max);
    };
    const ExprId whole = rules_.Choice(
        {rules_.Literal("0"), rules_.Sequence({rules_.Class(JsonDigits('1', '9')), digits(0, kMostDigits - 1)})});
    const ExprId fraction = rules_.Sequence({rules_.Literal("."), digits(1, kMostFractionDigits)});
    const ExprId exponent = rules_.Sequence(
        {rules_.Class(JsonBytes("eE")), rules_.Choice({rules_.Sequence({Optional(rules_.Literal("+")), digits(1, 2)}),
                                                       rules_.Sequence({rules_.Literal("-"), digits(1, 3)})})});
    return rules_.Sequence({Optional(rules_.Literal("-")), whole, Optional(fraction), Optional(exponent)});
  });
}

ExprId JsonRules::Integer(int64_t min, int64_t max) {
  CHECK(min >= -kMostInteger && max <= kMostInteger);
  return RuleOf(absl::StrCat("integer from ", min, " to ", max), [&] {
    DigitRules digits(&rules_);
    return WithSign(
        min, max, [&](int64_t first, int64_t last) { return digits.Natural(first, last); }, &rules_);
  });
}

ExprId JsonRules::BoundedNumber(int64_t min, int64_t max) {
  CHECK(min >= -kMostInteger && max <= kMostInteger);
  return RuleOf(absl::StrCat("number from ", min, " to ", max), [&] {
    DigitRules digits(&rules_);
    return WithSign(
        min, max, [&](int64_t first, int64_t last) { return digits.Decimal(first, last); }, &rules_);
  });
}

std::string JsonRules::WithoutSpared(std::string json) const {
  for (const char sign : spared_) {
    const std::string escape = absl::StrCat("\\u", absl::Hex(static_cast<unsigned char>(sign), absl::kZeroPad4));
    absl::StrReplaceAll({{absl::string_view(&sign, 1), escape}}, &json);
  }
  return json;
}

ExprId JsonRules::AnyCharacter() {
  const ExprId hex = rules_.Class(JsonBytes("0123456789abcdefABCDEF"));
  const auto surrogate = [&](absl::string_view second) {
    return rules_.Sequence({rules_.Class(JsonBytes("dD")), rules_.Class(JsonBytes(second)), hex, hex});
  };
  const ExprId other = rules_.Sequence({rules_.Class(JsonBytes("0123456789abcefABCEF")), hex, hex, hex});
  const ExprId pair = rules_.Sequence({surrogate("89abAB"), rules_.Literal("\\u"), surrogate("cdefCDEF")});
  const ExprId unicode = rules_.Sequence({rules_.Literal("u"), rules_.Choice({other, surrogate("01234567"), pair})});
  const ExprId escape = rules_.Choice({rules_.Class(JsonBytes("\"\\/bfnrt")), unicode});
  return rules_.Choice({rules_.CodePoints(CharactersWithoutEscape()), rules_.Sequence({rules_.Literal("\\"), escape})});
}

// Where they are counted, each of them is a call: it has some twenty states.
ExprId JsonRules::Characters(int min, int max) {
  const auto any = [this] { return rules_.Repeat(AnyCharacter(), 0); };
  if (max == kUnbounded && min == 0) return any();
  return RuleOf(absl::StrCat(min, max == kUnbounded ? " or more" : absl::StrCat(" to ", max), " characters"), [&] {
    const ExprId one = RuleOf("character", [this] { return AnyCharacter(); });
    return max == kUnbounded ? rules_.Sequence({rules_.Repeat(one, min, min), any()}) : rules_.Repeat(one, min, max);
  });
}

ExprId JsonRules::Character(const CodePointSet& set) {
  const CodePointSet escaped = set.Without(CharactersWithoutEscape());
  std::vector<ExprId> ways = {rules_.CodePoints(set.Without(escaped))};
  for (uint32_t character = 0; character <= '\\'; ++character) {
    if (!escaped.Contains(character)) continue;
    const std::string quoted = WithoutSpared(JsonString(std::string(1, static_cast<char>(character))));
    ways.push_back(rules_.Literal(absl::string_view(quoted).substr(1, quoted.size() - 2)));
  }
  return rules_.Choice(ways);
}

ExprId JsonRules::String() {
  return RuleOf("string", [this] { return Quoted(Characters(0, kUnbounded)); });
}

ExprId JsonRules::Exactly(const Json& value) {
  if (!value.is_structured()) return rules_.Literal(WithoutSpared(CompactJson(value)));
  std::vector<ExprId> parts;
  for (const auto& [key, element] : value.items()) {
    if (!parts.empty()) parts.push_back(Comma());
    const ExprId exact = Exactly(element);
    parts.push_back(value.is_object() ? Member(Exactly(Json(key)), exact) : exact);
  }
  const absl::string_view open = value.is_object() ? "{" : "[", close = value.is_object() ? "}" : "]";
  if (parts.empty()) return rules_.Sequence({rules_.Literal(open), Space(), rules_.Literal(close)});
  return Enclosed(open, rules_.Sequence(parts), close, /*or_empty=*/false);
}

}  // namespace stagecoach
