#include "coordinator/text/grammar/json/schema_keywords.h"

#include "coordinator/text/grammar/json/json_schema.h"
#include "tests/testing/matchers.h"
#include "tests/unit/coordinator/text/grammar/grammar_texts.h"

namespace stagecoach {
namespace {

using testing::GrammarTexts;

GrammarTexts::Adder AnswersBy(const char* schema) {
  return [schema](GrammarRules* rules) {
    JsonRules json(rules);
    return AddJsonSchema(Json::parse(schema), &json);
  };
}

GrammarTexts ArgumentsBy(const char* parameters) {
  return GrammarTexts::Of([parameters](GrammarRules* rules) {
    JsonRules json(rules);
    return AddArguments(Json::parse(parameters), "arguments", &json);
  });
}

void ExpectUnsupported(const char* schema, const char* message) {
  EXPECT_THAT(testing::StatusOf(AnswersBy(schema)), StatusIs(absl::StatusCode::kUnimplemented, HasSubstr(message)))
      << schema;
}

TEST(SchemaKeywords, APlaceHoldsNoMoreOfItsPointerThanAnErrorShows) {
  const std::string name(90'000, '/');
  const Json schema = {{name, {{"a/~", {1, {{name, true}}}}}}};
  const SchemaPlace root = {&schema, "", 0};
  EXPECT_LT(root.Member(name).Member("a/~").pointer.size(), 2'000u);
  EXPECT_EQ(root.Member(name).Member("a/~").Element(1).Member(name).json, &schema[name]["a/~"][1][name]);
  const SchemaPlace within = {&schema[name], "", 0};
  EXPECT_EQ(within.Member("a/~").Element(1).pointer, "/a~1~0/1");
  EXPECT_LT(within.Member("a/~").Element(1).Member(name).Child(name, schema).pointer.size(), 2'000u);
  EXPECT_THAT(within.Member("a/~").Element(1).Member(name).NoValue().message(), HasSubstr("schema at /a~1~0/1/~1~1"));
}

// What "items" is for depends on the "prefixItems" beside it.
TEST(SchemaKeywords, ItemsAndPrefixItemsAreOfOneSchemaAlone) {
  for (const char* schema : {
           R"({"allOf": [{"items": {"type": "string"}, "maxItems": 1}, {"prefixItems": [{"type": "integer"}]}]})",
           R"({"items": {"type": "integer"}, "anyOf": [{"prefixItems": [{"const": "x"}]}, {"maxItems": 1}]})",
           R"({"items": false, "$ref": "#/$defs/a", "$defs": {"a": {"prefixItems": [{}]}}})",
           R"({"allOf": [{"items": false, "prefixItems": [{}]}, {"items": false}]})",
           R"({"allOf": [{"items": [{"type": "null"}]}, {"items": {"type": "null"}}]})",
       }) {
    ExpectUnsupported(schema, "tems: expected items and prefixItems in one alone of the schemas that must hold");
  }
  const GrammarTexts twice = GrammarTexts::Of(AnswersBy(
      R"({"allOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}, {"minItems": 2}],
          "$defs": {"a": {"prefixItems": [{"type": "null"}], "items": {"type": "integer"}}}})"));
  EXPECT_TRUE(twice.Accepts("[null, 1]"));
  EXPECT_FALSE(twice.Accepts("[1, 1]"));
  const GrammarTexts first =
      ArgumentsBy(R"({"properties": {"a": {"allOf": [{"items": {"type": "null"}}, {"prefixItems": [{}, {}]}]}}})");
  EXPECT_TRUE(first.Accepts(R"({"a": [null]})"));
  EXPECT_FALSE(first.Accepts(R"({"a": [1, 1]})"));
}

TEST(SchemaKeywords, AnIdBelowTheRootWouldMoveWhatReferencesAreTo) {
  const char* const message = "id' at the root alone";
  const char* const moved = R"({"properties": {"a": {"$id": "http://e/a", "$defs": {"x": {"enum": ["s"]}},
                                "$ref": "#/$defs/x"}}, "$defs": {"x": {"enum": [7]}}})";
  ExpectUnsupported(moved, "schema at /properties/a/$id: expected '$id' at the root alone");
  ExpectUnsupported(R"({"items": {"$id": "a", "type": "null"}})", message);
  ExpectUnsupported(R"({"$ref": "#/$defs/a/items", "$defs": {"a": {"$id": "a", "items": {}}}})", message);
  ExpectUnsupported(R"({"$schema": "http://json-schema.org/draft-04/schema#", "items": {"id": "a"}})", message);
  for (const char* schema :
       {R"({"$id": "http://e/a", "items": {"$id": "#a", "type": "null"}})",
        R"({"$id": "http://e/a", "items": {"$ref": "#/$defs/$id"}, "$defs": {"$id": {"type": "null"}}})",
        R"({"$schema": "http://json-schema.org/draft-07/schema#", "items": {"id": "a", "type": "null"}})"}) {
    const GrammarTexts nulls = GrammarTexts::Of(AnswersBy(schema));
    EXPECT_TRUE(nulls.Accepts("[null]")) << schema;
    EXPECT_FALSE(nulls.Accepts("[7]")) << schema;
  }
  const GrammarTexts open = ArgumentsBy(moved);
  EXPECT_TRUE(open.Accepts(R"({"a": "s"})"));
  EXPECT_FALSE(open.Accepts(R"({"b": "s"})"));
}

}  // namespace
}  // namespace stagecoach
