// Random schemas: what is written by their rules is valid, and so is what the rules are asked to take, as Debian's
// python3-jsonschema says.

#include <random>

#include "absl/strings/str_cat.h"
#include "common/json/json_value.h"
#include "coordinator/text/grammar/json/json_schema.h"
#include "tests/testing/matchers.h"
#include "tests/testing/paths.h"
#include "tests/testing/subprocess.h"
#include "tests/unit/coordinator/text/grammar/grammar_texts.h"

namespace stagecoach {
namespace {

using testing::GrammarTexts;

// A schema, and valid values as JSON writes them.
struct ValidValues {
  Json schema;
  std::function<Json(std::mt19937*)> value;
};

uint32_t Pick(uint32_t count, std::mt19937* random) { return (*random)() % count; }

std::string RandomLetters(uint32_t count, std::mt19937* random) {
  static const char* const kLetters[] = {"a", "Z", "0", " ", "\"", "\\", "\n", "\x01", "é", "😀", "/", "}"};
  std::string text;
  for (; count > 0; --count) text += kLetters[Pick(std::size(kLetters), random)];
  return text;
}

ValidValues RandomString(std::mt19937* random) {
  static const std::pair<const char*, const char*> kPatterns[] = {{"^[a-c]{1,3}\"?$", "ab\""},
                                                                  {"^\\d+-\\w*$", "12-a_"},
                                                                  {"^(x|yy)*[^é\\\\]$", "xyyx!"},
                                                                  {"^[^\\s@]{1,9}@\\S\\D$", "é@aa"},
                                                                  {"^\\W[^\\w\\d]$", "-@"}};
  static const std::pair<const char*, const char*> kFormats[] = {
      {"date", "2024-02-29"},  {"uuid", "123e4567-e89b-12d3-a456-426614174000"},
      {"ipv4", "10.0.255.1"},  {"ipv6", "1:2:3:4:5:6:7:8"},
      {"email", "a.b@c.org"},  {"time", "23:59:59Z"},
      {"hostname", "a-b.org"}, {"date-time", "1999-12-31T00:00:00Z"},
      {"uri", "https://a.b/c"}};
  const uint32_t kind = Pick(4, random);
  if (kind < 2) {
    const auto& [text, example] =
        kind == 0 ? kPatterns[Pick(std::size(kPatterns), random)] : kFormats[Pick(std::size(kFormats), random)];
    const std::string value = example;
    return {{{"type", "string"}, {kind == 0 ? "pattern" : "format", text}},
            [value](std::mt19937*) { return Json(value); }};
  }
  Json schema = {{"type", "string"}};
  const uint32_t min = Pick(3, random), more = Pick(4, random);
  if (kind == 3) {
    schema["minLength"] = min;
    schema["maxLength"] = min + more;
  }
  return {schema, [min, more](std::mt19937* values) { return RandomLetters(min + Pick(more + 1, values), values); }};
}

ValidValues RandomNumber(std::mt19937* random) {
  const uint32_t kind = Pick(4, random);
  if (kind == 0) {
    const bool exclusive = Pick(2, random) == 0;
    const double min = Pick(300, random) / 8.0 - 20, more = Pick(40, random) / 4.0 + 1;
    return {{{"type", "number"},
             {exclusive ? "exclusiveMinimum" : "minimum", min},
             {exclusive ? "exclusiveMaximum" : "maximum", min + more}},
            [min, more](std::mt19937* values) { return Json(min + more * (Pick(15, values) + 1) / 16); }};
  }
  if (kind == 1) {
    return {{{"type", "number"}}, [](std::mt19937* values) {
              static const double kNumbers[] = {0, -1, 0.5, -12.25, 1e21, 1e-7, 123456789012};
              return Json(kNumbers[Pick(std::size(kNumbers), values)]);
            }};
  }
  const int64_t min = static_cast<int64_t>(Pick(2000, random)) - 1000, more = Pick(3000, random);
  const bool exclusive = Pick(2, random) == 0;
  Json schema = {{"type", "integer"}, {exclusive ? "exclusiveMinimum" : "minimum", exclusive ? min - 1 : min}};
  if (Pick(2, random) == 0) schema["maximum"] = min + more;
  return {schema, [min, more](std::mt19937* values) {
            return Json(min + static_cast<int64_t>(Pick(static_cast<uint32_t>(more) + 1, values)));
          }};
}

ValidValues RandomSchema(int depth, std::mt19937* random);
Json RandomMixture(int depth, std::mt19937* random);

ValidValues RandomObject(int depth, std::mt19937* random) {
  struct Member {
    std::string name;
    ValidValues values;
    bool required;
  };
  std::vector<Member> members;
  Json schema = {{"type", "object"}, {"properties", Json::object()}};
  for (uint32_t i = Pick(5, random); i > 0; --i) {
    members.push_back({absl::StrCat("k", i, RandomLetters(Pick(2, random), random)), RandomSchema(depth - 1, random),
                       Pick(2, random) == 0});
    schema["properties"][members.back().name] = members.back().values.schema;
    if (members.back().required) schema["required"].push_back(members.back().name);
  }
  const uint32_t additional = Pick(4, random);
  if (additional == 0) schema["additionalProperties"] = false;
  if (additional == 1) schema["additionalProperties"] = true;
  if (additional == 2) schema["additionalProperties"] = {{"type", "integer"}};
  return {schema, [members, additional](std::mt19937* values) {
            Json object = Json::object();
            for (const Member& member : members) {
              if (member.required || Pick(2, values) == 0) object[member.name] = member.values.value(values);
            }
            for (uint32_t i = additional % 3 != 0 ? Pick(3, values) : 0; i > 0; --i)
              object[absl::StrCat("k", i, "+")] = i;
            return object;
          }};
}

ValidValues RandomArray(int depth, std::mt19937* random) {
  const uint32_t min = Pick(3, random), more = Pick(3, random), prefix_size = Pick(3, random);
  std::vector<ValidValues> prefix;
  for (uint32_t i = 0; i < prefix_size; ++i) prefix.push_back(RandomSchema(depth - 1, random));
  const ValidValues items = RandomSchema(depth - 1, random);
  const uint32_t most = std::max(min, prefix_size) + more;
  Json schema = {{"type", "array"}, {"items", items.schema}, {"minItems", min}, {"maxItems", most}};
  for (const ValidValues& values : prefix) schema["prefixItems"].push_back(values.schema);
  return {schema, [=](std::mt19937* values) {
            Json array = Json::array();
            for (const ValidValues& one : prefix) array.push_back(one.value(values));
            const size_t size = std::max(min, prefix_size) + Pick(more + 1, values);
            while (array.size() < size) array.push_back(items.value(values));
            return array;
          }};
}

ValidValues RandomChoice(int depth, std::mt19937* random) {
  if (Pick(2, random) == 0) {
    const Json values = {"a\"", 1, nullptr, {{"x", {1, false}}}, Json::array(), -2.5};
    return {{{"enum", values}}, [values](std::mt19937* random_values) { return values[Pick(6, random_values)]; }};
  }
  const ValidValues a = RandomSchema(depth - 1, random), b = RandomSchema(depth - 1, random);
  return {{{"anyOf", {a.schema, b.schema}}},
          [a, b](std::mt19937* values) { return Pick(2, values) == 0 ? a.value(values) : b.value(values); }};
}

ValidValues RandomSchema(int depth, std::mt19937* random) {
  const uint32_t kind = Pick(depth > 0 ? 8 : 4, random);
  switch (kind) {
    case 0: return RandomString(random);
    case 1: return RandomNumber(random);
    case 2:
      return {{{"type", {"boolean", "null"}}},
              [](std::mt19937* values) { return Pick(2, values) == 0 ? Json(true) : Json(); }};
    case 3:  // a list of any length, of its own kind
      return {{{"$ref", "#/$defs/list"}}, [](std::mt19937* values) {
                Json list = {{"next", nullptr}};
                for (uint32_t i = Pick(3, values); i > 0; --i) list = {{"v", i}, {"next", list}};
                return list;
              }};
    case 4:
    case 5: return RandomObject(depth, random);
    case 6: return RandomArray(depth, random);
    default: return RandomChoice(depth, random);
  }
}

const Json& ListDefinition() {
  static const auto* const kList = new Json(Json::parse(R"({"type": "object", "properties": {"v": {"type": "integer"},
                      "next": {"anyOf": [{"$ref": "#/$defs/list"}, {"type": "null"}]}}, "required": ["next"]})"));
  return *kList;
}

// Some keywords of one kind.
Json RandomKeywords(int depth, std::mt19937* random) {
  const auto some = [&] { return depth > 0 ? RandomMixture(depth - 1, random) : Json({{"type", "string"}}); };
  const auto name = [&] { return std::string(1, static_cast<char>('a' + Pick(3, random))); };
  static const Json& types =
      *new Json({"array", "object", {"array", "integer"}, {"integer", "string"}, {"object", "null"}});
  switch (Pick(8, random)) {
    case 0: return {{"type", types[Pick(5, random)]}};
    case 1: return {{Pick(2, random) == 0 ? "minLength" : "maxLength", Pick(3, random)}};
    case 2: return {{Pick(2, random) == 0 ? "minimum" : "exclusiveMaximum", static_cast<int>(Pick(9, random)) - 4}};
    case 3: return {{"prefixItems", {some(), some()}}};
    case 4:
      if (Pick(2, random) == 0) return {{"items", Pick(4, random) == 0 ? Json(false) : some()}};
      return {{Pick(2, random) == 0 ? "minItems" : "maxItems", Pick(4, random)}};
    case 5: return {{"properties", {{name(), some()}, {name(), some()}}}};
    case 6: return {{"required", Json::array({name()})}};
    default: return {{"additionalProperties", Pick(2, random) == 0 ? Json(false) : some()}};
  }
}

// Keywords of several kinds beside each other, in allOf, in anyOf and behind $ref: of many no value is valid.
Json RandomMixture(int depth, std::mt19937* random) {
  Json schema = RandomKeywords(depth, random);
  for (uint32_t i = Pick(3, random); i > 0; --i) schema.update(RandomKeywords(depth, random));
  if (depth == 0) return schema;
  const auto list = [&] { return Json::array({RandomMixture(depth - 1, random), RandomKeywords(depth - 1, random)}); };
  if (Pick(3, random) == 0) schema["allOf"] = list();
  if (Pick(3, random) == 0) schema["anyOf"] = list();
  if (Pick(3, random) == 0) schema["$ref"] = Pick(2, random) == 0 ? "#/$defs/a" : "#/$defs/b";
  return schema;
}

// Appends a line for each of the mixtures that are no error, and returns how many texts these have.
int AppendMixtures(int mixtures, std::mt19937* random, std::string* cases) {
  int texts = 0;
  for (int i = 0; i < mixtures; ++i) {
    Json schema = RandomMixture(2, random);
    Json& definitions = schema["$defs"] = {{"a", RandomMixture(0, random)}, {"b", RandomMixture(1, random)}};
    if (definitions["b"].contains("$ref")) definitions["b"]["$ref"] = "#/$defs/a";  // not itself
    const GrammarTexts::Adder add = [&](GrammarRules* rules) {
      JsonRules json(rules);
      return AddJsonSchema(schema, &json);
    };
    if (!testing::StatusOf(add).ok()) continue;
    GrammarTexts grammar = GrammarTexts::Of(add);
    Json line = {{"schema", schema}, {"texts", Json::array()}};
    for (int j = 0; j < 8; ++j, ++texts) line["texts"].push_back(grammar.RandomText(random));
    absl::StrAppend(cases, CompactJson(line), "\n");
  }
  return texts;
}

TEST(ByAnotherValidator, WhatIsWrittenIsValidAndCanonicalValuesCanBeWritten) {
  const std::string script = testing::SourcePath("tests/unit/coordinator/text/grammar/json/validate.py");
  if (testing::RunProgram("/usr/bin/python3", {script}, "").exit_code == 77) {
    GTEST_SKIP() << "NOT RUN: no jsonschema for /usr/bin/python3 (Debian's package python3-jsonschema has it)";
  }
  std::mt19937 random(7);
  std::string cases;
  int texts = 0;
  for (int i = 0; i < 60; ++i) {
    ValidValues values = RandomObject(3, &random);
    values.schema["$defs"]["list"] = ListDefinition();
    GrammarTexts grammar = GrammarTexts::Of([&](GrammarRules* rules) {
      JsonRules json(rules);
      return AddJsonSchema(values.schema, &json);
    });
    Json line = {{"schema", values.schema}, {"texts", Json::array()}};
    for (int j = 0; j < 12; ++j) {
      line["texts"].push_back(grammar.RandomText(&random));
      const Json value = values.value(&random);
      const std::string text = j % 2 == 0 ? CompactJson(value) : value.dump(2);
      EXPECT_TRUE(grammar.Accepts(text)) << text << "\nof " << values.schema.dump();
      line["texts"].push_back(text);
      texts += 2;
    }
    absl::StrAppend(&cases, CompactJson(line), "\n");
  }
  const int of_mixtures = AppendMixtures(600, &random, &cases);
  EXPECT_GT(of_mixtures, 800);
  texts += of_mixtures;
  EXPECT_THAT(testing::RunProgram("/usr/bin/python3", {script}, cases),
              testing::Prints(absl::StrCat(texts, " texts\n")));
}

}  // namespace
}  // namespace stagecoach
