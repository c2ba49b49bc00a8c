#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "coordinator/text/jinja/access.h"
#include "coordinator/text/jinja/builtins.h"
#include "coordinator/text/jinja/characters.h"
#include "coordinator/text/jinja/literals.h"
#include "coordinator/text/jinja/printing.h"
#include "coordinator/text/jinja/string_format.h"
#include "coordinator/text/jinja/text_operations.h"
#include "coordinator/text/utf8.h"

// Filters that give a string. What they are applied to counts as its text, but for `indent`.

namespace stagecoach::jinja {
namespace {

template <LetterCase kTo>
absl::StatusOr<Value> CaseFilter(const Call& call) {
  ASSIGN_OR_RETURN(const Value text, ToText(call.heap, call.self));
  return ChangeCase(call.heap, *text.AsString(), kTo);
}

absl::StatusOr<Value> StringFilter(const Call& call) { return ToText(call.heap, call.self); }

absl::StatusOr<Value> TrimFilter(const Call& call) {
  ASSIGN_OR_RETURN(const Value text, ToText(call.heap, call.self));
  if (!call.IsSet(0)) return Strip(call.heap, text, nullptr, StripSides{});
  ASSIGN_OR_RETURN(const String* set, call.StringOf(0));
  return Strip(call.heap, text, set, StripSides{});
}

absl::StatusOr<Value> ReplaceFilter(const Call& call) {
  ASSIGN_OR_RETURN(const Value text, ToText(call.heap, call.self));
  ASSIGN_OR_RETURN(const Value part, ToText(call.heap, call.Get(0)));
  ASSIGN_OR_RETURN(const Value with, ToText(call.heap, call.Get(1)));
  Integer count = -1;
  if (call.IsSet(2)) {
    ASSIGN_OR_RETURN(count, call.IntegerOr(2, -1));
  }
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
  if (text.IsUndefined()) return absl::InvalidArgumentError(UndefinedMessage(text));
  if (text.AsString() == nullptr)
    return absl::InvalidArgumentError(absl::StrCat("'indent' needs a string, not a ", TypeName(text)));
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
  ASSIGN_OR_RETURN(const Value format, ToText(call.heap, call.self));
  if (call.arguments.by_name.empty()) {
    Items items = call.heap.NewItems();
    RETURN_IF_ERROR(items.AddAll(call.arguments.by_place));
    ASSIGN_OR_RETURN(const Value values,
                     call.heap.NewList(List::Kind::kTuple, TextOrigin::kTemplate, std::move(items)));
    return PercentFormat(call.heap, *format.AsString(), values);
  }
  if (!call.arguments.by_place.empty())
    return absl::InvalidArgumentError("'format' takes arguments by place or by name, not both");
  ASSIGN_OR_RETURN(Dict * values, call.heap.NewDict(TextOrigin::kTemplate));
  for (const auto& [name, value] : call.arguments.by_name) {
    RETURN_IF_ERROR(call.heap.SetEntry(values, DictKeyOf(name), Value(), value));
  }
  return PercentFormat(call.heap, *format.AsString(), Value(values));
}

// As jinja2's: an end that leaves no room for itself is wrong even where nothing is cut, and a text that is longer by
// no more than the leeway stays as it is.
absl::StatusOr<Value> TruncateFilter(const Call& call) {
  ASSIGN_OR_RETURN(const Integer length, call.IntegerOr(0, 255));
  Integer leeway = 5;
  if (call.IsSet(3)) {
    ASSIGN_OR_RETURN(leeway, call.IntegerOr(3, leeway));
  }
  ASSIGN_OR_RETURN(const Value dots, call.heap.NewString("...", TextOrigin::kTemplate));
  const String* end = dots.AsString();
  if (call.Has(2)) {
    ASSIGN_OR_RETURN(end, call.StringOf(2));
  }
  const Integer end_length = static_cast<int64_t>(end->code_points);
  if (length < end_length) {
    return absl::InvalidArgumentError(
        absl::StrCat("'truncate': expected a length of at least ", end->code_points, ", found ", IntegerText(length)));
  }
  if (leeway < 0) return absl::InvalidArgumentError("'truncate': expected a leeway of at least 0");
  ASSIGN_OR_RETURN(const Integer own_length, Length(call.self));
  if (own_length - leeway <= length) return call.self;
  const String* text = call.self.AsString();
  if (text == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("'truncate' needs a string, not a ", TypeName(call.self)));
  }
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
  ASSIGN_OR_RETURN(const Value value, ToText(call.heap, call.self));
  const absl::string_view text = value.AsString()->view();
  int64_t words = 0;
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
  return Value(Integer{words}, value.origin());
}

absl::StatusOr<Value> EscapeFilter(const Call& call) {
  ASSIGN_OR_RETURN(const Value value, ToText(call.heap, call.self));
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
  if (width > 1000) return absl::InvalidArgumentError("'tojson' indents by at most 1000");
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
      return absl::InvalidArgumentError("'separators' of 'tojson' are two strings");
    }
    style.item_separator = separators[0].AsString()->text;
    style.key_separator = separators[1].AsString()->text;
  }
  return ToJson(call.heap, call.self, style);
}

}  // namespace

absl::Span<const Builtin> TextFilters() {
  static const auto* const filters = new std::vector<Builtin>{
      {"capitalize", CaseFilter<LetterCase::kCapitalize>},
      {"e", EscapeFilter},
      {"escape", EscapeFilter},
      {"format", FormatFilter, Builtin::kAnyArguments},
      {"indent", IndentFilter, 0, {"width", "first", "blank"}},
      {"join", JoinFilter, 0, {"d", "attribute"}},
      {"lower", CaseFilter<LetterCase::kLower>},
      {"replace", ReplaceFilter, 2, {"old", "new", "count"}},
      {"safe", StringFilter},
      {"string", StringFilter},
      {"title", CaseFilter<LetterCase::kTitleWords>},
      {"tojson", ToJsonFilter, 0, {"ensure_ascii", "indent", "separators", "sort_keys"}},
      {"trim", TrimFilter, 0, {"chars"}},
      {"truncate", TruncateFilter, 0, {"length", "killwords", "end", "leeway"}},
      {"upper", CaseFilter<LetterCase::kUpper>},
      {"wordcount", WordCountFilter},
  };
  return *filters;
}

}  // namespace stagecoach::jinja
