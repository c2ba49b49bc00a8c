#include <utility>

#include "absl/strings/str_cat.h"
#include "common/json/json.h"
#include "coordinator/text/output/call_readers.h"
#include "coordinator/text/output/json_text.h"
#include "coordinator/text/output/marker_search.h"

namespace stagecoach {
namespace {

constexpr int kMostMembers = 1'024;  // of an object: each is looked for among all

bool IsNumberByte(char byte) { return (byte >= '0' && byte <= '9') || byte == '-' || byte == '+' || byte == '.'; }
bool IsWordByte(char byte) {
  return IsNumberByte(byte) || (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z');
}

// true, None, -1.5e3
std::string ReadWord(CallScanner* scanner) {
  const absl::string_view word = scanner->While(IsWordByte);
  if (word == "True") return "true";
  if (word == "False") return "false";
  if (word == "None") return "null";
  if (!IsJson(word, 1)) scanner->Fail();
  return std::string(word);
}

void AppendCodePoint(uint32_t code_point, std::string* out) {
  // As JSON's own escape, which JsonStringValue reads: surrogates find each other there.
  absl::StrAppend(out, "\\u", absl::Hex(code_point, absl::kZeroPad4));
}

// The digits of \xNN and \uNNNN.
uint32_t ReadHex(int digits, CallScanner* scanner) {
  uint32_t value = 0;
  for (; digits > 0; --digits) {
    const char digit = scanner->Next();
    const size_t index = absl::string_view("0123456789abcdef").find(static_cast<char>(digit | 0x20));
    if (index == absl::string_view::npos || digit < '0') scanner->Fail();
    value = value * 16 + static_cast<uint32_t>(index & 0xF);
  }
  return value;
}

// What follows a backslash in a string of Python, as it is written in JSON.
void ReadEscape(CallScanner* scanner, std::string* json) {
  const char escape = scanner->Next();
  switch (escape) {
    case 'n':
    case 't':
    case 'r':
    case 'b':
    case 'f':
    case '"':
    case '/':
    case '\\': absl::StrAppend(json, "\\", absl::string_view(&escape, 1)); break;
    case '\'': json->push_back('\''); break;
    case '\n': break;  // a line that goes on
    case 'x': AppendCodePoint(ReadHex(2, scanner), json); break;
    case 'u': AppendCodePoint(ReadHex(4, scanner), json); break;
    case '0': AppendCodePoint(0, json); break;
    default:  // Python keeps what it does not know
      json->append("\\\\");
      json->push_back(escape);
  }
}

std::string ReadPythonString(CallScanner* scanner) {
  const char quote = scanner->Next();
  std::string json = "\"";
  for (char next = scanner->Next(); scanner->ok() && next != quote; next = scanner->Next()) {
    if (next == '\\') {
      ReadEscape(scanner, &json);
    } else if (next == '"') {
      json += "\\\"";
    } else if (static_cast<unsigned char>(next) < 0x20) {
      AppendCodePoint(static_cast<unsigned char>(next), &json);
    } else {
      json.push_back(next);
    }
  }
  json.push_back('"');
  if (scanner->ok() && !IsJson(json, 1)) scanner->Fail();  // half a surrogate pair, no UTF-8
  return json;
}

// The two languages differ in their strings and in how the keys of objects are written.
class LiteralReader {
 public:
  explicit LiteralReader(CallScanner* scanner) : scanner_(scanner) {}
  virtual ~LiteralReader() = default;

  std::string ReadValue(int depth) {
    if (depth > CallScanner::kMostDepth) scanner_->Fail();
    if (!scanner_->ok()) return "";
    if (AtString()) return ReadString();
    if (scanner_->Try("{")) return ReadObject("}", depth);
    if (scanner_->Try("[")) return ReadList(depth);
    return ReadWord(scanner_);
  }

  // The opening mark has been read.
  std::string ReadObject(absl::string_view close, int depth) {
    JsonObjectText object;
    for (int members = 0; !Closes(close, members); ++members) {
      const std::string key = ReadKey();
      scanner_->SkipSpace();
      std::string value = ReadValue(depth + 1);
      if (members > kMostMembers) scanner_->Fail();
      if (scanner_->ok()) object.Set(key, std::move(value));
    }
    return scanner_->ok() ? object.Text() : "";
  }

 protected:
  virtual bool AtString() = 0;
  virtual std::string ReadString() = 0;  // as JSON
  virtual std::string ReadKey() = 0;     // with what stands between it and the value

  CallScanner* const scanner_;

 private:
  // Reads the comma before a further element, or the closing mark. True as well when reading has failed.
  bool Closes(absl::string_view close, int elements) {
    scanner_->SkipSpace();
    if (scanner_->Try(close)) return true;
    if (elements > 0) {
      scanner_->Expect(",");
      scanner_->SkipSpace();
      if (scanner_->Try(close)) return true;
    }
    return !scanner_->ok();
  }

  std::string ReadList(int depth) {
    std::string list = "[";
    for (int elements = 0; !Closes("]", elements); ++elements) {
      absl::StrAppend(&list, elements > 0 ? ", " : "", ReadValue(depth + 1));
    }
    return list + "]";
  }
};

class PythonReader : public LiteralReader {
 public:
  using LiteralReader::LiteralReader;

 protected:
  bool AtString() override {
    const char next = scanner_->Peek();
    return next == '"' || next == '\'';
  }
  std::string ReadString() override { return ReadPythonString(scanner_); }
  std::string ReadKey() override {
    std::string key = AtString() ? JsonStringValue(ReadString()).value_or("") : "";
    scanner_->SkipSpace();
    scanner_->Expect(":");
    return key;
  }
};

class GemmaReader : public LiteralReader {
 public:
  using LiteralReader::LiteralReader;

 protected:
  bool AtString() override { return scanner_->Peek() == '<'; }
  std::string ReadString() override { return JsonString(ReadText()); }
  std::string ReadKey() override {
    if (!AtString()) return std::string(scanner_->HeadUntil(":"));
    std::string key(ReadText());
    scanner_->SkipSpace();
    scanner_->Expect(":");
    return key;
  }

 private:
  absl::string_view ReadText() {
    scanner_->Expect("<|\"|>");
    return scanner_->Until("<|\"|>");
  }
};

}  // namespace

std::string ReadPythonArguments(CallScanner* scanner) {
  JsonObjectText object;
  for (int members = 0; scanner->ok(); ++members) {
    scanner->SkipSpace();
    if (scanner->Try(")")) return object.Text();
    if (members > 0) {
      scanner->Expect(",");
      scanner->SkipSpace();
    }
    if (members > kMostMembers) scanner->Fail();
    const std::string key(scanner->While(IsNameByte));
    scanner->SkipSpace();
    scanner->Expect("=");
    scanner->SkipSpace();
    object.Set(key, PythonReader(scanner).ReadValue(1));
  }
  return "";
}

Calls ReadLfm2(CallScanner* scanner) {
  constexpr absl::string_view kOpen = "<|tool_call_start|>";
  constexpr absl::string_view kClose = "<|tool_call_end|>";
  CallScanner json = *scanner;
  scanner->Expect(kOpen);
  scanner->SkipSpace();
  scanner->Expect("[");
  scanner->SkipSpace();
  if (scanner->Peek() == '{') {
    *scanner = json;
    return ReadMarkedJson(kOpen, kClose, scanner);
  }
  Calls calls;
  do {
    scanner->SkipSpace();
    std::string name(scanner->While(IsNameByte));
    scanner->Expect("(");
    calls.push_back({std::move(name), ReadPythonArguments(scanner), ""});
    scanner->SkipSpace();
  } while (scanner->Try(","));
  scanner->Expect("]");
  scanner->TryAfterSpace(kClose);
  return calls;
}

Calls ReadGemma4(CallScanner* scanner) {
  scanner->Expect("<|tool_call>call:");
  const std::string name(scanner->HeadUntil("{"));
  if (name.empty()) scanner->Fail();
  std::string arguments = GemmaReader(scanner).ReadObject("}", 1);
  scanner->TryAfterSpace("<tool_call|>");
  return {{name, std::move(arguments), ""}};
}

}  // namespace stagecoach
