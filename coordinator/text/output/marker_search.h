#ifndef STAGECOACH_COORDINATOR_TEXT_OUTPUT_MARKER_SEARCH_H_
#define STAGECOACH_COORDINATOR_TEXT_OUTPUT_MARKER_SEARCH_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "coordinator/text/output/output_parser.h"

namespace stagecoach {

inline bool IsOutputSpace(char byte) { return byte == ' ' || byte == '\n' || byte == '\t' || byte == '\r'; }
size_t LeadingSpace(absl::string_view text);   // bytes
size_t TrailingSpace(absl::string_view text);  // bytes
absl::string_view WithoutSpaceAround(absl::string_view text);

enum class MarkerFit {
  kNo,
  kYes,
  kPerhaps,  // the text ends before that can be said
};
MarkerFit FitMarker(absl::string_view text, absl::string_view marker, bool at_end);

// The first of `markers` in a text of which more may come unless `at_end`. No marker begins another.
struct MarkerPlace {
  size_t position;           // of it; without one: where the end begins that may become one, or the end
  absl::string_view marker;  // empty: there is none
};
MarkerPlace FindMarker(absl::string_view text, absl::Span<const absl::string_view> markers, bool at_end);

// Appends to the last delta where that is of the same kind.
void AppendDelta(OutputKind kind, absl::string_view text, std::vector<OutputDelta>* out);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_TEXT_OUTPUT_MARKER_SEARCH_H_
