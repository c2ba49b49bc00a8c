#ifndef STAGECOACH_TESTS_UNIT_TEXT_PCRE2_ORACLE_H_
#define STAGECOACH_TESTS_UNIT_TEXT_PCRE2_ORACLE_H_

#include <string>
#include <vector>

namespace stagecoach::testing {

// A regular expression compiled by PCRE2 with UTF and UCP: what the scanners and tables are held against.
class Pcre2Oracle {
 public:
  explicit Pcre2Oracle(const std::string& pattern);  // CHECK-fails when the pattern does not compile
  ~Pcre2Oracle();
  Pcre2Oracle(const Pcre2Oracle&) = delete;

  // The text cut into its matches, one after the other. What lies between two matches is a piece of its own.
  std::vector<std::string> Split(const std::string& text) const;  // `text` is valid UTF-8

 private:
  void* code_;
  void* match_;
};

}  // namespace stagecoach::testing

#endif  // STAGECOACH_TESTS_UNIT_TEXT_PCRE2_ORACLE_H_
