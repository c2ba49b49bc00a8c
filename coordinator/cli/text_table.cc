#include "coordinator/cli/text_table.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace stagecoach {

std::string TextTable::Text() const {
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

}  // namespace stagecoach
