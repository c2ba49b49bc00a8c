#ifndef STAGECOACH_TESTS_TESTING_REFERENCE_REFERENCE_MODEL_H_
#define STAGECOACH_TESTS_TESTING_REFERENCE_REFERENCE_MODEL_H_

// A whole model in double, position by position, as the papers and formats write it: the oracle for every architecture
// that runs here. It reads the file's keys and tensors itself and shares nothing with the product but the opening of a
// file and the decoding of blocks of weights, which have tests of their own. Not thread-safe.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/base/ids.h"
#include "tests/testing/reference/attention.h"
#include "tests/testing/reference/feed_forward.h"

namespace stagecoach::testing {

class ReferenceModel {
 public:
  // A file that it cannot make sense of ends the test with a message. The context that is served decides between short
  // and long rotary factors; 0: the file's.
  static std::unique_ptr<ReferenceModel> Open(const std::string& path, int64_t context = 0);

  // Takes in the next position; logits [V] after it.
  std::vector<double> Feed(TokenId token);
  // Takes in the next positions; logits [tokens][V] after each of them.
  std::vector<std::vector<double>> Logits(const std::vector<TokenId>& tokens);
  void Clear();  // the next token is at position 0

  // The least margin by which any router chose so far (FeedForward::ChoiceMargin).
  double ChoiceMargin() const;

 private:
  struct Layer {
    std::vector<double> attention_norm, attention_post_norm, ffn_norm, ffn_post_norm;  // absent ones are empty
    std::unique_ptr<reference::Attention> attention;
    std::unique_ptr<reference::FeedForward> ffn;
  };

  ReferenceModel(const reference::FileReader& file, int64_t context);
  static Layer ReadLayer(const reference::FileReader& file, int64_t index, int64_t context);
  std::vector<double> NormOrNone(const std::vector<double>& x, const std::vector<double>& weight) const;

  double eps_ = 0, embedding_scale_ = 1, residual_scale_ = 1, logit_scale_ = 1, logit_cap_ = 0;
  reference::Matrix embedding_, head_;
  std::vector<double> output_norm_, output_bias_;
  std::vector<Layer> layers_;
};

}  // namespace stagecoach::testing

#endif  // STAGECOACH_TESTS_TESTING_REFERENCE_REFERENCE_MODEL_H_
