#ifndef STAGECOACH_TESTS_UNIT_COORDINATOR_TEXT_OUTPUT_PARSED_OUTPUT_H_
#define STAGECOACH_TESTS_UNIT_COORDINATOR_TEXT_OUTPUT_PARSED_OUTPUT_H_

#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "coordinator/text/output/output_parser.h"

namespace stagecoach {

struct OutputCase {
  OutputFormat format;
  std::string prompt_end;
  std::string raw;
  std::shared_ptr<const OutputTools> tools;
};

// Two functions: look_up(place: string, days: integer, note: string or null) and stop().
std::shared_ptr<const OutputTools> SomeTools();

// What came out of the pieces, deltas of one kind put together where they stand side by side.
std::vector<OutputDelta> ParsePieces(const OutputCase& output, const std::vector<std::string>& pieces);
std::vector<OutputDelta> ParseWhole(const OutputCase& output);

// The whole, byte by byte, cut at every place, and short texts cut at every two places: the first cut that makes a
// difference, or nothing.
std::string CutThatMatters(const OutputCase& output);

// "R(..) C(..) look_up[id]{..}"
std::string Summary(const std::vector<OutputDelta>& deltas);

}  // namespace stagecoach

#endif  // STAGECOACH_TESTS_UNIT_COORDINATOR_TEXT_OUTPUT_PARSED_OUTPUT_H_
