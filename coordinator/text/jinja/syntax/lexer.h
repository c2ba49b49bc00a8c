#ifndef STAGECOACH_COORDINATOR_TEXT_JINJA_SYNTAX_LEXER_H_
#define STAGECOACH_COORDINATOR_TEXT_JINJA_SYNTAX_LEXER_H_

// Cuts a template into tokens. Decides on white space around tags: trim_blocks, lstrip_blocks, the signs - and +.

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "coordinator/text/jinja/values/value.h"

namespace stagecoach::jinja {

struct Token {
  enum class Kind {
    kText,  // between tags
    kVariableBegin,
    kVariableEnd,
    kBlockBegin,
    kBlockEnd,
    kName,
    kString,
    kInteger,
    kFloat,
    kOperator,
    kEnd,
  };
  Kind kind = Kind::kEnd;
  int line = 1;
  std::string text;  // without quotes and escapes
  Integer integer = 0;
  double real = 0;

  bool Is(Kind k, absl::string_view t) const { return kind == k && text == t; }
  bool IsOperator(absl::string_view t) const { return Is(Kind::kOperator, t); }
  bool IsName(absl::string_view t) const { return Is(Kind::kName, t); }
};

// How a message speaks of the token.
std::string Describe(const Token& token);

// The last token, and no other, is kEnd. The source is valid UTF-8 with line ends "\n". InvalidArgument "line 3: ...".
absl::StatusOr<std::vector<Token>> Tokenize(absl::string_view source);

// Line ends become "\n", one at the end of the template goes.
std::string NormalizedSource(absl::string_view source);

// "line 3: <message>".
absl::Status ErrorAt(int line, absl::string_view message);

}  // namespace stagecoach::jinja

#endif  // STAGECOACH_COORDINATOR_TEXT_JINJA_SYNTAX_LEXER_H_
