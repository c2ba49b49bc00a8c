#ifndef STAGECOACH_COMMON_MODEL_KEY_READER_H_
#define STAGECOACH_COMMON_MODEL_KEY_READER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/status_macros.h"
#include "common/gguf/gguf_file.h"
#include "common/model/architectures.h"
#include "common/model/hyper_parameters.h"

namespace stagecoach {

// Reads keys below the architecture's prefix, with their ranges.
class KeyReader {
 public:
  explicit KeyReader(const GgufMetadata& metadata) : metadata_(metadata) {}

  void set_prefix(const std::string& architecture) {
    prefix_ = architecture + ".";
    // What OxiBonsai writes, whatever the architecture.
    if (!Has("block_count") && metadata_.Has("llm.block_count")) prefix_ = "llm.";
  }
  std::string Key(absl::string_view name) const { return prefix_ + std::string(name); }
  bool Has(absl::string_view name) const { return metadata_.Has(Key(name)); }

  template <typename... Parts>
  absl::Status Invalid(absl::string_view name, const Parts&... parts) const {
    return absl::InvalidArgumentError(absl::StrCat("'", metadata_.path(), "': key '", Key(name), "' ", parts...));
  }
  template <typename... Parts>
  absl::Status Unsupported(absl::string_view name, const Parts&... parts) const {
    return absl::UnimplementedError(absl::StrCat("'", metadata_.path(), "': key '", Key(name), "' ", parts...));
  }

  // An integer in [low, high]; `fallback` for an absent key, which without one is an error.
  absl::StatusOr<int64_t> Int(absl::string_view name, int64_t low, int64_t high,
                              std::optional<int64_t> fallback = {}) const {
    if (!Has(name) && fallback.has_value()) return *fallback;
    if (!Has(name)) return Invalid(name, "is missing, expected an integer from ", low, " to ", high);
    ASSIGN_OR_RETURN(const int64_t value, metadata_.GetInt(Key(name)));
    if (value < low || value > high) return Invalid(name, "is ", value, ", expected ", low, " to ", high);
    return value;
  }

  // One value for every layer, from an integer for all of them or an array.
  absl::StatusOr<std::vector<int64_t>> LayerInts(absl::string_view name, int64_t layers, int64_t low, int64_t high,
                                                 std::optional<int64_t> fallback = {}) const {
    const GgufValue* value = metadata_.Find(Key(name));
    if (value == nullptr || !std::holds_alternative<GgufArray>(*value)) {
      ASSIGN_OR_RETURN(const int64_t all, Int(name, low, high, fallback));
      return std::vector<int64_t>(static_cast<size_t>(layers), all);
    }
    ASSIGN_OR_RETURN(std::vector<int64_t> values, metadata_.GetInts(Key(name)));
    if (static_cast<int64_t>(values.size()) != layers) {
      return Invalid(name, "is an array of ", values.size(), " values, expected ", layers, ", one a layer");
    }
    for (size_t i = 0; i < values.size(); ++i) {
      if (values[i] >= low && values[i] <= high) continue;
      return Invalid(name, "is ", values[i], " in layer ", i, ", expected ", low, " to ", high);
    }
    return values;
  }

  // The value of all layers, where they may not differ.
  absl::StatusOr<int64_t> UniformInt(absl::string_view name, int64_t layers, int64_t low, int64_t high,
                                     std::optional<int64_t> fallback = {}) const {
    ASSIGN_OR_RETURN(const std::vector<int64_t> values, LayerInts(name, layers, low, high, fallback));
    for (size_t i = 1; i < values.size(); ++i) {
      if (values[i] == values[0]) continue;
      return Unsupported(name, "is ", values[0], " in layer 0 and ", values[i], " in layer ", i,
                         "; only models that have the same in every layer are supported");
    }
    return values[0];
  }

  // A finite number of at least `low` (above it when `exclusive`).
  absl::StatusOr<double> Float(absl::string_view name, double low, bool exclusive,
                               std::optional<double> fallback = {}) const {
    const char* relation = exclusive ? "above " : "of at least ";
    if (!Has(name) && fallback.has_value()) return *fallback;
    if (!Has(name)) return Invalid(name, "is missing, expected a finite number ", relation, low);
    ASSIGN_OR_RETURN(const double value, metadata_.GetFloat(Key(name)));
    if (value < low || (exclusive && value == low)) {
      return Invalid(name, "is ", value, ", expected a finite number ", relation, low);
    }
    // Whatever is computed in floats would make an infinity or nothing of other numbers.
    if (value != 0 && (value < 1e-30 || value > 1e30)) {
      return Invalid(name, "is ", value, ", expected a number from 1e-30 to 1e30");
    }
    return value;
  }

  absl::StatusOr<bool> Bool(absl::string_view name, bool fallback) const {
    return metadata_.GetBoolOr(Key(name), fallback);
  }

  const GgufMetadata& metadata() const { return metadata_; }

 private:
  const GgufMetadata& metadata_;
  std::string prefix_;
};

// Reads the attention of every layer and the block group of its KV into hyper.layers, which has the layers that run.
// `blocks`: the layers of the file. Errors: as ReadHyperParameters.
absl::Status ReadAttentions(const KeyReader& keys, const Architecture& architecture, const GgufFile& file,
                            int64_t blocks, HyperParameters& hyper);

// Reads the FFN of every layer into hyper.layers, which has the layers that run; hyper.vocab is known. `blocks`: the
// layers of the file. Errors: as ReadHyperParameters.
absl::Status ReadFfns(const KeyReader& keys, const Architecture& architecture, int64_t blocks, HyperParameters& hyper);

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_MODEL_KEY_READER_H_
