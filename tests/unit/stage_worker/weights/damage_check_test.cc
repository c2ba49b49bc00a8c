// Damaged weights on their way into a stage.

#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "stage_worker/kernels/select.h"
#include "stage_worker/weights/matrix_loader.h"
#include "stage_worker/weights/stage_weights.h"
#include "tests/testing/matchers.h"
#include "tests/testing/models/tiny_model.h"
#include "tests/testing/shared_data.h"

namespace stagecoach {
namespace {

using Place = std::pair<uint64_t, uint64_t>;

// A file's bytes from somebody who keeps copies.
class KeptBytes : public ByteSource {
 public:
  KeptBytes(std::string bytes, std::vector<Place>* discarded) : bytes_(std::move(bytes)), discarded_(discarded) {}
  absl::Status Read(uint64_t offset, absl::Span<uint8_t> out) const override {
    bytes_.copy(reinterpret_cast<char*>(out.data()), out.size(), offset);
    return absl::OkStatus();
  }
  void Discard(uint64_t offset, uint64_t bytes) const override { discarded_->emplace_back(offset, bytes); }

 private:
  const std::string bytes_;
  std::vector<Place>* const discarded_;
};

class DamagedLoading : public ::testing::Test {
 protected:
  DamagedLoading() {
    testing::WriteTinyModel(dir_.File("m.gguf"), {.architecture = "qwen2", .ffn = 256, .tied = false});
    sound_ = testing::ReadFileOrDie(dir_.File("m.gguf"));
    file_ = GgufFile::Open(dir_.File("m.gguf")).value();
  }

  const GgufTensor& Tensor(const std::string& name) const { return *file_->FindTensor(name); }

  // The bytes [begin, begin + bytes) of a tensor's data; all of them where `bytes` is 0.
  void Zero(const std::string& name, size_t begin = 0, size_t bytes = 0) {
    const GgufTensor& tensor = Tensor(name);
    damaged_.replace(tensor.file_offset + begin, bytes == 0 ? tensor.bytes : bytes, bytes == 0 ? tensor.bytes : bytes,
                     '\0');
  }
  void SetFloat(const std::string& name, size_t element, float value) {
    damaged_.replace(Tensor(name).file_offset + 4 * element, 4, reinterpret_cast<const char*>(&value), 4);
  }

  absl::Status Load(bool allow = false, int64_t first_layer = 0, int64_t last_layer = 4) {
    std::vector<GgufSource> sources;
    sources.push_back({"/there/m.gguf", file_->fingerprints()[0], std::make_unique<KeptBytes>(damaged_, &discarded_)});
    const auto model = DescribeModel(GgufFile::OpenSources(std::move(sources)).value()).value();
    Gang gang(2, {});
    std::atomic<uint64_t> to_load{0}, touched{0}, loaded{0};
    const StageWeightsRequest request = {.first_layer = first_layer,
                                         .last_layer = last_layer,
                                         .owns_embedding = first_layer == 0,
                                         .owns_head = last_layer == 4,
                                         .gang = &gang,
                                         .allow_damaged = allow};
    return LoadStageWeights(*model, request, *SelectKernels("auto").value(), &to_load, &touched, &loaded).status();
  }

  // Refused with such words and where the damage begins, by who loads it; loaded where it is allowed.
  void ExpectRefused(const std::string& tensor, size_t begin, const std::string& words) {
    EXPECT_THAT(Load(), testing::StatusIs(absl::StatusCode::kDataLoss,
                                          AllOf(HasSubstr(absl::StrCat("tensor '", tensor, "'")), HasSubstr(words),
                                                HasSubstr(absl::StrCat("at offset ", Tensor(tensor).file_offset + begin,
                                                                       " of '/there/m.gguf'")),
                                                HasSubstr("`allow_damaged`"))));
    EXPECT_THAT(discarded_, ElementsAre(Place(Tensor(tensor).file_offset, Tensor(tensor).bytes)));
    discarded_.clear();
    EXPECT_TRUE(Load(/*allow=*/true).ok());
    EXPECT_THAT(discarded_, IsEmpty());
    damaged_ = sound_;
  }

  testing::TempDir dir_;
  std::unique_ptr<GgufFile> file_;
  std::string sound_, damaged_;
  std::vector<Place> discarded_;
};

TEST_F(DamagedLoading, WhatIsSoundIsLoaded) {
  damaged_ = sound_;
  EXPECT_TRUE(Load().ok());
  Zero("blk.2.attn_q.bias");
  Zero("token_embd.weight", 300 * 256, 20 * 256);  // tokens without use
  EXPECT_TRUE(Load().ok());
  EXPECT_THAT(discarded_, IsEmpty());
}

TEST_F(DamagedLoading, MatricesAndVectorsOfZerosAreRefused) {
  damaged_ = sound_;
  Zero("blk.1.ffn_up.weight");
  ExpectRefused("blk.1.ffn_up.weight", 0, "of layer 1 is all zeros, 65536 bytes");
  Zero("blk.3.ffn_norm.weight");
  ExpectRefused("blk.3.ffn_norm.weight", 0, "of layer 3 is all zeros, 256 bytes");
  Zero("output.weight");
  ExpectRefused("output.weight", 0, "is all zeros");
}

TEST_F(DamagedLoading, AHoleInAMatrixIsRefused) {
  damaged_ = sound_;
  Zero("blk.2.ffn_down.weight", 1000, 8192);
  ExpectRefused("blk.2.ffn_down.weight", 1000, "of layer 2 has a hole, 8192 zero bytes");
  Zero("token_embd.weight", 320 * 256 - 5000, 5000);
  ExpectRefused("token_embd.weight", 320 * 256 - 5000, "has a hole, 5000 zero bytes");
}

TEST_F(DamagedLoading, NumbersThatAreNotFiniteAreRefused) {
  damaged_ = sound_;
  SetFloat("blk.0.attn_norm.weight", 7, NAN);
  ExpectRefused("blk.0.attn_norm.weight", 28, "of layer 0 has an element that is not finite, number 7");
  SetFloat("blk.0.attn_k.bias", 3, INFINITY);
  ExpectRefused("blk.0.attn_k.bias", 12, "not finite, number 3");
  SetFloat("blk.3.attn_output.weight", 5000, -INFINITY);
  ExpectRefused("blk.3.attn_output.weight", 20000, "not finite, number 5000");
}

TEST_F(DamagedLoading, AStageLooksAtItsOwnTensors) {
  damaged_ = sound_;
  Zero("blk.1.ffn_up.weight");
  EXPECT_TRUE(Load(false, 2, 4).ok());
  EXPECT_FALSE(Load(false, 1, 2).ok());
}

}  // namespace
}  // namespace stagecoach
