#include "coordinator/serve/api/conversation/custom_input.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/json/json_value.h"
#include "coordinator/serve/api/body_fields.h"

namespace stagecoach {
namespace {

// Before TEXT, with white space between.
constexpr absl::string_view kMarks[] = {"{", "\"input\"", ":", "\""};

// Bytes of the escape that `text` begins with; both halves of a surrogate pair are one. More than `text` has: it may go
// on.
size_t EscapeBytes(absl::string_view text) {
  if (text.size() < 2 || text[1] != 'u') return 2;
  const bool first_half = text.size() >= 4 && (text[2] == 'd' || text[2] == 'D') &&
                          absl::string_view("89abAB").find(text[3]) != absl::string_view::npos;
  const absl::string_view second = text.substr(std::min<size_t>(6, text.size()), 2);
  return first_half && second == absl::string_view("\\u").substr(0, second.size()) ? 12 : 6;
}

// What it stands for; what stands for nothing, as it is.
std::string Unescaped(absl::string_view escape) {
  const Json text = ReadJson(absl::StrCat("\"", escape, "\""));
  return text.is_string() ? text.get<std::string>() : std::string(escape);
}

}  // namespace

std::string CustomInput::Take(absl::string_view arguments) {
  if (state_ == State::kAfter) return "";
  absl::StrAppend(&held_, arguments);
  if (state_ == State::kBefore) FindText();
  return state_ == State::kInside ? TakeText() : "";
}

void CustomInput::FindText() {
  const absl::string_view held = held_;
  for (; marks_ < std::size(kMarks); ++marks_) {
    const absl::string_view mark = kMarks[marks_];
    while (passed_ < held.size() && absl::ascii_isspace(static_cast<unsigned char>(held[passed_]))) ++passed_;
    const absl::string_view found = held.substr(passed_, mark.size());
    if (found != mark.substr(0, found.size())) state_ = State::kOther;
    if (found != mark) return;
    passed_ += mark.size();
  }
  held_.erase(0, passed_);
  state_ = State::kInside;
}

std::string CustomInput::TakeText() {
  const absl::string_view held = held_;
  std::string text;
  size_t at = 0;
  while (at < held.size() && held[at] != '"') {
    if (held[at] != '\\') {
      text += held[at++];
      continue;
    }
    const size_t bytes = EscapeBytes(held.substr(at));
    if (at + bytes > held.size()) break;
    text += Unescaped(held.substr(at, bytes));
    at += bytes;
  }
  if (at < held.size() && held[at] == '"') state_ = State::kAfter;
  held_.erase(0, at);
  return text;
}

std::string CustomInput::Finish() {
  if (state_ == State::kAfter) return "";
  if (state_ == State::kOther) {
    const absl::StatusOr<Json> arguments = ParseJson(held_, RepeatedKeys::kLastCounts);
    const Json* input = arguments.ok() && arguments->is_object() ? Member(*arguments, "input") : nullptr;
    if (input != nullptr && input->is_string()) held_ = input->get<std::string>();
  }
  return std::exchange(held_, "");
}

}  // namespace stagecoach
