#ifndef STAGECOACH_COORDINATOR_TEXT_GRAMMAR_JSON_NUMBER_RULES_H_
#define STAGECOACH_COORDINATOR_TEXT_GRAMMAR_JSON_NUMBER_RULES_H_

#include "absl/status/statusor.h"
#include "coordinator/text/grammar/json/json_rules.h"
#include "coordinator/text/grammar/json/schema_keywords.h"
#include "coordinator/text/grammar/rules.h"

namespace stagecoach {

// Numbers, or integers alone, as the keywords minimum, maximum, exclusiveMinimum and exclusiveMaximum ask for them.
// `place`: of the schema, for errors, which are those of SchemaDocument.
absl::StatusOr<ExprId> AddNumber(bool is_integer, const SchemaKeywords& all, const SchemaPlace& place, JsonRules* json);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_TEXT_GRAMMAR_JSON_NUMBER_RULES_H_
