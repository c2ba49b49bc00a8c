#ifndef STAGECOACH_COORDINATOR_TEXT_GRAMMAR_CODE_POINT_SET_H_
#define STAGECOACH_COORDINATOR_TEXT_GRAMMAR_CODE_POINT_SET_H_

// A set of characters, as classes of patterns name them.

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "coordinator/text/unicode_tables.h"

namespace stagecoach {

class CodePointSet {
 public:
  static constexpr uint32_t kLast = 0x10FFFF;

  CodePointSet() = default;
  explicit CodePointSet(std::vector<CodePointRange> ranges);  // in any order; what is above kLast is ignored
  CodePointSet(std::initializer_list<CodePointRange> ranges) : CodePointSet(std::vector(ranges)) {}
  static CodePointSet One(uint32_t code_point) { return {{code_point, code_point}}; }

  void Add(const CodePointSet& other);
  CodePointSet Complement() const;  // of 0 to kLast
  CodePointSet Without(const CodePointSet& other) const;

  bool Contains(uint32_t code_point) const;
  bool empty() const { return ranges_.empty(); }
  bool IsOne() const { return ranges_.size() == 1 && ranges_[0].first == ranges_[0].last; }
  const std::vector<CodePointRange>& ranges() const { return ranges_; }  // ascending, apart and not adjacent

 private:
  std::vector<CodePointRange> ranges_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_TEXT_GRAMMAR_CODE_POINT_SET_H_
