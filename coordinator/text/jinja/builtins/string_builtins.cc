#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/types/span.h"
#include "common/base/status_macros.h"
#include "coordinator/text/jinja/builtins/builtins.h"
#include "coordinator/text/jinja/operators.h"
#include "coordinator/text/jinja/syntax/literals.h"
#include "coordinator/text/jinja/values/characters.h"
#include "coordinator/text/jinja/values/text_operations.h"
#include "coordinator/text/unicode_tables.h"
#include "coordinator/text/utf8.h"

// Python's methods of strings, and the filters that give a string: all but `indent` take any value as its text.

namespace stagecoach::jinja {
namespace {

const String& SelfText(const Call& call) { return *call.self.AsString(); }

absl::StatusOr<Value> SelfAsText(const Call& call) { return ToText(call.heap, call.self); }

template <LetterCase kTo>
absl::StatusOr<Value> ChangeCaseTo(const Call& call) {
  ASSIGN_OR_RETURN(const Value text, SelfAsText(call));
  return ChangeCase(call.heap, *text.AsString(), kTo);
}

template <bool kLeft, bool kRight>
absl::StatusOr<Value> StripSides(const Call& call) {
  ASSIGN_OR_RETURN(const Value text, SelfAsText(call));
  ASSIGN_OR_RETURN(const String* set, call.StringIfSet(0));
  return Strip(call.heap, text, set, kLeft, kRight);
}

template <bool kFromRight>
absl::StatusOr<Value> SplitMethod(const Call& call) {
  ASSIGN_OR_RETURN(const String* separator, call.StringIfSet(0));
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
    if (item.AsString() == nullptr) return Invalid("'join' needs strings, not a ", TypeName(item));
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
    if (affix == nullptr) return TypeMismatch("a string is needed, not a ", value);
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
  const size_t from_end = FindText(Reversed(text), Reversed(part->view()), 0);
  return from_end == absl::string_view::npos ? from_end : text.size() - from_end - part->text.size();
}

template <bool kLast, bool kMustBeThere>
absl::StatusOr<Value> FindMethodOfStrings(const Call& call) {
  ASSIGN_OR_RETURN(const size_t byte, Place(call, kLast));
  if (byte == absl::string_view::npos) {
    if (kMustBeThere) return Invalid("'index' did not find the text");
    return Value(Integer{-1}, call.self.origin());
  }
  return Value(Integer{CodePoints(SelfText(call).view().substr(0, byte))}, call.self.origin());
}

// What comes before the separator, it, and what comes after it. Where it is nowhere, the text and two of nothing.
template <bool kFromRight>
absl::StatusOr<Value> PartitionMethod(const Call& call) {
  ASSIGN_OR_RETURN(const String* separator, call.StringOf(0));
  if (separator->text.empty()) return Invalid("an empty separator");
  ASSIGN_OR_RETURN(size_t begin, Place(call, kFromRight));
  const MarkedText& text = SelfText(call).text;
  size_t end = begin + separator->text.size();
  if (begin == absl::string_view::npos) begin = end = kFromRight ? 0 : text.size();
  Items parts = call.heap.NewItems();
  for (const auto& [from, to] : {std::pair<size_t, size_t>{0, begin}, {begin, end}, {end, text.size()}}) {
    RETURN_IF_ERROR(parts.Add(call.heap.NewString(text, from, to - from)));
  }
  return call.heap.NewList(List::Kind::kTuple, call.self.origin(), std::move(parts));
}

absl::StatusOr<Value> CountMethod(const Call& call) {
  ASSIGN_OR_RETURN(const String* part, call.StringOf(0));
  const String& text = SelfText(call);
  RETURN_IF_ERROR(call.heap.budget().WorkOverBytes(text.text.size()));
  if (part->text.empty()) return Value::Count(text.code_points + 1, call.self.origin());
  size_t count = 0;
  for (size_t place = 0; (place = FindText(text.view(), part->view(), place)) != absl::string_view::npos; ++count) {
    place += part->text.size();
  }
  return Value::Count(count, call.self.origin());
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

absl::StatusOr<Value> ReplaceFilter(const Call& call) {
  ASSIGN_OR_RETURN(const Value text, SelfAsText(call));
  ASSIGN_OR_RETURN(const Value part, ToText(call.heap, call.Get(0)));
  ASSIGN_OR_RETURN(const Value with, ToText(call.heap, call.Get(1)));
  ASSIGN_OR_RETURN(const Integer count, call.IsSet(2) ? call.IntegerOr(2, 0) : -1);
  return Replace(call.heap, *text.AsString(), *part.AsString(), *with.AsString(), count);
}

absl::StatusOr<Value> JoinFilter(const Call& call) {
  ASSIGN_OR_RETURN(Items items, Iterate(call.heap, call.self));
  if (call.IsSet(1)) {
    for (Value& item : items) {
      ASSIGN_OR_RETURN(item, AttributePath(call.heap, item, call.Get(1)));
    }
  }
  if (!call.Has(0)) return Join(call.heap, MarkedText(), items);
  ASSIGN_OR_RETURN(const Value separator, ToText(call.heap, call.Get(0)));
  return Join(call.heap, separator.AsString()->text, items);
}

// The lines of the text, but the first, moved to the right.
absl::StatusOr<Value> IndentFilter(const Call& call) {
  const Value& text = call.self;
  if (text.AsString() == nullptr) return TypeMismatch("'indent' needs a string, not a ", text);
  TextBuilder indent(&call.heap.budget());
  if (call.Has(0) && call.Get(0).AsString() != nullptr) {
    RETURN_IF_ERROR(indent.Append(call.Get(0).AsString()->text));
  } else {
    ASSIGN_OR_RETURN(const Integer width, call.IntegerOr(0, 4));
    const size_t count = static_cast<size_t>(std::clamp<Integer>(width, 0, SIZE_MAX / 4));
    RETURN_IF_ERROR(indent.AppendRepeated(' ', count, TextOrigin::kTemplate));
  }
  TextBuilder ended(&call.heap.budget());  // so that what follows the last line's end is a line too
  RETURN_IF_ERROR(ended.Append(text.AsString()->text));
  RETURN_IF_ERROR(ended.Append("\n", TextOrigin::kTemplate));
  ASSIGN_OR_RETURN(const Value ended_text, call.heap.NewString(&ended));
  ASSIGN_OR_RETURN(const Items lines, SplitLines(call.heap, *ended_text.AsString()));
  TextBuilder out(&call.heap.budget());
  for (size_t i = 0; i < lines.size(); ++i) {
    const MarkedText& line = lines[i].AsString()->text;
    if (i > 0) RETURN_IF_ERROR(out.Append("\n", text.origin()));
    if (i == 0 ? call.Flag(1) : call.Flag(2) || !line.empty()) RETURN_IF_ERROR(out.Append(indent.text()));
    RETURN_IF_ERROR(out.Append(line));
  }
  return call.heap.NewString(&out);
}

absl::StatusOr<Value> FormatFilter(const Call& call) {
  ASSIGN_OR_RETURN(const Value format, SelfAsText(call));
  if (call.arguments.by_name.empty()) {
    Items items = call.heap.NewItems();
    RETURN_IF_ERROR(items.AddAll(call.arguments.by_place));
    ASSIGN_OR_RETURN(const Value values,
                     call.heap.NewList(List::Kind::kTuple, TextOrigin::kTemplate, std::move(items)));
    return PercentFormat(call.heap, *format.AsString(), values);
  }
  if (!call.arguments.by_place.empty()) return Invalid("'format' takes arguments by place or by name, not both");
  ASSIGN_OR_RETURN(Dict * values, call.heap.NewDict(TextOrigin::kTemplate));
  for (const auto& [name, value] : call.arguments.by_name) {
    RETURN_IF_ERROR(call.heap.SetEntry(values, DictKeyOf(name), Value(), value));
  }
  return PercentFormat(call.heap, *format.AsString(), Value(values));
}

// As jinja2's: an end without room for itself is wrong even where nothing is cut, and a text within the leeway stays.
absl::StatusOr<Value> TruncateFilter(const Call& call) {
  ASSIGN_OR_RETURN(const Integer length, call.IntegerOr(0, 255));
  ASSIGN_OR_RETURN(const Integer leeway, call.IsSet(3) ? call.IntegerOr(3, 0) : 5);
  ASSIGN_OR_RETURN(const Value dots, call.heap.NewString("...", TextOrigin::kTemplate));
  const String* end = dots.AsString();
  if (call.Has(2)) {
    ASSIGN_OR_RETURN(end, call.StringOf(2));
  }
  const Integer end_length = end->code_points;
  if (length < end_length) {
    return Invalid("'truncate': expected a length of at least ", end->code_points, ", found ", IntegerText(length));
  }
  if (leeway < 0) return Invalid("'truncate': expected a leeway of at least 0");
  ASSIGN_OR_RETURN(const Integer own_length, Length(call.self));
  if (own_length - leeway <= length) return call.self;
  const String* text = call.self.AsString();
  if (text == nullptr) return Invalid("'truncate' needs a string, not a ", TypeName(call.self));
  RETURN_IF_ERROR(call.heap.budget().WorkOverBytes(text->text.size()));
  size_t cut = ByteOfCharacter(text->view(), static_cast<size_t>(length - end_length));
  const size_t space = call.Flag(1) ? absl::string_view::npos : text->view().substr(0, cut).rfind(' ');
  if (space != absl::string_view::npos) cut = space;
  TextBuilder out(&call.heap.budget());
  RETURN_IF_ERROR(out.Append(text->text, 0, cut));
  // It stands in the place of what was cut.
  const bool of_template = text->text.IsTemplate(cut, text->text.size());
  RETURN_IF_ERROR(of_template ? out.Append(end->text) : out.Append(end->view(), TextOrigin::kRequest));
  return call.heap.NewString(&out);
}

// How many runs of letters, digits and _ there are.
absl::StatusOr<Value> WordCountFilter(const Call& call) {
  ASSIGN_OR_RETURN(const Value value, SelfAsText(call));
  const absl::string_view text = value.AsString()->view();
  size_t words = 0;
  bool in_word = false;
  for (size_t i = 0; i < text.size();) {
    const size_t block_end = std::min(text.size(), i + kMostAtOnce);
    RETURN_IF_ERROR(call.heap.budget().Work((block_end - i) / 4 + 1));
    while (i < block_end) {
      const DecodedChar next = DecodeUtf8(text, i);
      const bool of_word = IsAlphanumeric(next.code_point) || next.code_point == '_';
      words += of_word && !in_word ? 1 : 0;
      in_word = of_word;
      i += next.bytes;
    }
  }
  return Value::Count(words, value.origin());
}

absl::StatusOr<Value> EscapeFilter(const Call& call) {
  ASSIGN_OR_RETURN(const Value value, SelfAsText(call));
  const MarkedText& text = value.AsString()->text;
  TextBuilder out(&call.heap.budget());
  for (size_t i = 0; i < text.size(); ++i) {
    const absl::string_view escape = [&]() -> absl::string_view {
      switch (text.text()[i]) {
        case '&': return "&amp;";
        case '<': return "&lt;";
        case '>': return "&gt;";
        case '\'': return "&#39;";
        case '"': return "&#34;";
        default: return "";
      }
    }();
    RETURN_IF_ERROR(escape.empty() ? out.Append(text, i, 1) : out.Append(escape, OriginAt(text, i)));
  }
  return call.heap.NewString(&out);
}

absl::Status SetJsonIndent(const Call& call, JsonStyle* style) {
  style->on_lines = true;
  style->item_separator = MarkedText(",", TextOrigin::kTemplate);
  if (const String* indent = call.Get(1).AsString()) {
    style->indent = indent->text;
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const Integer width, call.IntegerOr(1, 0));
  if (width > 1000) return Invalid("'tojson' indents by at most 1000");
  style->indent = MarkedText(std::string(static_cast<size_t>(std::max<Integer>(width, 0)), ' '), TextOrigin::kTemplate);
  return absl::OkStatus();
}

absl::StatusOr<Value> ToJsonFilter(const Call& call) {
  JsonStyle style;
  style.ensure_ascii = call.Flag(0);
  style.sort_keys = call.Flag(3);
  if (call.IsSet(1)) RETURN_IF_ERROR(SetJsonIndent(call, &style));
  if (call.IsSet(2)) {
    ASSIGN_OR_RETURN(const Items separators, Iterate(call.heap, call.Get(2)));
    if (separators.size() != 2 || separators[0].AsString() == nullptr || separators[1].AsString() == nullptr) {
      return Invalid("'separators' of 'tojson' are two strings");
    }
    style.item_separator = separators[0].AsString()->text;
    style.key_separator = separators[1].AsString()->text;
  }
  return ToJson(call.heap, call.self, style);
}

}  // namespace

std::vector<Builtin> StringBuiltins() {
  using enum Builtin::Kind;
  return {
      {kFilter, "capitalize", ChangeCaseTo<LetterCase::kCapitalize>},
      {kFilter, "e escape", EscapeFilter},
      {kFilter, "format", FormatFilter, Builtin::kAnyArguments},
      {kFilter, "indent", IndentFilter, 0, {"width", "first", "blank"}},
      {kFilter, "join", JoinFilter, 0, {"d", "attribute"}},
      {kFilter, "lower", ChangeCaseTo<LetterCase::kLower>},
      {kFilter, "replace", ReplaceFilter, 2, {"old", "new", "count"}},
      {kFilter, "safe string", SelfAsText},
      {kFilter, "title", ChangeCaseTo<LetterCase::kTitleWords>},
      {kFilter, "tojson", ToJsonFilter, 0, {"ensure_ascii", "indent", "separators", "sort_keys"}},
      {kFilter, "trim", StripSides<true, true>, 0, {"chars"}},
      {kFilter, "truncate", TruncateFilter, 0, {"length", "killwords", "end", "leeway"}},
      {kFilter, "upper", ChangeCaseTo<LetterCase::kUpper>},
      {kFilter, "wordcount", WordCountFilter},
      {kStringMethod, "capitalize", ChangeCaseTo<LetterCase::kCapitalize>},
      {kStringMethod, "count", CountMethod, 1, {"sub"}},
      {kStringMethod, "endswith", AffixMethod<true>, 1, {"suffix"}},
      {kStringMethod, "find", FindMethodOfStrings<false, false>, 1, {"sub"}},
      {kStringMethod, "format", FormatMethod, Builtin::kAnyArguments},
      {kStringMethod, "index", FindMethodOfStrings<false, true>, 1, {"sub"}},
      {kStringMethod, "isalnum", AllOfKindMethod<IsAlphanumeric>},
      {kStringMethod, "isalpha", AllOfKindMethod<IsAlpha>},
      {kStringMethod, "isdigit", AllOfKindMethod<IsDigit>},
      {kStringMethod, "islower", IsCaseMethod<false>},
      {kStringMethod, "isspace", AllOfKindMethod<IsWhiteSpace>},
      {kStringMethod, "isupper", IsCaseMethod<true>},
      {kStringMethod, "join", JoinMethod, 1, {"iterable"}},
      {kStringMethod, "lower", ChangeCaseTo<LetterCase::kLower>},
      {kStringMethod, "lstrip", StripSides<true, false>, 0, {"chars"}},
      {kStringMethod, "partition", PartitionMethod<false>, 1, {"sep"}},
      {kStringMethod, "removeprefix", RemoveAffixMethod<false>, 1, {"prefix"}},
      {kStringMethod, "removesuffix", RemoveAffixMethod<true>, 1, {"suffix"}},
      {kStringMethod, "replace", ReplaceMethod, 2, {"old", "new", "count"}},
      {kStringMethod, "rfind", FindMethodOfStrings<true, false>, 1, {"sub"}},
      {kStringMethod, "rindex", FindMethodOfStrings<true, true>, 1, {"sub"}},
      {kStringMethod, "rpartition", PartitionMethod<true>, 1, {"sep"}},
      {kStringMethod, "rsplit", SplitMethod<true>, 0, {"sep", "maxsplit"}},
      {kStringMethod, "rstrip", StripSides<false, true>, 0, {"chars"}},
      {kStringMethod, "split", SplitMethod<false>, 0, {"sep", "maxsplit"}},
      {kStringMethod, "splitlines", SplitLinesMethod},
      {kStringMethod, "startswith", AffixMethod<false>, 1, {"prefix"}},
      {kStringMethod, "strip", StripSides<true, true>, 0, {"chars"}},
      {kStringMethod, "title", ChangeCaseTo<LetterCase::kTitle>},
      {kStringMethod, "upper", ChangeCaseTo<LetterCase::kUpper>},
  };
}

}  // namespace stagecoach::jinja
