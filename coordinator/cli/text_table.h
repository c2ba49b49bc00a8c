#ifndef STAGECOACH_COORDINATOR_CLI_TEXT_TABLE_H_
#define STAGECOACH_COORDINATOR_CLI_TEXT_TABLE_H_

#include <string>
#include <utility>
#include <vector>

namespace stagecoach {

// A small table: a header, rows, columns as wide as their widest cell, the first `left` flush left, the others right.
class TextTable {
 public:
  explicit TextTable(std::vector<std::string> header, size_t left = 2) : left_(left) {
    rows_.push_back(std::move(header));
  }
  void Add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }  // as many cells as the header

  std::string Text() const;  // a line each

 private:
  const size_t left_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_CLI_TEXT_TABLE_H_
