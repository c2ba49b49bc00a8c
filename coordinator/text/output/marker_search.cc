#include "coordinator/text/output/marker_search.h"

namespace stagecoach {

size_t LeadingSpace(absl::string_view text) {
  size_t bytes = 0;
  while (bytes < text.size() && IsOutputSpace(text[bytes])) ++bytes;
  return bytes;
}

size_t TrailingSpace(absl::string_view text) {
  size_t bytes = 0;
  while (bytes < text.size() && IsOutputSpace(text[text.size() - 1 - bytes])) ++bytes;
  return bytes;
}

absl::string_view WithoutSpaceAround(absl::string_view text) {
  text.remove_prefix(LeadingSpace(text));
  text.remove_suffix(TrailingSpace(text));
  return text;
}

MarkerFit FitMarker(absl::string_view text, absl::string_view marker, bool at_end) {
  if (text.size() >= marker.size()) return text.substr(0, marker.size()) == marker ? MarkerFit::kYes : MarkerFit::kNo;
  return !at_end && marker.substr(0, text.size()) == text ? MarkerFit::kPerhaps : MarkerFit::kNo;
}

MarkerPlace FindMarker(absl::string_view text, absl::Span<const absl::string_view> markers, bool at_end) {
  for (size_t position = 0; position < text.size(); ++position) {
    bool perhaps = false;
    for (const absl::string_view marker : markers) {
      if (text[position] != marker[0]) continue;
      const MarkerFit fit = FitMarker(text.substr(position), marker, at_end);
      if (fit == MarkerFit::kYes) return {position, marker};
      perhaps |= fit == MarkerFit::kPerhaps;
    }
    if (perhaps) return {position, ""};
  }
  return {text.size(), ""};
}

void AppendDelta(OutputKind kind, absl::string_view text, std::vector<OutputDelta>* out) {
  if (text.empty()) return;
  if (!out->empty() && out->back().kind == kind) {
    out->back().text.append(text.data(), text.size());
  } else {
    out->push_back({kind, std::string(text), ""});
  }
}

}  // namespace stagecoach
