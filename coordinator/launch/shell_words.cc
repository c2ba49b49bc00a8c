#include "coordinator/launch/shell_words.h"

#include <cctype>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"

namespace stagecoach {
namespace {

std::string QuoteShellWord(const std::string& word) {
  const auto plain = [](unsigned char c) {
    return std::isalnum(c) != 0 ||
           absl::string_view("@%+=:,./-_").find(static_cast<char>(c)) != absl::string_view::npos;
  };
  bool quote = word.empty();
  for (const char c : word) quote = quote || !plain(static_cast<unsigned char>(c));
  // A lone colon separates programs and needs no quotes.
  return quote ? absl::StrCat("'", absl::StrReplaceAll(word, {{"'", "'\\''"}}), "'") : word;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> SplitShellWords(absl::string_view text) {
  std::vector<std::string> words;
  std::string word;
  bool in_word = false;
  char quote = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\\' && quote != '\'' && i + 1 < text.size()) {
      const char next = text[++i];
      // Between double quotes a backslash stays unless it has something to protect.
      if (quote == '"' && next != '"' && next != '\\' && next != '$' && next != '`') word.push_back('\\');
      word.push_back(next);
      in_word = true;
    } else if (quote != 0) {
      if (c == quote) {
        quote = 0;
      } else {
        word.push_back(c);
      }
    } else if (c == '\'' || c == '"') {
      quote = c;
      in_word = true;
    } else if (std::isspace(static_cast<unsigned char>(c)) != 0) {
      if (in_word) words.push_back(std::exchange(word, std::string()));
      in_word = false;
    } else {
      word.push_back(c);
      in_word = true;
    }
  }
  if (quote != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("the quote ", absl::string_view(&quote, 1), " is not closed in: ", text));
  }
  if (in_word) words.push_back(std::move(word));
  return words;
}

std::string JoinShellWords(const std::vector<std::string>& words) {
  return absl::StrJoin(words, " ",
                       [](std::string* out, const std::string& word) { out->append(QuoteShellWord(word)); });
}

}  // namespace stagecoach
