#ifndef STAGECOACH_TESTS_TESTING_REPORT_XML_CHECK_H_
#define STAGECOACH_TESTS_TESTING_REPORT_XML_CHECK_H_

#include <string>

#include "absl/strings/string_view.h"

namespace stagecoach {

// What is wrong with it as an XML document of elements, attributes and text; empty for nothing. Knows no more of XML
// than a picture needs: no comments, no processing instructions, the five named entities and decimal ones.
std::string XmlProblem(absl::string_view text);

// The first number in a quoted attribute of a picture that is none: "nan", "inf", "1e30"; empty for nothing.
std::string CoordinateProblem(absl::string_view svg);

}  // namespace stagecoach

#endif  // STAGECOACH_TESTS_TESTING_REPORT_XML_CHECK_H_
