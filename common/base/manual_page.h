#ifndef STAGECOACH_COMMON_BASE_MANUAL_PAGE_H_
#define STAGECOACH_COMMON_BASE_MANUAL_PAGE_H_

// A manual page of section 1. It is built from the tables that a program parses its arguments by, so the page and
// --help agree. Source of the form: man-pages(7), groff_man(7).

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace stagecoach {

// An option, an argument, a command or a code, and what it means.
struct ManualEntry {
  std::vector<std::string> names;  // "-n", "--predict"
  std::string value;               // "N"; empty: none
  std::string text;
};

struct ManualSection {
  std::string title;
  bool below = false;  // of the section before it
  std::string text;    // may be empty
  std::vector<ManualEntry> entries;
  std::vector<std::string> commands;  // command lines, as they are typed
};

struct ManualPage {
  std::string name;  // "coordinator-generate"
  std::string summary;
  std::vector<std::string> synopsis;  // a command line each
  std::vector<ManualSection> sections;
  std::vector<std::string> see_also;  // names of pages of section 1
};

// The page's source. Every text is taken literally.
std::string ManualRoff(const ManualPage& page, absl::string_view version);

// The same for a terminal: what --help prints.
std::string ManualText(const ManualPage& page);

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_BASE_MANUAL_PAGE_H_
