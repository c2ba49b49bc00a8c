#ifndef STAGECOACH_COORDINATOR_TEXT_GRAMMAR_JSON_JSON_SCHEMA_H_
#define STAGECOACH_COORDINATOR_TEXT_GRAMMAR_JSON_JSON_SCHEMA_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/json/json.h"
#include "coordinator/text/grammar/json/json_rules.h"
#include "coordinator/text/grammar/rules.h"

namespace stagecoach {

// The JSON texts that are valid by a schema (of drafts 4 to 2020-12, as far as they agree). What is written is valid;
// of valid values some are never written, as said here.
//
//   any      type, enum, const, anyOf, oneOf (read as anyOf: its alternatives have to exclude each other), allOf, $ref
//            within the document (also recursive), $id at its root alone. What stands beside these and beside each
//            other must hold as well. Without a type, the keywords tell it. Of alternatives those that no value fits
//            are left out, so are properties that need not be there.
//   values   of enum and const: beside them lengths of strings, and format, which is ignored; nothing else but a type.
//   objects  properties in their order, required, additionalProperties. Without the latter there are no others, unless
//            the schema has no properties at all; others come last and have no name that needs an escape.
//   lists    items, prefixItems (all of them are written, unless maxItems is less; without items nothing follows them),
//            minItems, maxItems; the older way to write the first two, items (a list) and additionalItems. Of schemas
//            that must all hold one alone has items or prefixItems.
//   strings  minLength, maxLength, pattern (regex.h; from beginning to end, whether or not it has ^ and $), format
//            (date, time, date-time, duration, uuid, ipv4, ipv6, email, hostname, uri; those that no draft has are
//            ignored, and all beside a pattern). Lengths beside a pattern or a format only where these imply them.
//   numbers  minimum, maximum, exclusiveMinimum, exclusiveMaximum. JsonRules says how long they may be.
//   ignored  annotations, and what no draft of JSON Schema knows.
//
// Errors name the place by its JSON pointer:
//   kUnimplemented      a keyword that is not supported, or that is not where it stands
//   kInvalidArgument    this is no schema, or no value is valid
//   kResourceExhausted  more than kMostGrammarTextBytes, or than the counts in SchemaDocument
// A schema that is a loop of anyOf alone is for CompileGrammar to find.
//
// Requires a schema as ParseJson gives it.
absl::StatusOr<ExprId> AddJsonSchema(const Json& schema, JsonRules* json);

// Objects: the arguments of a function with these parameters (null: any). Bound as far as can be: a keyword that is not
// supported is left out, and where no meaning is left, any value will do. Fails with kResourceExhausted alone. `name`:
// what the names of rules begin with, for messages.
absl::StatusOr<ExprId> AddArguments(const Json& parameters, absl::string_view name, JsonRules* json);

// The same arguments one by one, for formats that write each in tags of its own. Absent: any arguments will do.
struct ArgumentRule {
  std::string name;
  bool required;
  ExprId value;                                   // as JSON
  std::optional<std::vector<std::string>> texts;  // of strings these alone will do; absent: others, too
};
absl::StatusOr<std::optional<std::vector<ArgumentRule>>> AddEachArgument(const Json& parameters, absl::string_view name,
                                                                         JsonRules* json);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_TEXT_GRAMMAR_JSON_JSON_SCHEMA_H_
