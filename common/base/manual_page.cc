#include "common/base/manual_page.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

namespace stagecoach {
namespace {

constexpr size_t kTermColumns = 24;  // of ManualText, before an entry's text

// Characters that roff would turn into others, or take for its own.
std::string Escaped(absl::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '\\': out += "\\e"; break;
      case '-': out += "\\-"; break;
      case '\'': out += "\\(aq"; break;
      case '`': out += "\\(ga"; break;
      case '^': out += "\\(ha"; break;
      case '~': out += "\\(ti"; break;
      default: out += c;
    }
  }
  return out;
}

// Lines of text, none of which is a request.
std::string TextLines(absl::string_view text) {
  std::vector<std::string> lines;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    lines.push_back(line.empty() ? ".PP" : line[0] == '.' ? absl::StrCat("\\&", Escaped(line)) : Escaped(line));
  }
  return absl::StrJoin(lines, "\n") + "\n";
}

std::string Font(char font, absl::string_view text) {
  return absl::StrCat("\\f", absl::string_view(&font, 1), Escaped(text), "\\fR");
}

std::string Term(const ManualEntry& entry) {
  std::vector<std::string> names;
  for (const std::string& name : entry.names) names.push_back(Font('B', name));
  std::string term = absl::StrJoin(names, ", ");
  if (!entry.value.empty()) absl::StrAppend(&term, term.empty() ? "" : " ", Font('I', entry.value));
  return absl::StrReplaceAll(term, {{"|", "|\\:"}});  // a line may end between choices
}

std::string Literal(const std::vector<std::string>& lines) {
  std::string out = ".nf\n.RS 4\n";
  for (const std::string& line : lines) absl::StrAppend(&out, "\\&", Escaped(line), "\n");
  return out + ".RE\n.fi\n";
}

}  // namespace

std::string ManualRoff(const ManualPage& page, absl::string_view version) {
  std::string out = absl::StrCat(".TH \"", absl::AsciiStrToUpper(page.name), "\" 1 \"\" \"Stagecoach ", version,
                                 "\" \"User Commands\"\n.nh\n.ad l\n");
  absl::StrAppend(&out, ".SH NAME\n", Escaped(page.name), " \\- ", Escaped(page.summary), "\n.SH SYNOPSIS\n");
  for (size_t i = 0; i < page.synopsis.size(); ++i) {
    absl::StrAppend(&out, i == 0 ? "" : ".br\n", "\\&", Escaped(page.synopsis[i]), "\n");
  }
  for (const ManualSection& section : page.sections) {
    absl::StrAppend(&out, section.below ? ".SS \"" : ".SH \"",
                    Escaped(section.below ? section.title : absl::AsciiStrToUpper(section.title)), "\"\n");
    if (!section.text.empty()) absl::StrAppend(&out, TextLines(section.text));
    for (const ManualEntry& entry : section.entries) {
      absl::StrAppend(&out, ".TP\n", Term(entry), "\n", entry.text.empty() ? "\\&\n" : TextLines(entry.text));
    }
    if (section.commands.empty()) continue;
    const bool alone = section.text.empty() && section.entries.empty();
    absl::StrAppend(&out, alone ? "" : ".PP\n", Literal(section.commands));
  }
  if (page.see_also.empty()) return out;
  std::vector<std::string> pages;
  for (const std::string& other : page.see_also) pages.push_back(absl::StrCat(Font('B', other), "(1)"));
  return absl::StrCat(out, ".SH \"SEE ALSO\"\n", absl::StrJoin(pages, ",\n"), "\n");
}

std::string ManualText(const ManualPage& page) {
  std::string out = absl::StrCat(page.name, ": ", page.summary, "\n");
  for (const std::string& line : page.synopsis) absl::StrAppend(&out, "  ", line, "\n");
  for (const ManualSection& section : page.sections) {
    absl::StrAppend(&out, "\n", section.title, section.text.empty() ? "" : ": ", section.text, "\n");
    for (const ManualEntry& entry : section.entries) {
      const std::string term =
          absl::StrCat(absl::StrJoin(entry.names, ", "), entry.value.empty() ? "" : " ", entry.value);
      const size_t gap = term.size() + 2 < kTermColumns ? kTermColumns - term.size() : 2;
      absl::StrAppend(&out, "  ", term, std::string(gap, ' '), entry.text, "\n");
    }
    for (const std::string& line : section.commands) absl::StrAppend(&out, "  ", line, "\n");
  }
  return out;
}

}  // namespace stagecoach
