#include "common/base/shown_text.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace stagecoach {

std::string ShownText(absl::string_view text) {
  constexpr size_t kMostShown = 60;
  const bool whole = text.size() <= kMostShown;
  return absl::StrCat("'", absl::CHexEscape(text.substr(0, kMostShown)), whole ? "'" : "...'");
}

}  // namespace stagecoach
