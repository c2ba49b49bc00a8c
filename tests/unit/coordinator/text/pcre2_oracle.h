#ifndef STAGECOACH_TESTS_UNIT_TEXT_PCRE2_ORACLE_H_
#define STAGECOACH_TESTS_UNIT_TEXT_PCRE2_ORACLE_H_

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <string>
#include <vector>

#include "common/base/check.h"

namespace stagecoach::testing {

// A regular expression compiled by PCRE2 with UTF and UCP: what the scanners and tables are held against.
class Pcre2Oracle {
 public:
  explicit Pcre2Oracle(const std::string& pattern) {  // CHECK-fails when the pattern does not compile
    int error = 0;
    PCRE2_SIZE offset = 0;
    code_ = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), PCRE2_UTF | PCRE2_UCP, &error,
                          &offset, nullptr);
    CHECK(code_ != nullptr);
    match_ = pcre2_match_data_create_from_pattern(code_, nullptr);
  }
  ~Pcre2Oracle() {
    pcre2_match_data_free(match_);
    pcre2_code_free(code_);
  }
  Pcre2Oracle(const Pcre2Oracle&) = delete;

  // The text, which is valid UTF-8, cut into its matches, one after the other. What lies between two matches is a piece
  // of its own.
  std::vector<std::string> Split(const std::string& text) const {
    std::vector<std::string> pieces;
    size_t position = 0;
    while (position < text.size()) {
      const int found =
          pcre2_match(code_, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), position, 0, match_, nullptr);
      if (found == PCRE2_ERROR_NOMATCH) {
        pieces.push_back(text.substr(position));
        break;
      }
      CHECK_GT(found, 0);
      const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(match_);
      CHECK_GT(ends[1], ends[0]);
      if (ends[0] > position) pieces.push_back(text.substr(position, ends[0] - position));
      pieces.push_back(text.substr(ends[0], ends[1] - ends[0]));
      position = ends[1];
    }
    return pieces;
  }

 private:
  pcre2_code* code_;
  pcre2_match_data* match_;
};

}  // namespace stagecoach::testing

#endif  // STAGECOACH_TESTS_UNIT_TEXT_PCRE2_ORACLE_H_
