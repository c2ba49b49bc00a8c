#include "coordinator/cli/quantize_plan.h"

#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"

namespace stagecoach {
namespace {

constexpr char kHead[] = "output.weight";
constexpr char kEmbedding[] = "token_embd.weight";

double BitsPerWeight(TensorType type) {
  const TensorTypeInfo& info = GetTensorType(type);
  return 8.0 * info.block_bytes / info.block_elements;
}

bool IsQuantized(const GgufTensor& tensor) {
  return tensor.dims.size() >= 2 && absl::EndsWith(tensor.name, ".weight") &&
         !absl::EndsWith(tensor.name, "_norm.weight") && !absl::EndsWith(tensor.name, "ffn_gate_inp.weight");
}

bool CanBeSource(uint32_t type_id) {
  return type_id == static_cast<uint32_t>(TensorType::kF32) || type_id == static_cast<uint32_t>(TensorType::kF16) ||
         type_id == static_cast<uint32_t>(TensorType::kBF16);
}

TensorType WantedType(const std::string& name, bool tied, const QuantizeTypes& types) {
  if (name == kEmbedding && types.embedding.has_value()) return *types.embedding;
  const bool head = name == kHead || (tied && name == kEmbedding);
  if (!head) return types.matrices;
  if (types.output.has_value()) return *types.output;
  const bool better = !types.pure && BitsPerWeight(types.matrices) < BitsPerWeight(TensorType::kQ6_K);
  return better ? TensorType::kQ6_K : types.matrices;
}

bool Divides(TensorType type, int64_t cols) { return cols % GetTensorType(type).block_elements == 0; }

TensorType TypeForRows(TensorType wanted, int64_t cols) {
  for (TensorType type : {wanted, TensorType::kQ8_0}) {
    if (Divides(type, cols)) return type;
  }
  return TensorType::kF16;
}

// Tensors that could not have the type they were to have, by what they got: one note for all of a kind.
class Fallbacks {
 public:
  void Add(const GgufTensor& tensor, TensorType wanted, TensorType got) {
    Kind& kind = kinds_[{tensor.cols(), wanted, got}];
    if (kind.tensors++ == 0) kind.first = tensor.name;
  }

  std::vector<std::string> Notes() const {
    std::vector<std::string> notes;
    for (const auto& [key, kind] : kinds_) {
      const auto& [cols, wanted, got] = key;
      const TensorTypeInfo& type = GetTensorType(wanted);
      const std::string who = kind.tensors == 1
                                  ? absl::StrCat("tensor '", kind.first, "' has")
                                  : absl::StrCat(kind.tensors, " tensors ('", kind.first, "' is the first) have");
      notes.push_back(absl::StrCat(who, " rows of ", cols, " weights, no multiple of ", type.block_elements,
                                   ", the block of ", type.name, ": written as ", GetTensorType(got).name));
    }
    return notes;
  }

 private:
  struct Kind {
    int tensors = 0;
    std::string first;
  };
  std::map<std::tuple<int64_t, TensorType, TensorType>, Kind> kinds_;
};

}  // namespace

absl::StatusOr<QuantizePlan> PlanQuantize(const GgufFile& file, const QuantizeTypes& types) {
  const bool tied = file.FindTensor(kHead) == nullptr;
  QuantizePlan plan;
  Fallbacks fallbacks;
  for (const GgufTensor& tensor : file.tensors()) {
    QuantizeStep step{&tensor, tensor.type_id};
    if (IsQuantized(tensor)) {
      const TensorType wanted = WantedType(tensor.name, tied, types);
      const TensorType type = TypeForRows(wanted, tensor.cols());
      if (type != wanted) fallbacks.Add(tensor, wanted, type);
      step.type_id = static_cast<uint32_t>(type);
    }
    const TensorTypeInfo* source = FindTensorType(tensor.type_id);
    if ((!step.copied() && !CanBeSource(tensor.type_id)) || tensor.type_id > 0xffff) {
      return absl::UnimplementedError(
          absl::StrCat("'", file.path(), "': tensor '", tensor.name, "' has type ", source->name,
                       ", expected F32, F16, BF16 or ", FindTensorType(step.type_id)->name,
                       ": quantising what is quantised already would lose twice; start from the original file"));
    }
    plan.steps.push_back(step);
  }
  plan.notes = fallbacks.Notes();
  return plan;
}

uint32_t GgufFileType(TensorType type) {
  switch (type) {
    case TensorType::kF32: return 0;
    case TensorType::kF16: return 1;
    case TensorType::kQ4_0: return 2;
    case TensorType::kQ8_0: return 7;
    case TensorType::kQ4_K: return 14;  // Q4_K_S: the same type for every matrix
    case TensorType::kQ6_K: return 18;
    case TensorType::kBF16: return 32;
    case TensorType::kQ1_0: return 40;
    default: CHECK(false);
  }
}

}  // namespace stagecoach
