#ifndef STAGECOACH_COORDINATOR_TEXT_GRAMMAR_FORM_ANSWER_GRAMMARS_H_
#define STAGECOACH_COORDINATOR_TEXT_GRAMMAR_FORM_ANSWER_GRAMMARS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/text/grammar/form/answer_form.h"
#include "coordinator/text/output/output_parser.h"
#include "coordinator/text/tokenizer.h"

namespace stagecoach {

// Compiles the grammars of answers, and keeps what came of those that were asked for last: most requests of a client
// ask for the same form, also for one of which there is no grammar. Thread-safe; callers of different grammars do not
// wait for each other.
class AnswerGrammars {
 public:
  // That are kept; bytes are those of forms and programs, of one at most a quarter of all.
  static constexpr size_t kMostKept = 64, kMostKeptBytes = size_t{16} << 20;

  // `tokenizer` outlives this.
  explicit AnswerGrammars(const Tokenizer* tokenizer) : tokenizer_(*tokenizer) {}

  // `tell` is called after each form that was compiled, also in vain, by the thread that did it. Before the first Get.
  void OnCompiled(std::function<void(int64_t us)> tell) { compiled_ = std::move(tell); }

  // The bytes of the program (common/grammar/program.h) that answers of this form follow, compiled unless it is
  // kept. Errors are those of RulesOfAnswer and CompileGrammar; kFailedPrecondition: no grammar can be followed with
  // this vocabulary (MakeGrammarVocabulary), which is looked at when the first one comes.
  absl::StatusOr<std::shared_ptr<const std::string>> Get(const AnswerForm& form, OutputFormat format,
                                                         const OutputStart& start);

 private:
  using Program = absl::StatusOr<std::shared_ptr<const std::string>>;
  struct Kept {
    std::string key;
    Program program;
    size_t bytes() const {
      return key.size() + (program.ok() ? (*program)->size() : program.status().message().size());
    }
  };

  absl::Status CheckVocabulary();
  Program Compile(const AnswerForm& form, OutputFormat format, const OutputStart& start) const;
  std::optional<Program> Find(const std::string& key);
  void Keep(Kept kept);

  const Tokenizer& tokenizer_;
  std::function<void(int64_t us)> compiled_ = [](int64_t) {};
  std::once_flag looked_;
  absl::Status vocabulary_;  // once it was looked at
  std::mutex mu_;
  // Guarded by mu_.
  std::list<Kept> kept_;  // the last one that was asked for stands first
  size_t kept_bytes_ = 0;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_TEXT_GRAMMAR_FORM_ANSWER_GRAMMARS_H_
