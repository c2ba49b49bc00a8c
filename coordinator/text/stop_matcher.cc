#include <algorithm>
#include <utility>

#include "coordinator/text/tokenizer.h"

namespace stagecoach {
namespace {

// border[i] is the length of the longest proper prefix of `text` that ends at text[i] (Knuth, Morris and Pratt, 1977).
std::vector<size_t> Borders(const std::string& text) {
  std::vector<size_t> border(text.size(), 0);
  for (size_t i = 1, length = 0; i < text.size(); ++i) {
    while (length > 0 && text[i] != text[length]) length = border[length - 1];
    if (text[i] == text[length]) ++length;
    border[i] = length;
  }
  return border;
}

}  // namespace

StopMatcher::StopMatcher(std::vector<std::string> stops) {
  for (std::string& text : stops) {
    if (text.empty()) continue;
    std::vector<size_t> border = Borders(text);
    stops_.push_back({std::move(text), std::move(border), 0});
  }
}

bool StopMatcher::Advance(Stop* stop, char next) {
  while (stop->matched > 0 && next != stop->text[stop->matched]) stop->matched = stop->border[stop->matched - 1];
  if (next == stop->text[stop->matched]) ++stop->matched;
  return stop->matched == stop->text.size();
}

std::string StopMatcher::Push(absl::string_view text) {
  if (stopped_) return "";
  std::string stream = std::exchange(held_, "");
  const size_t already_seen = stream.size();
  stream.append(text.data(), text.size());
  size_t held_bytes = already_seen;
  for (size_t end = already_seen + 1; end <= stream.size(); ++end) {
    size_t longest_match = 0;
    held_bytes = 0;
    for (Stop& stop : stops_) {
      if (Advance(&stop, stream[end - 1])) longest_match = std::max(longest_match, stop.text.size());
      held_bytes = std::max(held_bytes, stop.matched);
    }
    if (longest_match > 0) {
      stopped_ = true;
      match_ = stream.substr(end - longest_match, longest_match);
      stream.erase(end - longest_match);
      return stream;
    }
  }
  held_ = stream.substr(stream.size() - held_bytes);
  stream.erase(stream.size() - held_bytes);
  return stream;
}

std::string StopMatcher::Flush() {
  for (Stop& stop : stops_) stop.matched = 0;
  return std::exchange(held_, "");
}

}  // namespace stagecoach
