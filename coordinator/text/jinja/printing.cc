#include "coordinator/text/jinja/printing.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "coordinator/text/jinja/characters.h"
#include "coordinator/text/jinja/literals.h"
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

// Single quotes, unless the text holds one and no double quote.
absl::Status AppendReprOfString(const String& string, TextBuilder* out) {
  const absl::string_view text = string.view();
  const bool use_double = text.find('\'') != absl::string_view::npos && text.find('"') == absl::string_view::npos;
  const char quote = use_double ? '"' : '\'';
  const TextOrigin origin = OriginOf(string.text);
  RETURN_IF_ERROR(out->AppendRepeated(quote, 1, origin));
  size_t kept = 0;  // what comes before it is appended
  for (size_t i = 0; i < text.size();) {
    const DecodedChar next = DecodeUtf8(text, i);
    const std::string escape = ReprEscape(next.code_point, quote);
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

absl::Status AppendItems(const std::vector<Value>& items, TextOrigin origin, int depth, TextBuilder* out) {
  bool first = true;
  for (const Value& item : items) {
    if (!first) RETURN_IF_ERROR(out->Append(", ", origin));
    first = false;
    RETURN_IF_ERROR(AppendRepr(item, depth + 1, out));
  }
  return absl::OkStatus();
}

absl::Status AppendList(const List& list, int depth, TextBuilder* out) {
  switch (list.kind) {
    case List::Kind::kRange: return out->Append(list.label, list.origin);
    case List::Kind::kGenerator: return out->Append("<generator object>", TextOrigin::kTemplate);
    case List::Kind::kView:
      RETURN_IF_ERROR(out->Append(absl::StrCat(list.label, "(["), list.origin));
      RETURN_IF_ERROR(AppendItems(list.items, list.origin, depth, out));
      return out->Append("])", list.origin);
    default: break;
  }
  const bool is_tuple = list.kind == List::Kind::kTuple;
  RETURN_IF_ERROR(out->Append(is_tuple ? "(" : "[", list.origin));
  RETURN_IF_ERROR(AppendItems(list.items, list.origin, depth, out));
  if (is_tuple) return out->Append(list.items.size() == 1 ? ",)" : ")", list.origin);
  return out->Append("]", list.origin);
}

absl::Status AppendEntry(const Value& key, const Value& value, int depth, bool first, TextOrigin origin,
                         TextBuilder* out) {
  if (!first) RETURN_IF_ERROR(out->Append(", ", origin));
  RETURN_IF_ERROR(AppendRepr(key, depth + 1, out));
  RETURN_IF_ERROR(out->Append(": ", origin));
  return AppendRepr(value, depth + 1, out);
}

absl::Status AppendDict(const Dict& dict, int depth, TextBuilder* out) {
  RETURN_IF_ERROR(out->Append("{", dict.origin));
  for (size_t i = 0; i < dict.entries().size(); ++i) {
    RETURN_IF_ERROR(AppendEntry(dict.entries()[i].first, dict.entries()[i].second, depth, i == 0, dict.origin, out));
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

// What is no container and no string.
std::string ScalarText(const Value& value) {
  if (value.IsUndefined()) return "";
  if (value.IsNone()) return "None";
  if (const bool* flag = value.AsBool()) return *flag ? "True" : "False";
  if (const double* real = value.AsDouble()) return FloatText(*real);
  Integer integer = 0;
  if (value.AsInteger(&integer)) return IntegerText(integer);
  return absl::StrCat("<", TypeName(value), ">");
}

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

}  // namespace stagecoach::jinja
