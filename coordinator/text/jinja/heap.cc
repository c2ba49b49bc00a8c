#include "coordinator/text/jinja/heap.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace stagecoach::jinja {

absl::Status Budget::Round() {
  if (++rounds_ <= limits_.loop_rounds) return Work(1);
  return absl::ResourceExhaustedError(absl::StrCat("more than ", limits_.loop_rounds, " rounds of loops"));
}

absl::Status Budget::CheckDepth(int depth) const {
  if (depth <= limits_.depth) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("more than ", limits_.depth, " levels deep"));
}

absl::Status Budget::LookAtClock() {
  if (std::chrono::steady_clock::now() >= end_) {
    return absl::ResourceExhaustedError(
        absl::StrCat("rendering took longer than ", absl::FormatDuration(limits_.time)));
  }
  work_since_look_ = 0;
  return absl::OkStatus();
}

absl::Status Budget::OutOfMemory() const {
  return absl::ResourceExhaustedError(
      absl::StrCat("the values take more than ", limits_.memory_bytes, " bytes of memory"));
}

absl::Status TextBuilder::Append(absl::string_view text, TextOrigin origin) {
  RETURN_IF_ERROR(Account(text.size()));
  text_.Append(text, origin);
  return absl::OkStatus();
}

absl::Status TextBuilder::Append(const MarkedText& text, size_t begin, size_t size) {
  if (begin >= text.size()) return absl::OkStatus();
  size = std::min(size, text.size() - begin);
  RETURN_IF_ERROR(Account(size));
  text_.Append(text, begin, size);
  return Account(0);
}

absl::Status TextBuilder::AppendRepeated(char c, size_t count, TextOrigin origin) {
  RETURN_IF_ERROR(Account(std::min(count, SIZE_MAX / 4)));
  text_.Append(std::string(count, c), origin);
  return absl::OkStatus();
}

absl::Status TextBuilder::Account(size_t added_bytes) {
  if (added_bytes > max_bytes_ - text_.size()) {
    return absl::ResourceExhaustedError(absl::StrCat("the output is longer than ", max_bytes_, " bytes"));
  }
  RETURN_IF_ERROR(budget_.WorkOverBytes(added_bytes));
  const size_t bytes = text_.size() + added_bytes + text_.runs().size() * sizeof(MarkedText::Run);
  if (bytes <= taken_bytes_) return absl::OkStatus();
  RETURN_IF_ERROR(budget_.Take(bytes - taken_bytes_));
  taken_bytes_ = bytes;
  return absl::OkStatus();
}

MarkedText TextBuilder::Take() {
  budget_.Give(taken_bytes_);
  taken_bytes_ = 0;
  return std::exchange(text_, MarkedText());
}

absl::StatusOr<Value> Heap::NewString(MarkedText text) {
  RETURN_IF_ERROR(budget_.Take(StringBytes(text)));
  return Value(std::make_shared<const String>(std::move(text), &budget_));
}

absl::StatusOr<Value> Heap::NewString(absl::string_view text, TextOrigin origin) {
  RETURN_IF_ERROR(budget_.WorkOverBytes(text.size()));
  return NewString(MarkedText(text, origin));
}

absl::StatusOr<Value> Heap::NewList(List::Kind kind, TextOrigin origin, std::vector<Value> items) {
  RETURN_IF_ERROR(Grow(items.size()));
  ASSIGN_OR_RETURN(List * list, New<List>());
  list->kind = kind;
  list->origin = origin;
  list->items = std::move(items);
  return Value(list);
}

absl::StatusOr<Dict*> Heap::NewDict(TextOrigin origin) {
  ASSIGN_OR_RETURN(Dict * dict, New<Dict>());
  dict->origin = origin;
  return dict;
}

absl::Status Heap::GrowEntry(const std::string& key) {
  return budget_.Take(sizeof(Dict::Entry) + 2 * (sizeof(std::string) + sizeof(size_t)) + key.size());
}

size_t StringBytes(const MarkedText& text) {
  return sizeof(String) + 32 + text.size() + text.runs().size() * sizeof(MarkedText::Run);
}

}  // namespace stagecoach::jinja
