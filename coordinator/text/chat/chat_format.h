#ifndef STAGECOACH_COORDINATOR_TEXT_CHAT_CHAT_FORMAT_H_
#define STAGECOACH_COORDINATOR_TEXT_CHAT_CHAT_FORMAT_H_

// How one model is talked to: its chat templates, for conversations with tools and without, what they can do, and
// messages put into the shape that they take.

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/ids.h"
#include "common/gguf/gguf_file.h"
#include "coordinator/text/chat/chat_abilities.h"
#include "coordinator/text/chat/chat_template.h"
#include "coordinator/text/marked_text.h"
#include "coordinator/text/tokenizer.h"

namespace stagecoach {

// Immutable and thread-safe. Copies are cheap.
class ChatFormat {
 public:
  // Renders samples, as ProbeAbilities does. Never fails: a model whose templates cannot be used is one that cannot be
  // talked to, but can do all else. `tokenizer`, the model's, outlives this.
  ChatFormat(const ChatTemplateChoice& choice, const GgufMetadata& metadata, const Tokenizer* tokenizer);

  // Why a conversation with tools, or one without, cannot be written, in words that say what can be done; OK where it
  // can be. kNotFound: there is no template. kInvalidArgument: there is, but it does not parse.
  absl::Status usable(bool with_tools) const { return Of(with_tools).made.status(); }

  // The text of a conversation that is as CheckMessages, CheckTools and CheckTemplateVariables ask for, and its tokens,
  // with exactly one BOS token where the model wants one. Messages are in OpenAI's form, and reach the template in the
  // shape that it takes (ShapeMessages).
  //
  // What messages say never becomes a control token. It can become a user-defined one: a file whose vocabulary has its
  // chat markers as user-defined tokens (type 4) lets every client write them, as tokens of that type are taken
  // wherever they stand.
  //
  // Errors are those of ChatTemplate::Render, and kFailedPrecondition with usable()'s message.
  absl::StatusOr<MarkedText> Render(const Conversation& conversation, absl::Time now) const;
  absl::StatusOr<std::vector<TokenId>> Encode(const Conversation& conversation, absl::Time now) const;

  // What the template can do. With tools, where that is the same template, they are the same abilities.
  const ChatAbilities& abilities(bool with_tools) const { return Of(with_tools).abilities; }

  // Texts before which an answer ends: what a built-in template writes behind each message, where the vocabulary has no
  // token for it and so a model that goes on by itself writes it in letters. Otherwise the token that ends a message
  // ends the answer, and there are none.
  const std::vector<std::string>& answer_ends() const { return answer_ends_; }

  // The template itself, in Jinja's language: what the model writes can be told from it. Empty where there is none.
  const std::string& source(bool with_tools) const { return Of(with_tools).source; }

 private:
  struct Template {
    std::string source;
    absl::StatusOr<ChatTemplate> made;
    ChatAbilities abilities;
  };

  static Template Make(absl::StatusOr<ChatTemplateSource> source, const Tokenizer& tokenizer);
  const Template& Of(bool with_tools) const { return with_tools ? with_tools_ : without_tools_; }

  const Tokenizer* tokenizer_;
  std::vector<std::string> answer_ends_;
  Template without_tools_;
  Template with_tools_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_TEXT_CHAT_CHAT_FORMAT_H_
