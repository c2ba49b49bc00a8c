#ifndef STAGECOACH_COORDINATOR_TEXT_OUTPUT_VALUE_READER_H_
#define STAGECOACH_COORDINATOR_TEXT_OUTPUT_VALUE_READER_H_

// Values that a model writes, as JSON text while they are written.

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "coordinator/text/output/call_scanner.h"

namespace stagecoach {

// Reads one value in steps, each of which appends the JSON text that has become certain.
//   Joined     The steps of a value give one value of JSON in UTF-8. Numbers lose no digit and keys no order; a key
//   that
//              comes twice is written twice.
//   Fragments  Never end within an escape, a pair of surrogates or a character.
//   JSON       Is passed on as it is written, spaces and all. Forgiven are bare control characters in strings, which
//              are escaped.
//   Others     Python: strings in either quotes, True, False, None, commas before a closing bracket.
//              Gemma: strings between <|"|>, keys without quotes.
//   Fails      on anything else, and on more than CallScanner::kMostDepth values within each other.
class ValueReader {
 public:
  enum class Language { kJson, kPython, kGemma };

  // `in` is at the first byte of a value.
  void Begin(Language language);
  // `in` is behind the opening mark of an object, which ends with `close`. ')': these are the arguments of a call in
  // Python, K=V.
  void BeginInside(Language language, char close);

  bool done() const { return at_ == At::kAfter && open_.empty(); }
  // Not done() yet. Nothing that was appended counts unless in->ok().
  void Step(CallScanner* in, std::string* json);

 private:
  enum class At {
    kValue,
    kElement,  // of what is open: the next one, or its end
    kKey,
    kColon,
    kString,
    kAfter,  // a value
  };
  struct Open {
    char close;
    int elements = 0;  // commas so far
  };

  void StepElement(char next, CallScanner* in, std::string* json);
  void StepKey(char next, CallScanner* in, std::string* json);
  void StepValue(char next, CallScanner* in, std::string* json);
  void StepAfter(char next, CallScanner* in, std::string* json);
  void StepString(CallScanner* in, std::string* json);
  bool BeginsString(char next) const;
  void BeginString(char next, bool is_key, CallScanner* in, std::string* json);
  void Close(CallScanner* in, std::string* json);

  Language language_ = Language::kJson;
  At at_ = At::kValue;
  std::vector<Open> open_;
  char quote_ = '"';  // kString: what ends it
  bool is_key_ = false;
};

// Of the names of functions and arguments.
bool IsNameByte(char byte);

// Of a value of JSON that is a string: what it stands for.
std::optional<std::string> JsonStringValue(absl::string_view value);
// Of a text that is one value, with white space around it, as ValueReader reads JSON.
std::optional<std::string> AsJson(absl::string_view text);
// A part of a string: valid UTF-8, as it stands between the quotes.
void AppendInString(absl::string_view text, std::string* json);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_TEXT_OUTPUT_VALUE_READER_H_
