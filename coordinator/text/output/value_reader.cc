#include "coordinator/text/output/value_reader.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/json/json_value.h"

namespace stagecoach {
namespace {

constexpr absl::string_view kGemmaQuote = "<|\"|>";

bool IsNumberByte(char byte) { return (byte >= '0' && byte <= '9') || byte == '-' || byte == '+' || byte == '.'; }
bool IsWordByte(char byte) {
  return IsNumberByte(byte) || (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z');
}

// true, null, -1.5e3; beside JSON also None.
std::string ReadWord(bool is_json, CallScanner* in) {
  const absl::string_view word = in->While(IsWordByte);
  if (!is_json && word == "True") return "true";
  if (!is_json && word == "False") return "false";
  if (!is_json && word == "None") return "null";
  if (ReadJson(word).is_discarded()) in->Fail();
  return std::string(word);
}

// The digits of \xNN and \uNNNN.
uint32_t ReadHex(int digits, CallScanner* in) {
  uint32_t value = 0;
  for (; digits > 0; --digits) {
    const char digit = in->Next();
    const size_t index = absl::string_view("0123456789abcdef").find(static_cast<char>(digit | 0x20));
    if (index == absl::string_view::npos || digit < '0') in->Fail();
    value = value * 16 + static_cast<uint32_t>(index & 0xF);
  }
  return value;
}

// What follows "\u": of a surrogate the other half too.
void ReadCodePoint(CallScanner* in) {
  const uint32_t unit = ReadHex(4, in);
  if (unit >= 0xDC00 && unit < 0xE000) in->Fail();
  if (unit < 0xD800 || unit >= 0xE000) return;
  in->Expect("\\u");
  const uint32_t low = ReadHex(4, in);
  if (low < 0xDC00 || low >= 0xE000) in->Fail();
}

void AppendEscape(uint32_t code_point, std::string* json) {
  absl::StrAppend(json, "\\u", absl::Hex(code_point, absl::kZeroPad4));
}

// A backslash with what belongs to it, as JSON has it.
void ReadEscape(bool is_json, CallScanner* in, std::string* json) {
  const absl::string_view text = in->rest();
  in->Next();
  const char escape = in->Peek();
  if (!in->ok()) return;
  if (absl::string_view("ntrbf\"/\\u").find(escape) != absl::string_view::npos) {
    in->Skip(1);
    if (escape == 'u') ReadCodePoint(in);
    absl::StrAppend(json, text.substr(0, text.size() - in->rest().size()));
    return;
  }
  if (is_json) return in->Fail();
  const bool is_known = absl::string_view("'\n0x").find(escape) != absl::string_view::npos;
  if (is_known) in->Skip(1);
  if (escape == '\'') json->push_back(escape);
  if (escape == '0') AppendEscape(0, json);
  if (escape == 'x') AppendEscape(ReadHex(2, in), json);
  if (!is_known) json->append("\\\\");  // Python keeps it, and a line that goes on leaves nothing
}

}  // namespace

bool IsNameByte(char byte) {
  return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || (byte >= '0' && byte <= '9') || byte == '_' ||
         byte == '-' || byte == '.';
}

void ValueReader::Begin(Language language) {
  language_ = language;
  at_ = At::kValue;
  open_.clear();
}

void ValueReader::BeginInside(Language language, char close) {
  language_ = language;
  at_ = At::kElement;
  open_ = {{close}};
}

void ValueReader::Step(CallScanner* in, std::string* json) {
  const char next = in->Peek();
  if (!in->ok()) return;
  if (at_ == At::kString) return StepString(in, json);
  if (IsOutputSpace(next)) {
    const absl::string_view space = in->rest().substr(0, LeadingSpace(in->rest()));
    if (language_ == Language::kJson) absl::StrAppend(json, space);
    return in->Skip(space.size());
  }
  switch (at_) {
    case At::kValue: return StepValue(next, in, json);
    case At::kElement: return StepElement(next, in, json);
    case At::kKey: return StepKey(next, in, json);
    case At::kColon:
      in->Expect(open_.back().close == ')' ? "=" : ":");
      json->append(language_ == Language::kJson ? ":" : ": ");
      if (in->ok()) at_ = At::kValue;
      return;
    case At::kAfter: return StepAfter(next, in, json);
    case At::kString: return;
  }
}

// The next one begins, or the last one was the one before.
void ValueReader::StepElement(char next, CallScanner* in, std::string* json) {
  const Open& open = open_.back();
  const bool is_first = open.elements == 0, is_json = language_ == Language::kJson;
  if (next == open.close && (is_first || !is_json)) return Close(in, json);
  if (!is_first && !is_json) json->append(", ");
  at_ = open.close == ']' ? At::kValue : At::kKey;
}

void ValueReader::StepKey(char next, CallScanner* in, std::string* json) {
  const bool is_gemma = language_ == Language::kGemma, is_parameter = open_.back().close == ')';
  if (!is_parameter && BeginsString(next)) return BeginString(next, /*is_key=*/true, in, json);
  if (!is_parameter && !is_gemma) return in->Fail();
  absl::StrAppend(json, JsonString(is_gemma ? in->HeadUntil(":") : in->While(IsNameByte)), is_gemma ? ": " : "");
  if (in->ok()) at_ = is_gemma ? At::kValue : At::kColon;
}

void ValueReader::StepValue(char next, CallScanner* in, std::string* json) {
  if (BeginsString(next)) return BeginString(next, /*is_key=*/false, in, json);
  if (next == '{' || next == '[') {
    if (open_.size() >= CallScanner::kMostDepth) return in->Fail();
    json->push_back(in->Next());
    open_.push_back({next == '{' ? '}' : ']'});
    at_ = At::kElement;
  } else {
    json->append(ReadWord(language_ == Language::kJson, in));
    if (in->ok()) at_ = At::kAfter;
  }
}

void ValueReader::StepAfter(char next, CallScanner* in, std::string* json) {
  if (next == open_.back().close) return Close(in, json);
  in->Expect(",");
  if (!in->ok()) return;
  if (language_ == Language::kJson) json->push_back(',');
  ++open_.back().elements;
  at_ = At::kElement;
}

void ValueReader::Close(CallScanner* in, std::string* json) {
  in->Skip(1);
  json->push_back(open_.back().close == ']' ? ']' : '}');
  open_.pop_back();
  at_ = At::kAfter;
}

bool ValueReader::BeginsString(char next) const {
  switch (language_) {
    case Language::kJson: return next == '"';
    case Language::kPython: return next == '"' || next == '\'';
    case Language::kGemma: return next == kGemmaQuote[0];
  }
  return false;
}

void ValueReader::BeginString(char next, bool is_key, CallScanner* in, std::string* json) {
  if (language_ == Language::kGemma) {
    in->Expect(kGemmaQuote);
  } else {
    in->Skip(1);
  }
  json->push_back('"');
  if (!in->ok()) return;
  quote_ = next;
  is_key_ = is_key;
  at_ = At::kString;
}

void ValueReader::StepString(CallScanner* in, std::string* json) {
  std::string text;
  bool ends = false;
  if (language_ == Language::kGemma) {
    ends = in->Text({kGemmaQuote}, &text);
  } else {
    const char special[] = {quote_, '\\'};
    const size_t plain = in->rest().find_first_of(absl::string_view(special, 2));
    if (plain == 0) {
      ends = in->rest()[0] == quote_;
      if (!ends) return ReadEscape(language_ == Language::kJson, in, json);
      in->Skip(1);
    } else {
      in->Take(std::min(plain, in->rest().size()), /*complete=*/plain != absl::string_view::npos, &text);
    }
  }
  AppendInString(text, json);
  if (!ends) return;
  json->push_back('"');
  at_ = is_key_ ? At::kColon : At::kAfter;
}

std::optional<std::string> JsonStringValue(absl::string_view value) {
  const Json parsed = ReadJson(value);
  if (!parsed.is_string()) return std::nullopt;
  return parsed.get<std::string>();
}

std::optional<std::string> AsJson(absl::string_view text) {
  CallScanner in;
  in.Show(text, /*at_end=*/true);
  ValueReader value;
  value.Begin(ValueReader::Language::kJson);
  std::string json;
  while (in.ok() && !value.done()) value.Step(&in, &json);
  if (!in.AtEnd()) return std::nullopt;
  return json;
}

void AppendInString(absl::string_view text, std::string* json) {
  const std::string quoted = JsonString(text);
  json->append(quoted, 1, quoted.size() - 2);
}

}  // namespace stagecoach
