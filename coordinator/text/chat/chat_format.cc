#include "coordinator/text/chat/chat_format.h"

#include <utility>

#include "common/base/status_macros.h"
#include "nlohmann/json.hpp"

namespace stagecoach {

ChatFormat::ChatFormat(const ChatTemplateChoice& choice, const GgufMetadata& metadata, const Tokenizer* tokenizer)
    : tokenizer_(tokenizer) {
  for (Template* made : {&without_tools_, &with_tools_}) {
    absl::StatusOr<ChatTemplateSource> source = ChooseChatTemplate(choice, metadata, made == &with_tools_);
    if (!source.ok()) {
      made->made = source.status();
      continue;
    }
    made->source = source->text;
    made->made = ChatTemplate::Parse(*std::move(source), *tokenizer);
  }
}

absl::StatusOr<MarkedText> ChatFormat::Render(const Conversation& conversation, absl::Time now) const {
  const absl::StatusOr<ChatTemplate>& made = Of(HasTools(conversation)).made;
  if (!made.ok()) return absl::FailedPreconditionError(made.status().message());
  return made->Render(conversation, now);
}

absl::StatusOr<std::vector<TokenId>> ChatFormat::Encode(const Conversation& conversation, absl::Time now) const {
  ASSIGN_OR_RETURN(const MarkedText text, Render(conversation, now));
  return tokenizer_->EncodeMarked(text, /*add_bos=*/true);
}

}  // namespace stagecoach
