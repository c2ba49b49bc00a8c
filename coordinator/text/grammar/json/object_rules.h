#ifndef STAGECOACH_COORDINATOR_TEXT_GRAMMAR_JSON_OBJECT_RULES_H_
#define STAGECOACH_COORDINATOR_TEXT_GRAMMAR_JSON_OBJECT_RULES_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "coordinator/text/grammar/json/json_rules.h"
#include "coordinator/text/grammar/rules.h"

namespace stagecoach {

struct ObjectMember {
  ExprId expr;  // key and value; of an optional one it stands in some log2(members) places
  bool required;
};

// An object with these members in their order, of which only the required ones must be there; then any number of
// `extra` ones.
ExprId ObjectOf(absl::Span<const ObjectMember> members, std::optional<ExprId> extra, JsonRules* json);

// A key, with its quotes, that is written without escapes and is none of `names`.
ExprId KeyOtherThan(const std::vector<std::string>& names, JsonRules* json);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_TEXT_GRAMMAR_JSON_OBJECT_RULES_H_
