#ifndef STAGECOACH_COORDINATOR_REPORT_PAGE_STYLE_H_
#define STAGECOACH_COORDINATOR_REPORT_PAGE_STYLE_H_

// How a report's page looks, how it is known again, and its one script. Pure.

#include <string>

namespace stagecoach {

// For a wide screen, a phone, a dark screen and paper.
std::string PageStyle();

// By which a report of an earlier time is known, and its figures: each begins a line.
inline constexpr char kPageTitle[] = "Scaling experiment: ";
inline constexpr char kFigureTag[] = "<figure id=\"";

// Sorts and filters tables of the class "sort". The page is complete without it: what the script works with, it makes
// itself. The page's policy allows no other script, by the hash of this one.
extern const char kPageScript[];
// SHA-256 of the script, in base64, as a Content-Security-Policy names it.
extern const char kPageScriptHash[];

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_REPORT_PAGE_STYLE_H_
