#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "coordinator/text/jinja/literals.h"
#include "coordinator/text/jinja/operators.h"
#include "coordinator/text/jinja/printing.h"
#include "coordinator/text/utf8.h"

namespace stagecoach::jinja {
namespace {

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
    if (list != nullptr && (list->kind == List::Kind::kList || list->kind == List::Kind::kTuple))
      return WriteList(*list, depth);
    ASSIGN_OR_RETURN(const std::string text, ScalarText(value));
    return out_.Append(text, value.origin());
  }

  TextBuilder* out() { return &out_; }

 private:
  static absl::StatusOr<std::string> ScalarText(const Value& value) {
    if (value.IsNone()) return "null";
    if (const bool* flag = value.AsBool()) return *flag ? "true" : "false";
    if (const double* real = value.AsDouble()) {
      if (std::isnan(*real)) return "NaN";
      if (std::isinf(*real)) return *real > 0 ? "Infinity" : "-Infinity";
      return FloatText(*real);
    }
    Integer integer = 0;
    if (value.AsInteger(&integer)) return IntegerText(integer);
    if (value.IsUndefined())
      return absl::InvalidArgumentError(absl::StrCat(UndefinedMessage(value), " and has no JSON"));
    return absl::InvalidArgumentError(absl::StrCat("a ", TypeName(value), " has no JSON"));
  }

  absl::Status WriteString(const String& string) {
    const absl::string_view text = string.view();
    const TextOrigin origin = OriginOf(string.text);
    RETURN_IF_ERROR(out_.Append("\"", origin));
    size_t kept = 0;  // what comes before it is written
    for (size_t i = 0; i < text.size();) {
      const DecodedChar next = DecodeUtf8(text, i);
      const std::string escape = JsonEscape(next.code_point, style_.ensure_ascii);
      if (!escape.empty() || i - kept >= kMostAtOnce) {
        RETURN_IF_ERROR(out_.Append(string.text, kept, i - kept));
        RETURN_IF_ERROR(out_.Append(escape, OriginAt(string.text, i)));
        kept = escape.empty() ? i : i + next.bytes;
      }
      i += next.bytes;
    }
    RETURN_IF_ERROR(out_.Append(string.text, kept, text.size() - kept));
    return out_.Append("\"", origin);
  }

  absl::Status WriteLineEnd(int depth, TextOrigin origin) {
    if (!style_.on_lines) return absl::OkStatus();
    RETURN_IF_ERROR(out_.Append("\n", origin));
    for (int i = 0; i < depth; ++i) RETURN_IF_ERROR(out_.Append(style_.indent));
    return absl::OkStatus();
  }

  absl::Status WriteList(const List& list, int depth) {
    if (list.items.empty()) return out_.Append("[]", list.origin);
    RETURN_IF_ERROR(out_.Append("[", list.origin));
    for (size_t i = 0; i < list.items.size(); ++i) {
      if (i > 0) RETURN_IF_ERROR(WriteSeparator(style_.item_separator, list.origin));
      RETURN_IF_ERROR(WriteLineEnd(depth, list.origin));
      RETURN_IF_ERROR(Write(list.items[i], depth + 1));
    }
    RETURN_IF_ERROR(WriteLineEnd(depth - 1, list.origin));
    return out_.Append("]", list.origin);
  }

  absl::Status WriteDict(const Dict& dict, int depth) {
    if (dict.entries().empty()) return out_.Append("{}", dict.origin);
    if (!style_.sort_keys) return WriteEntries(dict.entries(), dict, depth);
    Scratch counted(&heap_.budget());
    RETURN_IF_ERROR(counted.Take(dict.entries().size() * 2 * sizeof(Dict::Entry)));  // half of it by the sorting
    std::vector<Dict::Entry> entries = dict.entries();
    RETURN_IF_ERROR(SortBy(
        heap_, [](const Dict::Entry& entry) -> const Value& { return entry.first; }, /*reverse=*/false, &entries));
    return WriteEntries(entries, dict, depth);
  }

  absl::Status WriteEntries(const std::vector<Dict::Entry>& entries, const Dict& dict, int depth) {
    RETURN_IF_ERROR(out_.Append("{", dict.origin));
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) RETURN_IF_ERROR(WriteSeparator(style_.item_separator, dict.origin));
      RETURN_IF_ERROR(WriteLineEnd(depth, dict.origin));
      RETURN_IF_ERROR(WriteKey(entries[i].first));
      RETURN_IF_ERROR(WriteSeparator(style_.key_separator, dict.origin));
      RETURN_IF_ERROR(Write(entries[i].second, depth + 1));
    }
    RETURN_IF_ERROR(WriteLineEnd(depth - 1, dict.origin));
    return out_.Append("}", dict.origin);
  }

  absl::Status WriteKey(const Value& key) {
    if (const String* string = key.AsString()) return WriteString(*string);
    if (key.AsList() != nullptr) return absl::InvalidArgumentError("a tuple is no key in JSON");
    ASSIGN_OR_RETURN(const std::string text, ScalarText(key));
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

absl::StatusOr<Value> ToJson(Heap& heap, const Value& value, const JsonStyle& style) {
  JsonWriter writer(&heap, style);
  RETURN_IF_ERROR(writer.Write(value, /*depth=*/1));
  return heap.NewString(writer.out());
}

}  // namespace stagecoach::jinja
