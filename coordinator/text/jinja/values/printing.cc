#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "coordinator/text/jinja/operators.h"
#include "coordinator/text/jinja/syntax/literals.h"
#include "coordinator/text/jinja/values/characters.h"
#include "coordinator/text/jinja/values/text_operations.h"
#include "coordinator/text/utf8.h"

namespace stagecoach::jinja {
namespace {

// How Python shows a character within quotes; empty: as it is.
std::string ReprEscape(uint32_t code_point, char quote) {
  if (code_point == static_cast<uint32_t>(quote) || code_point == '\\')
    return std::string({'\\', static_cast<char>(code_point)});
  if (code_point == '\n') return "\\n";
  if (code_point == '\r') return "\\r";
  if (code_point == '\t') return "\\t";
  if (IsPrintable(code_point)) return "";
  if (code_point < 0x100) return absl::StrFormat("\\x%02x", code_point);
  return code_point < 0x10000 ? absl::StrFormat("\\u%04x", code_point) : absl::StrFormat("\\U%08x", code_point);
}

// The string in quotes, with `escape_of(code_point)` in place of every character for which that is not empty.
template <typename EscapeOf>
absl::Status AppendQuoted(const String& string, char quote, EscapeOf escape_of, TextBuilder* out) {
  const absl::string_view text = string.view();
  const TextOrigin origin = OriginOf(string.text);
  RETURN_IF_ERROR(out->AppendRepeated(quote, 1, origin));
  size_t kept = 0;  // what comes before it is appended
  for (size_t i = 0; i < text.size();) {
    const DecodedChar next = DecodeUtf8(text, i);
    const std::string escape = escape_of(next.code_point);
    if (!escape.empty() || i - kept >= kMostAtOnce) {
      RETURN_IF_ERROR(out->Append(string.text, kept, i - kept));
      RETURN_IF_ERROR(out->Append(escape, OriginAt(string.text, i)));
      kept = escape.empty() ? i : i + next.bytes;
    }
    i += next.bytes;
  }
  RETURN_IF_ERROR(out->Append(string.text, kept, text.size() - kept));
  return out->AppendRepeated(quote, 1, origin);
}

// Single quotes, unless the text holds one and no double quote.
absl::Status AppendReprOfString(const String& string, TextBuilder* out) {
  const absl::string_view text = string.view();
  const bool use_double = text.find('\'') != absl::string_view::npos && text.find('"') == absl::string_view::npos;
  const char quote = use_double ? '"' : '\'';
  return AppendQuoted(
      string, quote, [quote](uint32_t code_point) { return ReprEscape(code_point, quote); }, out);
}

absl::Status AppendList(const List& list, int depth, TextBuilder* out) {
  if (list.kind == List::Kind::kRange) return out->Append(list.label, list.origin);
  if (list.kind == List::Kind::kGenerator) return out->Append("<generator object>", TextOrigin::kTemplate);
  const bool is_tuple = list.kind == List::Kind::kTuple, is_view = list.kind == List::Kind::kView;
  RETURN_IF_ERROR(out->Append(is_view ? absl::StrCat(list.label, "([") : is_tuple ? "(" : "[", list.origin));
  for (size_t i = 0; i < list.items.size(); ++i) {
    if (i > 0) RETURN_IF_ERROR(out->Append(", ", list.origin));
    RETURN_IF_ERROR(AppendRepr(list.items[i], depth + 1, out));
  }
  if (is_tuple) return out->Append(list.items.size() == 1 ? ",)" : ")", list.origin);
  return out->Append(is_view ? "])" : "]", list.origin);
}

absl::Status AppendDict(const Dict& dict, int depth, TextBuilder* out) {
  RETURN_IF_ERROR(out->Append("{", dict.origin));
  for (size_t i = 0; i < dict.entries().size(); ++i) {
    if (i > 0) RETURN_IF_ERROR(out->Append(", ", dict.origin));
    RETURN_IF_ERROR(AppendRepr(dict.entries()[i].first, depth + 1, out));
    RETURN_IF_ERROR(out->Append(": ", dict.origin));
    RETURN_IF_ERROR(AppendRepr(dict.entries()[i].second, depth + 1, out));
  }
  return out->Append("}", dict.origin);
}

absl::Status AppendNamespace(const Namespace& names, int depth, TextBuilder* out) {
  RETURN_IF_ERROR(out->Append("<Namespace {", TextOrigin::kTemplate));
  bool first = true;
  for (const auto& [name, value] : names.attributes) {
    RETURN_IF_ERROR(out->Append(absl::StrCat(first ? "'" : ", '", name, "': "), TextOrigin::kTemplate));
    RETURN_IF_ERROR(AppendRepr(value, depth + 1, out));
    first = false;
  }
  return out->Append("}>", TextOrigin::kTemplate);
}

// What is no container, no string and not undefined.
std::string ScalarText(const Value& value) {
  if (value.IsNone()) return "None";
  if (const bool* flag = value.AsBool()) return *flag ? "True" : "False";
  if (const double* real = value.AsDouble()) return FloatText(*real);
  Integer integer = 0;
  if (value.AsInteger(&integer)) return IntegerText(integer);
  return absl::StrCat("<", TypeName(value), ">");
}

std::string Utf16Escape(uint32_t code_point) {
  if (code_point < 0x10000) return absl::StrFormat("\\u%04x", code_point);
  const uint32_t rest = code_point - 0x10000;
  return absl::StrFormat("\\u%04x\\u%04x", 0xD800 + (rest >> 10), 0xDC00 + (rest & 0x3FF));
}

// Empty: the character stands as it is.
std::string JsonEscape(uint32_t code_point, bool ensure_ascii) {
  switch (code_point) {
    case '"': return "\\\"";
    case '\\': return "\\\\";
    case '\n': return "\\n";
    case '\r': return "\\r";
    case '\t': return "\\t";
    case '\b': return "\\b";
    case '\f': return "\\f";
    default: break;
  }
  return code_point < 0x20 || (ensure_ascii && code_point > 0x7E) ? Utf16Escape(code_point) : "";
}

class JsonWriter {
 public:
  JsonWriter(Heap* heap, const JsonStyle& style) : heap_(*heap), style_(style), out_(&heap->budget()) {}

  absl::Status Write(const Value& value, int depth) {
    RETURN_IF_ERROR(heap_.budget().CheckDepth(depth));
    RETURN_IF_ERROR(heap_.budget().Work(1));
    if (const String* string = value.AsString()) return WriteString(*string);
    if (const Dict* dict = value.AsDict()) return WriteDict(*dict, depth);
    const List* list = value.AsList();
    if (list != nullptr && list->kind <= List::Kind::kTuple) return WriteList(*list, depth);
    ASSIGN_OR_RETURN(const std::string text, JsonOfScalar(value));
    return out_.Append(text, value.origin());
  }

  TextBuilder* out() { return &out_; }

 private:
  static absl::StatusOr<std::string> JsonOfScalar(const Value& value) {
    if (value.IsNone()) return "null";
    if (const bool* flag = value.AsBool()) return *flag ? "true" : "false";
    if (const double* real = value.AsDouble()) {
      if (std::isnan(*real)) return "NaN";
      if (std::isinf(*real)) return *real > 0 ? "Infinity" : "-Infinity";
      return FloatText(*real);
    }
    Integer integer = 0;
    if (value.AsInteger(&integer)) return IntegerText(integer);
    if (value.IsUndefined()) return Invalid(UndefinedMessage(value), " and has no JSON");
    return Invalid("a ", TypeName(value), " has no JSON");
  }

  absl::Status WriteString(const String& string) {
    const auto escape_of = [this](uint32_t code_point) { return JsonEscape(code_point, style_.ensure_ascii); };
    return AppendQuoted(string, '"', escape_of, &out_);
  }

  absl::Status WriteLineEnd(int depth, TextOrigin origin) {
    if (!style_.on_lines) return absl::OkStatus();
    RETURN_IF_ERROR(out_.Append("\n", origin));
    for (int i = 0; i < depth; ++i) RETURN_IF_ERROR(out_.Append(style_.indent));
    return absl::OkStatus();
  }

  // `count` items between two brackets, each written by `write_item(its index)`.
  template <typename WriteItem>
  absl::Status WriteItems(absl::string_view brackets, size_t count, TextOrigin origin, int depth,
                          WriteItem write_item) {
    if (count == 0) return out_.Append(brackets, origin);
    RETURN_IF_ERROR(out_.Append(brackets.substr(0, 1), origin));
    for (size_t i = 0; i < count; ++i) {
      if (i > 0) RETURN_IF_ERROR(WriteSeparator(style_.item_separator, origin));
      RETURN_IF_ERROR(WriteLineEnd(depth, origin));
      RETURN_IF_ERROR(write_item(i));
    }
    RETURN_IF_ERROR(WriteLineEnd(depth - 1, origin));
    return out_.Append(brackets.substr(1), origin);
  }

  absl::Status WriteList(const List& list, int depth) {
    return WriteItems("[]", list.items.size(), list.origin, depth,
                      [&](size_t i) { return Write(list.items[i], depth + 1); });
  }

  absl::Status WriteDict(const Dict& dict, int depth) {
    Scratch counted(&heap_.budget());
    std::vector<Dict::Entry> sorted;
    if (style_.sort_keys) {
      RETURN_IF_ERROR(counted.Take(dict.entries().size() * 2 * sizeof(Dict::Entry)));  // half of it by the sorting
      sorted = dict.entries();
      const auto key_of = [](const Dict::Entry& entry) -> const Value& { return entry.first; };
      RETURN_IF_ERROR(SortBy(heap_, key_of, /*reverse=*/false, &sorted));
    }
    const std::vector<Dict::Entry>& entries = style_.sort_keys ? sorted : dict.entries();
    return WriteItems("{}", entries.size(), dict.origin, depth, [&](size_t i) -> absl::Status {
      RETURN_IF_ERROR(WriteKey(entries[i].first));
      RETURN_IF_ERROR(WriteSeparator(style_.key_separator, dict.origin));
      return Write(entries[i].second, depth + 1);
    });
  }

  absl::Status WriteKey(const Value& key) {
    if (const String* string = key.AsString()) return WriteString(*string);
    if (key.AsList() != nullptr) return Invalid("a tuple is no key in JSON");
    ASSIGN_OR_RETURN(const std::string text, JsonOfScalar(key));
    return out_.Append(absl::StrCat("\"", text, "\""), key.origin());
  }

  // The request's, when what is separated is.
  absl::Status WriteSeparator(const MarkedText& separator, TextOrigin origin) {
    return origin == TextOrigin::kRequest ? out_.Append(separator.text(), origin) : out_.Append(separator);
  }

  Heap& heap_;
  const JsonStyle& style_;
  TextBuilder out_;
};

}  // namespace

absl::Status AppendRepr(const Value& value, int depth, TextBuilder* out) {
  RETURN_IF_ERROR(out->budget().CheckDepth(depth));
  RETURN_IF_ERROR(out->budget().Work(1));
  if (const String* string = value.AsString()) return AppendReprOfString(*string, out);
  if (const List* list = value.AsList()) return AppendList(*list, depth, out);
  if (const Dict* dict = value.AsDict()) return AppendDict(*dict, depth, out);
  if (const Namespace* names = value.AsNamespace()) return AppendNamespace(*names, depth, out);
  if (const Loop* loop = value.AsLoop()) {
    return out->Append(absl::StrCat("<LoopContext ", loop->index + 1, "/", loop->length, ">"), loop->origin);
  }
  if (value.IsUndefined()) return out->Append("Undefined", TextOrigin::kTemplate);
  return out->Append(ScalarText(value), value.origin());
}

absl::Status AppendText(const Value& value, TextBuilder* out) {
  if (const String* string = value.AsString()) return out->Append(string->text);
  if (value.IsUndefined()) return absl::OkStatus();
  return AppendRepr(value, /*depth=*/1, out);
}

absl::StatusOr<Value> ToText(Heap& heap, const Value& value) {
  if (value.AsString() != nullptr) return value;
  TextBuilder text(&heap.budget());
  RETURN_IF_ERROR(AppendText(value, &text));
  return heap.NewString(&text);
}

absl::StatusOr<Value> ToJson(Heap& heap, const Value& value, const JsonStyle& style) {
  JsonWriter writer(&heap, style);
  RETURN_IF_ERROR(writer.Write(value, /*depth=*/1));
  return heap.NewString(writer.out());
}

}  // namespace stagecoach::jinja
