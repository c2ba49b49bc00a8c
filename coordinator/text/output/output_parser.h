#ifndef STAGECOACH_COORDINATOR_TEXT_OUTPUT_OUTPUT_PARSER_H_
#define STAGECOACH_COORDINATOR_TEXT_OUTPUT_OUTPUT_PARSER_H_

// Parts the text of a model into reasoning, content and calls of tools while it is written.

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/string_view.h"
#include "common/json/json.h"
#include "coordinator/text/output/output_format.h"

namespace stagecoach {

enum class OutputKind {
  kReasoning,
  kContent,
  // A call is kCallStart, any number of kCallArguments, kCallEnd, with nothing between; only of a call that could be
  // read to its end. Calls come in the order in which the model wrote them.
  kCallStart,
  kCallArguments,
  kCallEnd,
};

struct OutputDelta {
  OutputKind kind;
  // Reasoning, content; kCallStart: the name of the function; kCallArguments: a piece of the arguments, which are the
  // text of a JSON object. Empty for kCallEnd.
  std::string text;
  std::string call_id;  // kCallStart: the model's own; empty where it gave none

  bool operator==(const OutputDelta&) const = default;
};

// What must be known of the tools of a request. Immutable.
class OutputTools {
 public:
  OutputTools() = default;  // none: the text of a call is content then
  // A list of {"type": "function", "function": {"name", "parameters": a JSON schema}}; whatever is not of this shape
  // in it is left out.
  explicit OutputTools(const Json& tools);

  bool empty() const { return functions_.empty(); }
  bool Has(absl::string_view function) const { return functions_.contains(function); }
  enum class Parameter { kUnknown, kText, kOther };
  // kText: the schema allows a string, so that a value without quotes is one.
  Parameter Find(absl::string_view function, absl::string_view parameter) const;

 private:
  absl::flat_hash_map<std::string, absl::flat_hash_map<std::string, Parameter>> functions_;
};

struct OutputStart {
  // What the prompt ends with; a few hundred bytes are enough. It tells whether the answer begins inside a reasoning
  // block, or after one that the prompt closed.
  std::string prompt_end;
  // The answer continues reasoning of which the prompt has a part already: begins inside whatever the prompt ends with.
  bool inside_reasoning = false;

  // Of an answer to a prompt with this text.
  static OutputStart After(absl::string_view prompt);
};

// Fed with the text of an answer, control tokens as their text and without the token that ended it. What is fed as a
// control token is a marker or nothing: where it turns out to be content or reasoning it is left out. How the text is
// cut to pieces makes no difference to what comes out, pieces of one kind put together. Text leaves once it cannot
// belong to a marker any more, a call once it is complete; the memory is bounded by kMostCallBytes. What can not be
// read as a call is content, with those of its markers that were fed as text. Of the text only markers are left out,
// and the white space that belongs to them: at both ends of a reasoning block, after it, and around calls where no text
// follows. Bytes that are no UTF-8 pass through.
//
// Not thread-safe.
class OutputParser {
 public:
  static constexpr size_t kMostCallBytes = 256 << 10;  // what is longer is no call but content

  // `tools`: null or empty: there are none.
  static std::unique_ptr<OutputParser> Make(OutputFormat format, const OutputStart& start,
                                            std::shared_ptr<const OutputTools> tools);
  virtual ~OutputParser() = default;

  // No delta has an empty text but kCallEnd.
  std::vector<OutputDelta> Feed(absl::string_view text);
  // The text of one control token. A stop string may have taken its beginning.
  std::vector<OutputDelta> FeedControl(absl::string_view text);
  // The text ends here. Nothing is to be fed afterwards.
  std::vector<OutputDelta> Finish();

  // Whether what has been fed ends inside reasoning, as far as that is certain.
  virtual bool inside_reasoning() const = 0;
  // Of the end of what has been fed: how many bytes are not decided yet.
  virtual size_t held_bytes() const = 0;

 protected:
  using Deltas = std::vector<OutputDelta>;

  // Takes as many steps as what is held allows; at_end: no more will come.
  virtual void Advance(bool at_end, Deltas* out) = 0;

  // The first bytes of what is held, as text without the control tokens in it.
  std::string TextOfHeld(size_t bytes) const;
  void DropHeld(size_t bytes);

  std::string held_;  // not decided yet

 private:
  struct Range {
    size_t begin, end;  // bytes since the beginning
  };
  size_t dropped_bytes_ = 0;   // before held_
  std::deque<Range> control_;  // control tokens in held_
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_TEXT_OUTPUT_OUTPUT_PARSER_H_
