#ifndef STAGECOACH_COMMON_GGUF_DUMMY_MODEL_H_
#define STAGECOACH_COMMON_GGUF_DUMMY_MODEL_H_

// Models without weights, to measure a machine along the path that a file takes. "dummy://<shape>/<type>", such as
// dummy://qwen3-0.6b/q4_0, stands for the path of a model file. The header is that of a real file of the shape, without
// a tokenizer; tensors are random valid blocks, generated when they are read.
//
// Shapes: one of ModelShapes, or one with another number of layers: "kimi-k2:layers=6", "qwen3-0.6b:layers=512". Dense
// layers and the window pattern keep their places; draft-only blocks are left out.
//
// Types: SupportedTypes and Q4_K_M (Q4_K with Q6_K where llama.cpp's mix has it). Vectors, routers, biases, and of
// delta nets convolutions, alpha and beta are F32. With experts, MXFP4 is for the experts and the rest is Q8_0. Q8_0
// (Q4_K_M: as llama.cpp) if rows do not fill blocks.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/gguf/gguf_file.h"
#include "common/gguf/gguf_parser.h"

namespace stagecoach {

// Whether `path` names a model without weights. Such a path must not be resolved in the file system.
bool IsDummyModelPath(absl::string_view path);
std::string DummyModelPath(absl::string_view shape, absl::string_view type);
std::string DummyModelCutTo(absl::string_view shape, int64_t layers);  // "<shape>:layers=<N>"

inline constexpr int64_t kMostDummyLayers = 1024;  // as many as are read of a model (common/model/hyper_parameters.h)

std::string DummyModelShapes();  // "tiny, qwen2.5-0.5b, ..., or any of them as NAME:layers=N": for messages
std::string DummyModelTypes();   // "f32, f16, ..., q4_k_m"

// One such model: immutable and thread-safe.
class DummyModel {
 public:
  // An unknown shape or type is kInvalidArgument, with the lists, and so is a number of layers that is none or not from
  // 1 to kMostDummyLayers. Whether anything here runs the shape is not asked.
  static absl::StatusOr<std::unique_ptr<DummyModel>> Create(const std::string& path);
  ~DummyModel();

  const std::string& path() const { return path_; }  // in lower case
  const GgufHeader& header() const { return header_; }
  FileFingerprint fingerprint() const;  // the same everywhere and at all times

  // Fills `out` with the tensor's bytes from `offset` on, always the same ones. Matrices have values with a root mean
  // square of 1 / sqrt(row length), so that what goes in and what comes out of a product are of one size; so a router
  // chooses every expert about as often. Norms are 1; biases and sinks are random and small, decays negative. At the
  // speed of copying memory: rows are windows of a few MiB of random blocks.
  void Read(const GgufTensor& tensor, uint64_t offset, absl::Span<uint8_t> out) const;

 private:
  class Builder;
  struct Bank;
  DummyModel();
  const Bank* BankOf(const GgufTensor& tensor) const;  // of its type and row length
  void ReadFloats(const GgufTensor& tensor, uint64_t offset, absl::Span<uint8_t> out) const;

  std::string path_;
  GgufHeader header_;
  std::vector<std::unique_ptr<Bank>> banks_;  // one for each type and row length of a matrix
};

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_GGUF_DUMMY_MODEL_H_
