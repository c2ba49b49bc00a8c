#ifndef STAGECOACH_COORDINATOR_SERVE_HTTP_API_KEYS_H_
#define STAGECOACH_COORDINATOR_SERVE_HTTP_API_KEYS_H_

// The keys that a server accepts, and whose they are. Messages never have keys. Thread-safe once filled.

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "coordinator/request/sequence.h"

namespace stagecoach {

struct ApiKey {
  std::string name;  // the tenant: in logs and metrics, [A-Za-z0-9._-]{1,64}
  std::string key;   // 1 to 512 printable characters, no blank and no ':'
  PriorityClass key_class = PriorityClass::kDefault;
  double weight = 1;  // of its share, 0.01 to 100
};

class ApiKeys {
 public:
  // A file with lines name:key[:class[:weight]], class one of interactive, default and batch; '#' begins a comment
  // line, empty lines do not count. kInvalidArgument says the line; kNotFound: it cannot be read. A file without a key
  // is an error: it would be taken for protection. Names and keys are different from each other.
  static absl::StatusOr<ApiKeys> Read(const std::string& path);

  // One more. kInvalidArgument: what is wrong with it, without the key.
  absl::Status Add(ApiKey key);

  // The owner of a key, or null, in constant time. Valid until this object is changed or moved.
  const ApiKey* Find(absl::string_view shown) const;

  const std::vector<ApiKey>& all() const { return keys_; }
  bool empty() const { return keys_.empty(); }

 private:
  std::vector<ApiKey> keys_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SERVE_HTTP_API_KEYS_H_
