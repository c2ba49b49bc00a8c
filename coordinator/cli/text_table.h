#ifndef STAGECOACH_COORDINATOR_CLI_TEXT_TABLE_H_
#define STAGECOACH_COORDINATOR_CLI_TEXT_TABLE_H_

// A small table for people: a header, rows, columns as wide as their widest cell.

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace stagecoach {

class TextTable {
 public:
  // The first `left` columns are flush left, the others right.
  explicit TextTable(std::vector<std::string> header, size_t left = 2) : left_(left) {
    rows_.push_back(std::move(header));
  }
  void Add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }  // as many cells as the header

  std::string Text() const {
    std::vector<size_t> widths(rows_.front().size());
    for (const auto& row : rows_) {
      for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
    }
    std::string text;
    for (const auto& row : rows_) {
      for (size_t i = 0; i < row.size(); ++i) {
        const std::string padding(widths[i] - row[i].size(), ' ');
        absl::StrAppend(&text, i == 0 ? "" : "  ", i < left_ ? row[i] : padding, i < left_ ? padding : row[i]);
      }
      text += '\n';
    }
    return text;
  }

 private:
  const size_t left_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_CLI_TEXT_TABLE_H_
