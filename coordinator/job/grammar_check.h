#ifndef STAGECOACH_COORDINATOR_JOB_GRAMMAR_CHECK_H_
#define STAGECOACH_COORDINATOR_JOB_GRAMMAR_CHECK_H_

#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/grammar/grammar_vocabulary.h"
#include "common/grammar/matcher.h"
#include "common/grammar/program.h"
#include "common/model/model_description.h"
#include "coordinator/request/sequence.h"

namespace stagecoach {

// Whether the last stage can hold a request to its grammar: what it would end the job for is found here, and ends the
// request alone. For one thread.
class GrammarCheck {
 public:
  explicit GrammarCheck(std::shared_ptr<const ModelDescription> model) : model_(std::move(model)) {}

  // OK without a grammar. Otherwise errors name what is wrong with
  //   the model    its vocabulary cannot write any text, or cannot end one
  //   the grammar  it does not decode, or names a token that is not there
  //   the request  a token that ends a generation is none of its stop tokens; its output does not follow the grammar
  // The vocabulary is read when the first one comes, in about 0.1 s. `matcher`, unless null: becomes the one that has
  // followed the output; stays as it is without a grammar.
  absl::Status Check(const SequenceSpec& spec, std::optional<GrammarMatcher>* matcher = nullptr);

 private:
  const std::shared_ptr<const ModelDescription> model_;
  absl::StatusOr<std::shared_ptr<const GrammarVocabulary>> vocabulary_ = absl::UnknownError("not read yet");
  std::optional<GrammarProgram> program_;  // of the last one: the next one often has the same
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_JOB_GRAMMAR_CHECK_H_
