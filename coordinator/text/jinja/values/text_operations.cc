#include "coordinator/text/jinja/values/text_operations.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "common/base/status_macros.h"
#include "coordinator/text/jinja/operators.h"
#include "coordinator/text/jinja/values/characters.h"
#include "coordinator/text/utf8.h"

namespace stagecoach::jinja {
namespace {

absl::StatusOr<Value> Part(Heap& heap, const String& text, size_t begin, size_t end) {
  return heap.NewString(text.text, begin, end - begin);
}

// Changes letters one after the other, and knows what came before.
class CaseChanger {
 public:
  explicit CaseChanger(LetterCase to) : to_(to) {}

  void Append(uint32_t code_point, std::string* out) {
    const bool upper = to_ == LetterCase::kUpper || (to_ != LetterCase::kLower && begins_word_);
    uint32_t characters[3] = {ToLower(code_point), 0, 0};
    const size_t count = upper ? ToUpper(code_point, characters) : 1;
    for (size_t i = 0; i < count; ++i) {
      // "ß" becomes "SS" in a word of capitals, and "Ss" where it begins a word.
      AppendUtf8(i > 0 && to_ != LetterCase::kUpper ? ToLower(characters[i]) : characters[i], out);
    }
    Remember(code_point);
  }

 private:
  void Remember(uint32_t before) {
    if (to_ == LetterCase::kCapitalize) begins_word_ = false;
    if (to_ == LetterCase::kTitle) {
      uint32_t upper[3];
      begins_word_ = ToUpper(before, upper) == 1 && upper[0] == before && ToLower(before) == before;
    }
    if (to_ == LetterCase::kTitleWords) {
      const bool is_sign = before == '-' || before == '(' || before == '{' || before == '[' || before == '<';
      begins_word_ = is_sign || IsWhiteSpace(before);
    }
  }

  const LetterCase to_;
  bool begins_word_ = true;
};

// Pieces of a text, which end up as a list.
class Pieces {
 public:
  Pieces(Heap* heap, const String* text) : heap_(*heap), text_(*text), pieces_(heap->NewItems()) {}

  absl::Status Add(size_t begin, size_t end) { return pieces_.Add(Part(heap_, text_, begin, end)); }

  absl::StatusOr<Value> Finish(bool reversed) {
    if (reversed) std::reverse(pieces_.begin(), pieces_.end());
    return heap_.NewList(List::Kind::kList, OriginOf(text_.text), std::move(pieces_));
  }

  bool IsFull(Integer count) const { return count >= 0 && static_cast<Integer>(pieces_.size()) >= count; }

 private:
  Heap& heap_;
  const String& text_;
  Items pieces_;
};

absl::StatusOr<Value> SplitAtText(Heap& heap, const String& text, const String& separator, Integer count,
                                  bool from_right) {
  Scratch counted(&heap.budget());
  if (from_right) RETURN_IF_ERROR(counted.Take(text.text.size() + separator.text.size()));
  const std::string searched(from_right ? Reversed(text.view()) : ""),
      part(from_right ? Reversed(separator.view()) : "");
  const size_t size = text.text.size();
  Pieces pieces(&heap, &text);
  const auto add = [&](size_t begin, size_t end) {
    return from_right ? pieces.Add(size - end, size - begin) : pieces.Add(begin, end);
  };
  size_t begin = 0;  // from the right in the reversed text
  while (!pieces.IsFull(count)) {
    const size_t end = from_right ? FindText(searched, part, begin) : FindText(text.view(), separator.view(), begin);
    if (end == absl::string_view::npos) break;
    RETURN_IF_ERROR(add(begin, end));
    begin = end + separator.text.size();
  }
  RETURN_IF_ERROR(add(begin, size));
  return pieces.Finish(/*reversed=*/from_right);
}

absl::StatusOr<Value> SplitAtSpace(Heap& heap, const String& text, Integer count) {
  Pieces pieces(&heap, &text);
  size_t begin = SkipWhiteSpace(text.view(), 0);
  while (begin < text.text.size() && !pieces.IsFull(count)) {
    size_t end = begin;
    while (end < text.text.size() && !IsWhiteSpace(DecodeUtf8(text.view(), end).code_point))
      end += DecodeUtf8(text.view(), end).bytes;
    RETURN_IF_ERROR(pieces.Add(begin, end));
    begin = SkipWhiteSpace(text.view(), end);
  }
  if (begin < text.text.size()) RETURN_IF_ERROR(pieces.Add(begin, text.text.size()));
  return pieces.Finish(/*reversed=*/false);
}

absl::StatusOr<Value> SplitAtSpaceFromRight(Heap& heap, const String& text, Integer count) {
  Pieces pieces(&heap, &text);
  size_t end = SizeWithoutTrailingSpace(text.view());
  while (end > 0 && !pieces.IsFull(count)) {
    size_t begin = end;
    while (begin > 0) {
      const size_t before = StartOfCharacterBefore(text.view(), begin);
      if (IsWhiteSpace(DecodeUtf8(text.view(), before).code_point)) break;
      begin = before;
    }
    RETURN_IF_ERROR(pieces.Add(begin, end));
    end = SizeWithoutTrailingSpace(text.view().substr(0, begin));
  }
  if (end > 0) RETURN_IF_ERROR(pieces.Add(0, end));
  return pieces.Finish(/*reversed=*/true);
}

// What is put in the place of [begin, end).
absl::Status AppendReplacement(const String& text, size_t begin, size_t end, const String& with, TextBuilder* out) {
  if (text.text.IsTemplate(begin, end)) return out->Append(with.text);
  return out->Append(with.view(), TextOrigin::kRequest);
}

// Before every character and at the end, as Python replaces nothing by something.
absl::Status ReplaceNothing(const String& text, const String& with, Integer count, TextBuilder* out) {
  for (size_t i = 0;;) {
    if (count >= 0 && count-- == 0) return out->Append(text.text, i, text.text.size());
    RETURN_IF_ERROR(AppendReplacement(text, 0, text.text.size(), with, out));
    if (i == text.text.size()) return absl::OkStatus();
    const size_t bytes = DecodeUtf8(text.view(), i).bytes;
    RETURN_IF_ERROR(out->Append(text.text, i, bytes));
    i += bytes;
  }
}

}  // namespace

absl::StatusOr<Value> Strip(Heap& heap, const Value& value, const String* set, bool left, bool right) {
  const String& text = *value.AsString();
  RETURN_IF_ERROR(heap.budget().WorkOverBytes(text.text.size() + (set == nullptr ? 0 : set->text.size())));
  absl::flat_hash_set<uint32_t> characters;
  for (size_t i = 0; set != nullptr && i < set->text.size(); i += DecodeUtf8(set->view(), i).bytes) {
    characters.insert(DecodeUtf8(set->view(), i).code_point);
  }
  const auto goes = [&](uint32_t c) { return set == nullptr ? IsWhiteSpace(c) : characters.contains(c); };
  size_t begin = 0, end = text.text.size();
  while (left && begin < end) {
    const DecodedChar next = DecodeUtf8(text.view(), begin);
    if (!goes(next.code_point)) break;
    begin += next.bytes;
  }
  while (right && end > begin) {
    const size_t start = StartOfCharacterBefore(text.view(), end);
    if (!goes(DecodeUtf8(text.view(), start).code_point)) break;
    end = start;
  }
  if (begin == 0 && end == text.text.size()) return value;
  return Part(heap, text, begin, end);
}

absl::StatusOr<Value> Replace(Heap& heap, const String& text, const String& part, const String& with, Integer count) {
  TextBuilder out(&heap.budget());
  if (part.text.empty()) {
    RETURN_IF_ERROR(ReplaceNothing(text, with, count, &out));
    return heap.NewString(&out);
  }
  size_t begin = 0;
  for (; count != 0; --count) {
    const size_t place = FindText(text.view(), part.view(), begin);
    if (place == absl::string_view::npos) break;
    RETURN_IF_ERROR(out.Append(text.text, begin, place - begin));
    begin = place + part.text.size();
    RETURN_IF_ERROR(AppendReplacement(text, place, begin, with, &out));
  }
  RETURN_IF_ERROR(out.Append(text.text, begin, text.text.size()));
  return heap.NewString(&out);
}

absl::StatusOr<Value> ChangeCase(Heap& heap, const String& text, LetterCase to) {
  TextBuilder out(&heap.budget());
  CaseChanger changer(to);
  size_t begin = 0;
  for (const MarkedText::Run& run : text.text.runs()) {
    while (begin < run.end) {
      std::string changed;
      const size_t block_end = std::min(run.end, begin + 65536);
      RETURN_IF_ERROR(heap.budget().Work((block_end - begin) / 4));
      while (begin < block_end) {
        const DecodedChar next = DecodeUtf8(text.view(), begin);
        changer.Append(next.code_point, &changed);
        begin += next.bytes;
      }
      RETURN_IF_ERROR(out.Append(changed, run.origin));
    }
  }
  return heap.NewString(&out);
}

absl::StatusOr<Value> Split(Heap& heap, const String& text, const String* separator, Integer count, bool from_right) {
  RETURN_IF_ERROR(heap.budget().WorkOverBytes(text.text.size()));
  if (separator == nullptr)
    return from_right ? SplitAtSpaceFromRight(heap, text, count) : SplitAtSpace(heap, text, count);
  if (separator->text.empty()) return Invalid("an empty separator");
  return SplitAtText(heap, text, *separator, count, from_right);
}

absl::StatusOr<Items> SplitLines(Heap& heap, const String& text) {
  Items lines = heap.NewItems();
  const absl::string_view view = text.view();
  size_t begin = 0;
  for (size_t i = 0; i < view.size();) {
    const DecodedChar next = DecodeUtf8(view, i);
    const size_t end = i;
    i += next.bytes;
    if (!IsLineEnd(next.code_point)) continue;
    if (next.code_point == '\r' && i < view.size() && view[i] == '\n') ++i;
    RETURN_IF_ERROR(lines.Add(Part(heap, text, begin, end)));
    begin = i;
  }
  if (begin < view.size()) RETURN_IF_ERROR(lines.Add(Part(heap, text, begin, view.size())));
  return lines;
}

absl::StatusOr<Value> Join(Heap& heap, const MarkedText& separator, const Items& items) {
  TextBuilder out(&heap.budget());
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) RETURN_IF_ERROR(out.Append(separator));
    RETURN_IF_ERROR(AppendText(items[i], &out));
  }
  return heap.NewString(&out);
}

}  // namespace stagecoach::jinja
