#ifndef STAGECOACH_COORDINATOR_TEXT_CHAT_MESSAGE_SHAPE_H_
#define STAGECOACH_COORDINATOR_TEXT_CHAT_MESSAGE_SHAPE_H_

// Messages as clients write them, put into the shape that a template takes.

#include "common/json/json.h"
#include "coordinator/text/chat/chat_abilities.h"

namespace stagecoach {

// Gives messages that say the same. What the template takes as it is stays as it is:
//
// * content that is a list of text parts becomes one text, the parts joined by newlines; or a text becomes such a list
//   where the template takes nothing else. Lists with other parts stay;
// * `developer` becomes `system` where it is only a word to the template;
// * a system message that would be refused, or left out, is put before what the user says next, with an empty line
//   between; at the end, after what the user said last. Of several at the beginning one is made where the template
//   takes one;
// * the arguments of calls become an object or a text; a text that holds no object stays;
// * an assistant's content that is null or absent becomes "", but beside calls where null is taken; no calls, as null
// or
//   an empty list, are none at all;
// * what the assistant thought (`reasoning_content`, `reasoning` or `thinking`, the first that is a text) comes where
//   the template reads it; beside calls and content, where it takes all three only, before the content in one text.
//
// `messages` is as CheckMessages asks for, and so is what is returned. Roles that do not alternate are not mended.
Json ShapeMessages(const Json& messages, const ChatAbilities& abilities);

// The first of these points, for one message.
void ShapeContent(const ChatAbilities& abilities, Json* message);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_TEXT_CHAT_MESSAGE_SHAPE_H_
