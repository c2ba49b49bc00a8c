#include "coordinator/serve/http/api_keys.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/files.h"
#include "common/base/shown_text.h"
#include "common/base/status_macros.h"
#include "common/base/value_range.h"

namespace stagecoach {
namespace {

constexpr size_t kMostLineBytes = 1024, kMostNameBytes = 64, kMostKeyBytes = 512, kMostKeys = 4096;

bool IsKey(absl::string_view text) {
  return !text.empty() && text.size() <= kMostKeyBytes &&
         std::all_of(text.begin(), text.end(), [](char c) { return absl::ascii_isgraph(c) && c != ':'; });
}

// What stands there may be a key in the wrong place, so it is not shown.
absl::StatusOr<PriorityClass> ParseClass(absl::string_view text) {
  for (const NamedValue<PriorityClass>& known : kPriorityClasses) {
    if (text == known.name) return known.value;
  }
  return absl::InvalidArgumentError(absl::StrCat("the class has to be one of ", NamesIn(kPriorityClasses)));
}

absl::StatusOr<ApiKey> ParseLine(absl::string_view line) {
  const std::vector<absl::string_view> parts = absl::StrSplit(line, ':');
  if (parts.size() < 2 || parts.size() > 4) return absl::InvalidArgumentError("expected name:key[:class[:weight]]");
  ApiKey key{std::string(parts[0]), std::string(parts[1])};
  if (parts.size() > 2) {
    ASSIGN_OR_RETURN(key.key_class, ParseClass(parts[2]));
  }
  if (parts.size() > 3 && !absl::SimpleAtod(parts[3], &key.weight)) key.weight = 0;
  return key;
}

// 1 when both are the same, else 0; looks at every character of `key` whatever `shown` is.
uint32_t EqualInConstantTime(absl::string_view key, absl::string_view shown) {
  volatile uint32_t difference = key.size() ^ shown.size();
  for (size_t i = 0; i < key.size(); ++i) {
    const char other = i < shown.size() ? shown[i] : '\0';
    difference = difference | static_cast<uint32_t>(static_cast<unsigned char>(key[i] ^ other));
  }
  return difference == 0 ? 1 : 0;
}

}  // namespace

absl::StatusOr<ApiKeys> ApiKeys::Read(const std::string& path) {
  ApiKeys keys;
  LineFile file(path, kMostLineBytes);
  while (true) {
    auto next = file.Next();
    if (absl::IsInvalidArgument(next.status())) {
      return absl::InvalidArgumentError(absl::StrCat("key file '", path, "': ", next.status().message()));
    }
    if (!next.ok()) return next.status();
    if (!next->has_value()) break;
    const absl::string_view line = absl::StripAsciiWhitespace(**next);
    if (line.empty() || line[0] == '#') continue;
    auto key = ParseLine(line);
    const absl::Status status = key.ok() ? keys.Add(*std::move(key)) : key.status();
    if (!status.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("key file '", path, "', line ", file.number(), ": ", status.message()));
    }
  }
  if (keys.empty()) return absl::InvalidArgumentError(absl::StrCat("key file '", path, "' has no key"));
  return keys;
}

absl::Status ApiKeys::Add(ApiKey key) {
  if (keys_.size() == kMostKeys)
    return absl::InvalidArgumentError(absl::StrCat("there are more than ", kMostKeys, " keys"));
  if (!IsPlainName(key.name, kMostNameBytes)) {
    return absl::InvalidArgumentError("the name has to be 1 to 64 letters, digits, '.', '_' and '-'");
  }
  if (!IsKey(key.key)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the key of '", key.name, "' has to be 1 to 512 printable characters without blanks and ':'"));
  }
  if (!(key.weight >= 0.01 && key.weight <= 100)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the weight of '", key.name, "' has to be a number from 0.01 to 100"));
  }
  for (const ApiKey& other : keys_) {
    if (other.name == key.name) return absl::InvalidArgumentError(absl::StrCat("there is a second '", key.name, "'"));
    if (other.key == key.key) {
      return absl::InvalidArgumentError(absl::StrCat("'", other.name, "' and '", key.name, "' have the same key"));
    }
  }
  keys_.push_back(std::move(key));
  return absl::OkStatus();
}

const ApiKey* ApiKeys::Find(absl::string_view shown) const {
  size_t found = 0;  // of the key, from 1
  for (size_t i = 0; i < keys_.size(); ++i) found |= (i + 1) * EqualInConstantTime(keys_[i].key, shown);
  return found == 0 ? nullptr : &keys_[found - 1];
}

}  // namespace stagecoach
