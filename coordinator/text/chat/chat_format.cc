#include "coordinator/text/chat/chat_format.h"

#include <utility>

#include "common/base/status_macros.h"
#include "common/json/json_value.h"
#include "coordinator/text/chat/message_shape.h"

namespace stagecoach {

ChatFormat::Template ChatFormat::Make(absl::StatusOr<ChatTemplateSource> source, const Tokenizer& tokenizer) {
  if (!source.ok()) return {.made = source.status()};
  Template made = {.source = source->text, .made = ChatTemplate::Parse(*std::move(source), tokenizer)};
  if (made.made.ok()) made.abilities = ProbeAbilities(*made.made);
  return made;
}

ChatFormat::ChatFormat(const ChatTemplateChoice& choice, const GgufMetadata& metadata, const Tokenizer* tokenizer)
    : tokenizer_(tokenizer),
      without_tools_(Make(ChooseChatTemplate(choice, metadata, /*with_tools=*/false), *tokenizer)) {
  absl::StatusOr<ChatTemplateSource> source = ChooseChatTemplate(choice, metadata, /*with_tools=*/true);
  if (source.ok() && !source->message_end.empty() &&
      tokenizer->Encode(source->message_end, /*add_special=*/false, /*parse_special=*/true).size() != 1) {
    answer_ends_ = {source->message_end};
  }
  const bool same = source.ok() && without_tools_.made.ok() && source->name == without_tools_.made->name();
  with_tools_ = same ? without_tools_ : Make(std::move(source), *tokenizer);
}

absl::StatusOr<MarkedText> ChatFormat::Render(const Conversation& conversation, absl::Time now) const {
  const Template& used = Of(HasTools(conversation));
  if (!used.made.ok()) return absl::FailedPreconditionError(used.made.status().message());
  const Json messages = ShapeMessages(*conversation.messages, used.abilities);
  Conversation shaped = conversation;
  shaped.messages = &messages;
  return used.made->Render(shaped, now);
}

absl::StatusOr<std::vector<TokenId>> ChatFormat::Encode(const Conversation& conversation, absl::Time now) const {
  ASSIGN_OR_RETURN(const MarkedText text, Render(conversation, now));
  return tokenizer_->EncodeMarked(text, /*add_bos=*/true);
}

}  // namespace stagecoach
