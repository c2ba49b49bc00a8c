#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/base/status_macros.h"
#include "coordinator/text/jinja/access.h"
#include "coordinator/text/jinja/builtins.h"
#include "coordinator/text/jinja/characters.h"
#include "coordinator/text/jinja/string_format.h"
#include "coordinator/text/jinja/text_operations.h"
#include "coordinator/text/unicode_tables.h"
#include "coordinator/text/utf8.h"

// Python's methods of strings.

namespace stagecoach::jinja {
namespace {

const String& SelfText(const Call& call) { return *call.self.AsString(); }

template <LetterCase kTo>
absl::StatusOr<Value> CaseMethod(const Call& call) {
  return ChangeCase(call.heap, SelfText(call), kTo);
}

template <bool kLeft, bool kRight>
absl::StatusOr<Value> StripMethod(const Call& call) {
  const String* set = nullptr;
  if (call.IsSet(0)) {
    ASSIGN_OR_RETURN(set, call.StringOf(0));
  }
  return Strip(call.heap, call.self, set, StripSides{kLeft, kRight});
}

template <bool kFromRight>
absl::StatusOr<Value> SplitMethod(const Call& call) {
  const String* separator = nullptr;
  if (call.IsSet(0)) {
    ASSIGN_OR_RETURN(separator, call.StringOf(0));
  }
  ASSIGN_OR_RETURN(const Integer count, call.IntegerOr(1, -1));
  return Split(call.heap, SelfText(call), separator, count, kFromRight);
}

absl::StatusOr<Value> SplitLinesMethod(const Call& call) {
  ASSIGN_OR_RETURN(Items lines, SplitLines(call.heap, SelfText(call)));
  return call.heap.NewList(List::Kind::kList, call.self.origin(), std::move(lines));
}

absl::StatusOr<Value> ReplaceMethod(const Call& call) {
  ASSIGN_OR_RETURN(const String* part, call.StringOf(0));
  ASSIGN_OR_RETURN(const String* with, call.StringOf(1));
  ASSIGN_OR_RETURN(const Integer count, call.IntegerOr(2, -1));
  return Replace(call.heap, SelfText(call), *part, *with, count);
}

absl::StatusOr<Value> JoinMethod(const Call& call) {
  ASSIGN_OR_RETURN(const Items items, Iterate(call.heap, call.Get(0)));
  for (const Value& item : items) {
    if (item.AsString() == nullptr)
      return absl::InvalidArgumentError(absl::StrCat("'join' needs strings, not a ", TypeName(item)));
  }
  return Join(call.heap, SelfText(call).text, items);
}

// Whether the text begins, or ends, with a string, or with one of a tuple of strings.
template <bool kAtEnd>
absl::StatusOr<Value> AffixMethod(const Call& call) {
  const List* tuple = call.Get(0).AsList(List::Kind::kTuple);
  const absl::Span<const Value> affixes = tuple == nullptr ? absl::MakeConstSpan(&call.Get(0), 1) : tuple->items;
  bool found = false;
  for (const Value& value : affixes) {
    const String* affix = value.AsString();
    if (affix == nullptr && value.IsUndefined()) return absl::InvalidArgumentError(UndefinedMessage(value));
    if (affix == nullptr)
      return absl::InvalidArgumentError(absl::StrCat("a string is needed, not a ", TypeName(value)));
    RETURN_IF_ERROR(call.heap.budget().WorkOverBytes(affix->text.size()));
    found = found || (kAtEnd ? absl::EndsWith(SelfText(call).view(), affix->view())
                             : absl::StartsWith(SelfText(call).view(), affix->view()));
  }
  return Value::Bool(found);
}

template <bool kAtEnd>
absl::StatusOr<Value> RemoveAffixMethod(const Call& call) {
  ASSIGN_OR_RETURN(const String* affix, call.StringOf(0));
  const String& text = SelfText(call);
  if (kAtEnd ? !absl::EndsWith(text.view(), affix->view()) : !absl::StartsWith(text.view(), affix->view()))
    return call.self;
  return call.heap.NewString(text.text, kAtEnd ? 0 : affix->text.size(), text.text.size() - affix->text.size());
}

// Where the argument is in the text, as the byte that it begins at; npos when it is not.
absl::StatusOr<size_t> Place(const Call& call, bool last) {
  ASSIGN_OR_RETURN(const String* part, call.StringOf(0));
  const absl::string_view text = SelfText(call).view();
  RETURN_IF_ERROR(call.heap.budget().WorkOverBytes(text.size() + part->text.size()));
  if (!last) return FindText(text, part->view(), 0);
  Scratch counted(&call.heap.budget());
  RETURN_IF_ERROR(counted.Take(text.size() + part->text.size()));
  const std::string reversed_text(text.rbegin(), text.rend());
  const std::string reversed_part(part->view().rbegin(), part->view().rend());
  const size_t from_end = FindText(reversed_text, reversed_part, 0);
  return from_end == absl::string_view::npos ? from_end : text.size() - from_end - part->text.size();
}

template <bool kLast, bool kMustBeThere>
absl::StatusOr<Value> FindMethodOfStrings(const Call& call) {
  ASSIGN_OR_RETURN(const size_t byte, Place(call, kLast));
  if (byte == absl::string_view::npos) {
    if (kMustBeThere) return absl::InvalidArgumentError("'index' did not find the text");
    return Value(Integer{-1}, call.self.origin());
  }
  return Value(Integer{static_cast<int64_t>(CountCharacters(SelfText(call).view().substr(0, byte)))},
               call.self.origin());
}

// What comes before the separator, it, and what comes after it. Where it is nowhere, the text and two of nothing.
template <bool kFromRight>
absl::StatusOr<Value> PartitionMethod(const Call& call) {
  ASSIGN_OR_RETURN(const String* separator, call.StringOf(0));
  if (separator->text.empty()) return absl::InvalidArgumentError("an empty separator");
  ASSIGN_OR_RETURN(size_t begin, Place(call, kFromRight));
  const MarkedText& text = SelfText(call).text;
  size_t end = begin + separator->text.size();
  if (begin == absl::string_view::npos) begin = end = kFromRight ? 0 : text.size();
  Items parts = call.heap.NewItems();
  for (const auto& [from, to] : {std::pair<size_t, size_t>{0, begin}, {begin, end}, {end, text.size()}}) {
    ASSIGN_OR_RETURN(Value part, call.heap.NewString(text, from, to - from));
    RETURN_IF_ERROR(parts.Add(std::move(part)));
  }
  return call.heap.NewList(List::Kind::kTuple, call.self.origin(), std::move(parts));
}

absl::StatusOr<Value> CountMethod(const Call& call) {
  ASSIGN_OR_RETURN(const String* part, call.StringOf(0));
  const String& text = SelfText(call);
  RETURN_IF_ERROR(call.heap.budget().WorkOverBytes(text.text.size()));
  int64_t count = 0;
  if (part->text.empty()) {
    count = static_cast<int64_t>(text.code_points) + 1;
  } else {
    for (size_t place = 0; (place = FindText(text.view(), part->view(), place)) != absl::string_view::npos;
         place += part->text.size())
      ++count;
  }
  return Value(Integer{count}, call.self.origin());
}

bool IsDigit(uint32_t code_point) { return code_point >= '0' && code_point <= '9'; }
bool IsAlpha(uint32_t code_point) { return ClassOf(code_point) == CharClass::kLetter; }

// Whether the text has characters, and all of them are of the kind.
template <bool (*kIsOfKind)(uint32_t)>
absl::StatusOr<Value> AllOfKindMethod(const Call& call) {
  const absl::string_view text = SelfText(call).view();
  RETURN_IF_ERROR(call.heap.budget().WorkOverBytes(text.size()));
  for (size_t i = 0; i < text.size();) {
    const DecodedChar next = DecodeUtf8(text, i);
    if (!kIsOfKind(next.code_point)) return Value::Bool(false);
    i += next.bytes;
  }
  return Value::Bool(!text.empty());
}

// Whether the text has letters of one case only. The other case's change leaves no such text as it is.
template <bool kUpper>
absl::StatusOr<Value> IsCaseMethod(const Call& call) {
  ASSIGN_OR_RETURN(const Value upper, ChangeCase(call.heap, SelfText(call), LetterCase::kUpper));
  ASSIGN_OR_RETURN(const Value lower, ChangeCase(call.heap, SelfText(call), LetterCase::kLower));
  const absl::string_view same = (kUpper ? upper : lower).AsString()->view();
  const absl::string_view other = (kUpper ? lower : upper).AsString()->view();
  return Value::Bool(SelfText(call).view() == same && SelfText(call).view() != other);
}

absl::StatusOr<Value> FormatMethod(const Call& call) { return BraceFormat(call.heap, SelfText(call), call.arguments); }

}  // namespace

absl::Span<const Builtin> StringMethods() {
  static const auto* const methods = new std::vector<Builtin>{
      {"capitalize", CaseMethod<LetterCase::kCapitalize>},
      {"count", CountMethod, 1, {"sub"}},
      {"endswith", AffixMethod<true>, 1, {"suffix"}},
      {"find", FindMethodOfStrings<false, false>, 1, {"sub"}},
      {"format", FormatMethod, Builtin::kAnyArguments},
      {"index", FindMethodOfStrings<false, true>, 1, {"sub"}},
      {"isalnum", AllOfKindMethod<IsAlphanumeric>},
      {"isalpha", AllOfKindMethod<IsAlpha>},
      {"isdigit", AllOfKindMethod<IsDigit>},
      {"islower", IsCaseMethod<false>},
      {"isspace", AllOfKindMethod<IsWhiteSpace>},
      {"isupper", IsCaseMethod<true>},
      {"join", JoinMethod, 1, {"iterable"}},
      {"lower", CaseMethod<LetterCase::kLower>},
      {"lstrip", StripMethod<true, false>, 0, {"chars"}},
      {"partition", PartitionMethod<false>, 1, {"sep"}},
      {"removeprefix", RemoveAffixMethod<false>, 1, {"prefix"}},
      {"removesuffix", RemoveAffixMethod<true>, 1, {"suffix"}},
      {"replace", ReplaceMethod, 2, {"old", "new", "count"}},
      {"rfind", FindMethodOfStrings<true, false>, 1, {"sub"}},
      {"rindex", FindMethodOfStrings<true, true>, 1, {"sub"}},
      {"rpartition", PartitionMethod<true>, 1, {"sep"}},
      {"rsplit", SplitMethod<true>, 0, {"sep", "maxsplit"}},
      {"rstrip", StripMethod<false, true>, 0, {"chars"}},
      {"split", SplitMethod<false>, 0, {"sep", "maxsplit"}},
      {"splitlines", SplitLinesMethod},
      {"startswith", AffixMethod<false>, 1, {"prefix"}},
      {"strip", StripMethod<true, true>, 0, {"chars"}},
      {"title", CaseMethod<LetterCase::kTitle>},
      {"upper", CaseMethod<LetterCase::kUpper>},
  };
  return *methods;
}

}  // namespace stagecoach::jinja
