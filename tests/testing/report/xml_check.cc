#include "tests/testing/report/xml_check.h"

#include <cctype>
#include <regex>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"

namespace stagecoach {
namespace {

class XmlReader {
 public:
  explicit XmlReader(absl::string_view text) : text_(text) {}

  std::string Problem() {
    while (problem_.empty() && at_ < text_.size()) text_[at_] == '<' ? Tag() : Character("text");
    if (problem_.empty() && !open_.empty()) Fail(absl::StrCat("<", open_.back(), "> is never closed"));
    if (problem_.empty() && roots_ != 1) Fail(absl::StrCat(roots_, " root elements"));
    return problem_;
  }

 private:
  void Fail(const std::string& why) {
    problem_ = absl::StrCat(why, " at byte ", at_, ": ", text_.substr(at_ < 30 ? 0 : at_ - 30, 60));
  }
  char Next() { return at_ < text_.size() ? text_[at_] : '\0'; }
  void Skip() {
    while (std::isspace(static_cast<unsigned char>(Next()))) ++at_;
  }
  std::string Name() {
    std::string name;
    while (std::isalnum(static_cast<unsigned char>(Next())) || Next() == '-' || Next() == ':') name += text_[at_++];
    if (name.empty()) Fail("a name was expected");
    return name;
  }
  void Character(const char* where) {
    const unsigned char c = static_cast<unsigned char>(Next());
    if (c == '<' || (c < 0x20 && c != '\n' && c != '\t' && c != '\r'))
      return Fail(absl::StrCat("a bare character in ", where));
    if (c == '&') {
      const size_t end = text_.find(';', at_);
      const std::string entity(text_.substr(at_, end == absl::string_view::npos ? 0 : end - at_ + 1));
      static const std::regex kEntity("&(lt|gt|amp|quot|apos|#[0-9]+);");
      if (!std::regex_match(entity, kEntity)) return Fail("a bare ampersand");
      at_ = end;
    }
    ++at_;
  }
  void Attribute(std::set<std::string>* names) {
    if (!names->insert(Name()).second) return Fail("an attribute twice");
    if (Next() != '=') return Fail("an equals sign was expected");
    ++at_;
    if (Next() != '"') return Fail("a quote was expected");
    ++at_;
    while (problem_.empty() && Next() != '"' && at_ < text_.size()) Character("an attribute");
    if (problem_.empty() && Next() != '"') return Fail("an attribute without end");
    ++at_;
  }
  void Tag() {
    ++at_;
    if (Next() == '/') {
      ++at_;
      const std::string name = Name();
      if (open_.empty() || open_.back() != name) return Fail(absl::StrCat("</", name, "> closes nothing"));
      open_.pop_back();
      if (Next() != '>') return Fail("a closing tag without end");
      ++at_;
      return;
    }
    if (open_.empty()) ++roots_;
    open_.push_back(Name());
    std::set<std::string> names;
    for (Skip(); problem_.empty() && Next() != '>' && Next() != '/'; Skip()) Attribute(&names);
    if (!problem_.empty()) return;
    if (Next() == '/') {
      ++at_;
      open_.pop_back();
    }
    if (Next() != '>') return Fail("a tag without end");
    ++at_;
  }

  const absl::string_view text_;
  size_t at_ = 0;
  int roots_ = 0;
  std::vector<std::string> open_;
  std::string problem_;
};

}  // namespace

std::string XmlProblem(absl::string_view text) { return XmlReader(text).Problem(); }

std::string CoordinateProblem(absl::string_view svg) {
  static const std::regex kAttribute(" (x|y|x1|x2|y1|y2|cx|cy|r|width|height|points|viewBox|font-size)=\"([^\"]*)\"");
  static const std::regex kNumbers("(-?[0-9]{1,4}(\\.[0-9]{1,2})?[ ,]?)+|100%");
  const std::string text(svg);
  for (std::sregex_iterator match(text.begin(), text.end(), kAttribute), end; match != end; ++match) {
    if (!std::regex_match((*match)[2].str(), kNumbers)) return match->str();
  }
  return "";
}

}  // namespace stagecoach
