#define PCRE2_CODE_UNIT_WIDTH 8
#include "tests/unit/coordinator/text/pcre2_oracle.h"

#include <pcre2.h>

#include "common/base/check.h"

namespace stagecoach::testing {

Pcre2Oracle::Pcre2Oracle(const std::string& pattern) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), PCRE2_UTF | PCRE2_UCP,
                                   &error, &offset, nullptr);
  CHECK(code != nullptr);
  code_ = code;
  match_ = pcre2_match_data_create_from_pattern(code, nullptr);
}

Pcre2Oracle::~Pcre2Oracle() {
  pcre2_match_data_free(static_cast<pcre2_match_data*>(match_));
  pcre2_code_free(static_cast<pcre2_code*>(code_));
}

std::vector<std::string> Pcre2Oracle::Split(const std::string& text) const {
  std::vector<std::string> pieces;
  size_t position = 0;
  while (position < text.size()) {
    const int found = pcre2_match(static_cast<pcre2_code*>(code_), reinterpret_cast<PCRE2_SPTR>(text.data()),
                                  text.size(), position, 0, static_cast<pcre2_match_data*>(match_), nullptr);
    if (found == PCRE2_ERROR_NOMATCH) {
      pieces.push_back(text.substr(position));
      break;
    }
    CHECK_GT(found, 0);
    const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(static_cast<pcre2_match_data*>(match_));
    CHECK_GT(ends[1], ends[0]);
    if (ends[0] > position) pieces.push_back(text.substr(position, ends[0] - position));
    pieces.push_back(text.substr(ends[0], ends[1] - ends[0]));
    position = ends[1];
  }
  return pieces;
}

}  // namespace stagecoach::testing
