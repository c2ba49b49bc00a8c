#ifndef STAGECOACH_COORDINATOR_TEXT_GRAMMAR_JSON_STRING_RULES_H_
#define STAGECOACH_COORDINATOR_TEXT_GRAMMAR_JSON_STRING_RULES_H_

#include <map>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "coordinator/text/grammar/json/json_rules.h"
#include "coordinator/text/grammar/json/schema_keywords.h"
#include "coordinator/text/grammar/regex.h"
#include "coordinator/text/grammar/rules.h"

namespace stagecoach {

// Strings as the keywords pattern, format, minLength and maxLength ask for them. Each format is one rule.
class StringRules {
 public:
  explicit StringRules(JsonRules* json) : json_(*json) {}

  // With its quotes. Errors as AddJsonSchema.
  absl::StatusOr<ExprId> Build(const SchemaKeywords& all, const SchemaDocument& document);

 private:
  // What a pattern or a format makes of the characters between the quotes; absent: neither is there.
  absl::StatusOr<std::optional<RegexExpr>> Characters(const SchemaKeywords& all, const SchemaDocument& document);
  absl::StatusOr<RegexExpr> Matching(absl::string_view pattern);

  JsonRules& json_;
  std::map<std::string, RegexExpr> formats_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_TEXT_GRAMMAR_JSON_STRING_RULES_H_
