#include "coordinator/text/grammar/json/json_schema.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/json/json_value.h"
#include "tests/testing/matchers.h"
#include "tests/unit/coordinator/text/grammar/grammar_texts.h"

namespace stagecoach {
namespace {

using testing::GrammarTexts;

GrammarTexts::Adder FromSchema(const std::string& schema) {
  return [schema](GrammarRules* rules) {
    JsonRules json(rules);
    return AddJsonSchema(Json::parse(schema), &json);
  };
}

GrammarTexts::Adder FromParameters(const std::string& parameters) {
  return [parameters](GrammarRules* rules) {
    JsonRules json(rules);
    return AddArguments(Json::parse(parameters), "arguments", &json);
  };
}

std::vector<std::string> AcceptedBy(const GrammarTexts::Adder& add, const std::vector<std::string>& texts) {
  const GrammarTexts grammar = GrammarTexts::Of(add);
  std::vector<std::string> accepted;
  for (const std::string& text : texts) {
    if (grammar.Accepts(text)) accepted.push_back(text);
  }
  return accepted;
}

std::vector<std::string> Valid(const std::string& schema, const std::vector<std::string>& texts) {
  return AcceptedBy(FromSchema(schema), texts);
}

std::string SchemaError(const std::string& schema) {
  return std::string(testing::StatusOf(FromSchema(schema)).message());
}

TEST(JsonSchema, WithoutADemandAnyValueWillDo) {
  const std::vector<std::string> values = {"null",
                                           "true",
                                           "-0.5e+10",
                                           "\"a\\n\\u00e9\\ud83d\\ude00\"",
                                           "[]",
                                           "[1, [2,\n  {}]]",
                                           R"({"a": {"b": []}, "c" : 1})"};
  for (const std::string schema : {"true", "{}", R"({"title": "x", "description": "y", "x-y": 1, "default": 2})"}) {
    EXPECT_EQ(Valid(schema, values), values) << schema;
  }
  EXPECT_THAT(
      Valid("{}", {"",        " 1",      "1 ",      "01",        "+1",      "1.",     ".5",          "nul",
                   "'a'",     "\"\n\"",  "\"\\x\"", "[1,]",      "{\"a\"}", "{1: 2}", "\"\\ud83d\"", "\"\\ud83dx\"",
                   "[1,  2]", "[\n\n1]", "1e999",   "{\"a\":1,}"}),
      IsEmpty());
}

TEST(JsonSchema, HasTypes) {
  const std::vector<std::string> values = {"null", "true", "1", "1.5", "\"a\"", "[1]", "{\"a\": 1}"};
  EXPECT_THAT(Valid(R"({"type": "null"})", values), ElementsAre("null"));
  EXPECT_THAT(Valid(R"({"type": "boolean"})", values), ElementsAre("true"));
  EXPECT_THAT(Valid(R"({"type": "integer"})", values), ElementsAre("1"));
  EXPECT_THAT(Valid(R"({"type": "number"})", values), ElementsAre("1", "1.5"));
  EXPECT_THAT(Valid(R"({"type": "string"})", values), ElementsAre("\"a\""));
  EXPECT_THAT(Valid(R"({"type": "array"})", values), ElementsAre("[1]"));
  EXPECT_THAT(Valid(R"({"type": "object"})", values), ElementsAre("{\"a\": 1}"));
  EXPECT_THAT(Valid(R"({"type": ["integer", "string", "null"]})", values), ElementsAre("null", "1", "\"a\""));
  // As the keywords tell.
  EXPECT_THAT(Valid(R"({"minItems": 1})", values), ElementsAre("[1]"));
  EXPECT_THAT(Valid(R"({"properties": {"a": {}}})", values), ElementsAre("{\"a\": 1}"));
  EXPECT_THAT(Valid(R"({"maxLength": 1})", values), ElementsAre("\"a\""));
}

TEST(JsonSchema, ObjectsHaveTheirPropertiesInOrder) {
  const std::string schema = R"({"type": "object", "required": ["b"], "properties": {
      "a": {"type": "integer"}, "b": {"type": "boolean"}, "c": {"enum": ["x"]}, "d\"": {"type": "null"}}})";
  EXPECT_THAT(
      Valid(schema, {R"({"b": true})", R"({"a": 1, "b": true})", "{\n  \"a\": 1,\n  \"b\": true,\n  \"c\": \"x\"\n}",
                     R"({"b":true,"d\"":null})", R"({"a": 1})", R"({"b": true, "a": 1})", R"({})",
                     R"({"b": true, "e": 1})", R"({"b": 1})", R"({"b": true,})"}),
      SizeIs(4));
  const std::string optional = R"({"properties": {"a": {}, "b": {}, "c": {}, "d": {}, "e": {}}})";
  int accepted = 0;
  for (int members = 0; members < 32; ++members) {
    std::string text = "{", reversed = "}";
    for (int i = 0; i < 5; ++i) {
      if ((members >> i & 1) == 0) continue;
      const std::string member = absl::StrCat("\"", std::string(1, static_cast<char>('a' + i)), "\": 1");
      absl::StrAppend(&text, text.size() > 1 ? ", " : "", member);
      reversed = absl::StrCat(member, reversed.size() > 1 ? ", " : "", reversed);
    }
    const bool is_one = (members & (members - 1)) == 0;
    accepted += Valid(optional, {text + "}"}).size();
    EXPECT_THAT(Valid(optional, {"{" + reversed}), SizeIs(is_one ? 1 : 0)) << reversed;
  }
  EXPECT_EQ(accepted, 32);
  EXPECT_THAT(Valid(R"({"type": "object", "properties": {}})", {"{}", "{ }", R"({"a": 1})", "1"}), SizeIs(3));
  EXPECT_THAT(Valid(R"({"properties": {}, "additionalProperties": false})", {"{}", "{ }", R"({"a": 1})"}), SizeIs(2));
}

TEST(JsonSchema, AdditionalPropertiesComeLastAndHaveOtherNames) {
  const std::string schema =
      R"({"properties": {"ab": {"type": "null"}, "abc": {"type": "null"}}, "additionalProperties": {"type": "integer"}})";
  EXPECT_THAT(
      Valid(schema, {R"({"ab": null, "a": 1, "abd": 2})", R"({"": 3, "abcd": 4, "b": 5, "é": 6})", R"({})",
                     R"({"ab": 1})", R"({"abc": 1})", R"({"x": 1, "ab": null})", R"({"x": "y"})", R"({"\u0061b": 1})"}),
      SizeIs(3));
  EXPECT_THAT(Valid(R"({"additionalProperties": false})", {"{}", R"({"a": 1})"}), ElementsAre("{}"));
  EXPECT_THAT(Valid(R"({"additionalProperties": true})", {"{}", R"({"a": 1})"}), SizeIs(2));
  EXPECT_THAT(Valid(R"({"required": ["a"]})", {"{}", R"({"a": [1]})"}), ElementsAre(R"({"a": [1]})"));
  EXPECT_THAT(Valid(R"({"required": ["a"], "additionalProperties": {"type": "null"}})",
                    {R"({"a": 1})", R"({"a": null, "b": null})"}),
              ElementsAre(R"({"a": null, "b": null})"));
  EXPECT_THAT(Valid(R"({"properties": {"a": false}, "additionalProperties": true})", {R"({"a": 1})", R"({"b": 1})"}),
              ElementsAre(R"({"b": 1})"));
  // As generators write a map.
  EXPECT_THAT(
      Valid(R"({"type": "object", "propertyNames": {"type": "string"}, "additionalProperties": {"type": "null"}})",
            {"{}", R"({"a": null, "b": null})", R"({"a": 1})"}),
      SizeIs(2));
}

TEST(JsonSchema, ListsHaveItemsAndCounts) {
  const std::vector<std::string> lists = {"[]", "[1]", "[1, 2]", "[1, 2, 3]", "[\n 1\n,\n 2]", "[true]", "[1, true]"};
  EXPECT_THAT(Valid(R"({"type": "array", "items": {"type": "integer"}})", lists), SizeIs(5));
  EXPECT_THAT(Valid(R"({"items": {"type": "integer"}, "minItems": 2})", lists),
              ElementsAre(lists[2], lists[3], lists[4]));
  EXPECT_THAT(Valid(R"({"items": {"type": "integer"}, "minItems": 1, "maxItems": 1})", lists), ElementsAre("[1]"));
  EXPECT_THAT(Valid(R"({"maxItems": 0})", lists), ElementsAre("[]"));
  EXPECT_THAT(Valid(R"({"items": false})", lists), ElementsAre("[]"));
  EXPECT_THAT(Valid(R"({"type": "array", "maxItems": 1})", lists), ElementsAre("[]", "[1]", "[true]"));
  const std::string pair = R"([{"type": "integer"}, {"type": "boolean"}])";
  EXPECT_THAT(Valid(absl::StrCat(R"({"prefixItems": )", pair, "}"), lists), ElementsAre("[1, true]"));
  EXPECT_THAT(Valid(absl::StrCat(R"({"items": )", pair, "}"), lists), ElementsAre("[1, true]"));
  EXPECT_THAT(Valid(absl::StrCat(R"({"prefixItems": )", pair, R"(, "maxItems": 1})"), lists), ElementsAre("[1]"));
  EXPECT_THAT(
      Valid(absl::StrCat(R"({"prefixItems": )", pair, R"(, "items": {"type": "null"}, "minItems": 3, "maxItems": 4})"),
            {"[1, true]", "[1, true, null]", "[1, true, null, null]", "[1, true, null, null, null]"}),
      ElementsAre("[1, true, null]", "[1, true, null, null]"));
}

TEST(JsonSchema, ListsOfOlderDraftsHaveAdditionalItems) {
  const std::vector<std::string> lists = {"[]", "[1]", "[1, true]", "[1, true, null]", "[1, true, null, null]"};
  const std::string pair = R"({"items": [{"type": "integer"}, {"type": "boolean"}], "additionalItems": )";
  EXPECT_THAT(Valid(absl::StrCat(pair, R"(false, "minItems": 2, "maxItems": 2})"), lists), ElementsAre("[1, true]"));
  EXPECT_THAT(Valid(absl::StrCat(pair, R"({"type": "null"}, "maxItems": 3})"), lists),
              ElementsAre("[1, true]", "[1, true, null]"));
  EXPECT_THAT(Valid(absl::StrCat(pair, R"(true, "minItems": 4})"), lists), ElementsAre(lists[4]));
  EXPECT_THAT(SchemaError(absl::StrCat(pair, R"(false, "minItems": 3})")), HasSubstr("no value can be valid"));
  // Where items is no list, they say nothing.
  EXPECT_THAT(Valid(R"({"items": {"type": "integer"}, "additionalItems": false})", lists), ElementsAre("[]", "[1]"));
}

TEST(JsonSchema, StringsHaveLengthsInCharacters) {
  const std::vector<std::string> texts = {R"("")", R"("a")", R"("é😀")", R"("\n\ud83d\ude00\u0041")", R"("abcd")"};
  EXPECT_THAT(Valid(R"({"type": "string", "minLength": 1, "maxLength": 3})", texts),
              ElementsAre(texts[1], texts[2], texts[3]));
  EXPECT_THAT(Valid(R"({"type": "string", "minLength": 3})", texts), ElementsAre(texts[3], texts[4]));
  EXPECT_THAT(Valid(R"({"type": "string", "maxLength": 0})", texts), ElementsAre(texts[0]));
}

TEST(JsonSchema, StringsHavePatternsFromBeginningToEnd) {
  EXPECT_THAT(
      Valid(R"({"pattern": "^[a-z]+\"\\\\\\n?$"})", {R"("ab\"\\")", R"("ab\"\\\n")", R"("ab")", R"("1ab\"\\")"}),
      SizeIs(2));
  EXPECT_THAT(Valid(R"({"pattern": "^[a-z]{2,4}$", "minLength": 2, "maxLength": 9})", {R"("ab")", R"("a")"}),
              SizeIs(1));
  EXPECT_THAT(SchemaError(R"({"pattern": "^[a-z]{2,4}$", "minLength": 3})"),
              HasSubstr("at /minLength: expected a pattern"));
  EXPECT_THAT(SchemaError(R"({"pattern": "a+", "maxLength": 3})"), HasSubstr("at /maxLength: expected a pattern"));
  // A format beside it is what it spells out.
  EXPECT_THAT(Valid(R"x({"format": "uuid", "pattern": "^([0-9a-f]{2}|x)$"})x", {R"("0f")", R"("x")", R"("0g")"}),
              SizeIs(2));
  EXPECT_THAT(SchemaError(R"({"format": 1, "pattern": "a"})"), HasSubstr("at /format: expected the name"));
  EXPECT_THAT(SchemaError(R"x({"pattern": "a(?=b)"})x"), HasSubstr("at /pattern: pattern: look-around"));
}

TEST(JsonSchema, StringsHaveFormats) {
  const auto of_format = [](const std::string& format, const std::vector<std::string>& texts) {
    std::vector<std::string> accepted;
    const GrammarTexts grammar = GrammarTexts::Of(FromSchema(absl::StrCat(R"({"format": ")", format, "\"}")));
    for (const std::string& text : texts) {
      if (grammar.Accepts(absl::StrCat("\"", text, "\""))) accepted.push_back(text);
    }
    return accepted;
  };
  EXPECT_THAT(of_format("date", {"2024-02-29", "2000-02-29", "1999-12-31", "2023-02-29", "1900-02-29", "2024-04-31",
                                 "2024-13-01", "2024-00-10", "24-01-01"}),
              ElementsAre("2024-02-29", "2000-02-29", "1999-12-31"));
  EXPECT_THAT(of_format("time", {"23:59:59Z", "00:00:00.123+05:30", "24:00:00Z", "12:00:00", "12:60:00Z"}), SizeIs(2));
  EXPECT_THAT(of_format("date-time", {"2024-02-29T10:00:00Z", "2024-02-29", "2024-02-29 10:00:00Z"}), SizeIs(1));
  EXPECT_THAT(of_format("duration", {"P1D", "P3Y6M4D", "PT36H", "P1DT12H30M5S", "P2W", "P", "PT", "1D"}), SizeIs(5));
  EXPECT_THAT(of_format("uuid", {"123e4567-e89b-12d3-a456-426614174000", "123e4567e89b12d3a456426614174000"}),
              SizeIs(1));
  EXPECT_THAT(of_format("ipv4", {"0.0.0.0", "255.249.199.9", "256.1.1.1", "1.2.3", "01.2.3.4"}), SizeIs(2));
  EXPECT_THAT(of_format("ipv6", {"1:2:3:4:5:6:7:8", "::1", "::", "1:2:3", "g::"}), SizeIs(3));
  EXPECT_THAT(of_format("email", {"a.b+c@example.org", "a@b", "a@", "@b", ".a@b", "a b@c"}), SizeIs(2));
  EXPECT_THAT(of_format("hostname", {"example.org", "a-b.c", "-a.b", "a..b", "a.", "a_b"}), SizeIs(2));
  EXPECT_THAT(of_format("uri", {"https://example.org:80/a?b=c#d", "mailto:a@b.c", "example.org", "http://a b"}),
              SizeIs(2));
  EXPECT_THAT(of_format("uri", {"x:", "x:/", "x:/a//b", "x://h//a/", "x://h?a/b?#/", "x:a%20", "x://@@", "x:////a",
                                "x://h@a", "x:%2"}),
              SizeIs(6));
  EXPECT_THAT(Valid(R"({"format": "email", "maxLength": 248})", {R"("a@b.c")"}), SizeIs(1));
  EXPECT_THAT(of_format("int32", {"anything"}), SizeIs(1));
  EXPECT_THAT(SchemaError(R"({"format": "iri"})"), HasSubstr("at /format: this format is not supported"));
}

TEST(JsonSchema, IntegersHaveBounds) {
  std::vector<std::string> bounds = {"-1000", "-101", "-100", "-99", "-10", "-9",  "-1",  "0",
                                     "1",     "5",    "9",    "10",  "99",  "100", "101", "1000"};
  for (const std::string& min : bounds) {
    for (const std::string& max : bounds) {
      if (std::stoi(min) > std::stoi(max)) continue;
      const GrammarTexts grammar = GrammarTexts::Of(
          FromSchema(absl::StrCat(R"({"type": "integer", "minimum": )", min, R"(, "maximum": )", max, "}")));
      for (int value = -1010; value <= 1010; value += value % 10 == 2 ? 6 : 1) {
        const bool in_range = value >= std::stoi(min) && value <= std::stoi(max);
        EXPECT_EQ(grammar.Accepts(absl::StrCat(value)), in_range) << value << " in " << min << " to " << max;
      }
    }
  }
  EXPECT_THAT(Valid(R"({"type": "integer", "exclusiveMinimum": 3, "exclusiveMaximum": 5.5})", {"3", "4", "5", "6"}),
              ElementsAre("4", "5"));
  EXPECT_THAT(Valid(R"({"type": "integer", "minimum": -2.5, "maximum": 1e3})", {"-3", "-2", "1000", "1001"}),
              ElementsAre("-2", "1000"));
  EXPECT_THAT(Valid(R"({"type": "integer", "minimum": 7})",
                    {"6", "7", "70", "123456789012345678", "1234567890123456789", "-8"}),
              ElementsAre("7", "70", "123456789012345678"));
  EXPECT_THAT(Valid(R"({"type": ["integer", "null"], "maximum": -7})", {"-6", "-7", "null", "0"}),
              ElementsAre("-7", "null"));
}

// Of so many digits, without an exponent.
std::vector<std::string> SomeNumbers() {
  std::vector<std::string> numbers = {"-1000000000000", "-999999999999", "999999999999.999999", "1000000000000", "1e0"};
  for (int whole = -13; whole <= 13; ++whole) {
    for (const char* fraction : {"", ".0", ".1", ".25", ".250000", ".249999", ".250001", ".5", ".9", ".999999",
                                 ".000001", ".00", ".0000001", "."}) {
      numbers.push_back(absl::StrCat(whole, fraction));
      if (whole == 0) numbers.push_back(absl::StrCat("-0", fraction));
    }
  }
  return numbers;
}

TEST(JsonSchema, NumbersHaveBounds) {
  const std::vector<std::string> bounds = {"-10", "-1.25", "-0.5", "0", "0.25", "1", "9.9", "10.0", "12"};
  const std::vector<std::string> numbers = SomeNumbers();
  const auto is_written = [](const std::string& text) {  // in its own form
    const size_t point = text.find('.'), behind = text.size() - point - 1;
    const bool is_zero = text[0] == '-' && text.find_first_of("123456789") == std::string::npos;
    return !is_zero && text != "1e0" && (point == std::string::npos || (behind > 0 && behind <= 6));
  };
  for (const std::string& min : bounds) {
    for (const std::string& max : bounds) {
      const double least = std::stod(min), most = std::stod(max);
      if (least >= most) continue;
      const bool exclusive = (min.size() + max.size()) % 2 == 0;
      const auto bound = [&](const char* plain, const char* other) { return exclusive ? other : plain; };
      const std::string schema =
          absl::StrCat(R"({"type": "number", ")", bound("minimum", "exclusiveMinimum"), "\": ", min, ", \"",
                       bound("maximum", "exclusiveMaximum"), "\": ", max, "}");
      const GrammarTexts grammar = GrammarTexts::Of(FromSchema(schema));
      for (const std::string& text : numbers) {
        const double value = std::stod(text);
        const bool fits = exclusive ? value > least && value < most : value >= least && value <= most;
        EXPECT_EQ(grammar.Accepts(text), fits && is_written(text)) << text << " by " << schema;
      }
    }
  }
  EXPECT_THAT(Valid(R"({"type": "number", "minimum": 0.125})", {"0.125", "0.1249", "1", "999999999999", "-1", "1e3"}),
              ElementsAre("0.125", "1", "999999999999"));
  EXPECT_THAT(Valid(R"({"minimum": 1e-7, "maximum": 0.0000025})", {"0", "0.000001", "0.000002", "0.000003", "null"}),
              ElementsAre("0.000001", "0.000002"));
  EXPECT_THAT(Valid(R"({"exclusiveMaximum": 1e10})", {"9999999999.999999", "9999999999", "-5.5"}),
              ElementsAre("9999999999", "-5.5"));
}

TEST(JsonSchema, HasValuesToChooseFrom) {
  EXPECT_THAT(
      Valid(R"({"enum": ["a\"é", 1, 2.5, null, true, [1, {"b": []}], {}]})",
            {R"("a\"é")", "1", "2.5", "null", "true", R"([1, {"b": []}])", R"([ 1,{"b":[]} ])", "{}", "false", "2"}),
      SizeIs(8));
  EXPECT_THAT(Valid(R"({"type": "string", "enum": ["a", 1, null]})", {R"("a")", "1", "null"}), ElementsAre(R"("a")"));
  EXPECT_THAT(Valid(R"({"const": {"a": [1]}})", {R"({"a": [1]})", R"({"a": []})"}), ElementsAre(R"({"a": [1]})"));
  EXPECT_THAT(Valid(R"({"const": 2, "enum": [1, 2]})", {"1", "2"}), ElementsAre("2"));
  EXPECT_THAT(Valid(R"({"enum": ["", "é", "ab", "abc", 7], "format": "date", "minLength": 1, "maxLength": 2})",
                    {R"("")", R"("é")", R"("ab")", R"("abc")", "7"}),
              ElementsAre(R"("é")", R"("ab")", "7"));
  EXPECT_THAT(SchemaError(R"({"enum": ["a"], "pattern": "a"})"), HasSubstr("at /pattern: expected no other keyword"));
  EXPECT_THAT(Valid(R"({"enum": [18446744073709551615, 1e19]})", {"18446744073709551615", "1e+19"}), SizeIs(2));
  EXPECT_THAT(SchemaError(R"({"const": {"a": [18446744073709551617]}})"), HasSubstr("below 2^64"));
}

TEST(JsonSchema, HasAlternatives) {
  const std::string schema = R"({"anyOf": [{"type": "integer"}, {"properties": {"a": {"const": 1}}, "required": ["a"]},
                                           {"properties": {"a": {"const": 2}, "b": {"type": "null"}}, "required": ["a", "b"]}]})";
  EXPECT_THAT(
      Valid(schema, {"7", R"({"a": 1})", R"({"a": 2, "b": null})", R"({"a": 2})", R"({"a": 1, "b": null})", "null"}),
      SizeIs(3));
  EXPECT_THAT(Valid(R"({"oneOf": [{"type": "null"}, {"type": "boolean"}]})", {"null", "true", "1"}), SizeIs(2));
  // What stands beside them must hold as well.
  EXPECT_THAT(
      Valid(
          R"({"type": "object", "properties": {"a": {}, "b": {}}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]})",
          {"{}", R"({"a": 1})", R"({"b": 1})", R"({"a": 1, "b": 1})"}),
      SizeIs(3));
  EXPECT_THAT(Valid(R"({"type": ["string", "null"], "anyOf": [{"type": ["null", "integer"]}, {"maxLength": 1}]})",
                    {"null", "1", R"("a")", R"("ab")"}),
              ElementsAre("null", R"("a")"));
}

TEST(JsonSchema, LeavesOutAlternativesThatNoValueFits) {
  const std::vector<std::string> texts = {"null", "1", "5", R"("a")", "{}", R"({"a": 1})", R"({"b": 1})", "[]", "[1]"};
  EXPECT_THAT(Valid(R"({"anyOf": [false, {"type": "null"}, {"enum": []}]})", texts), ElementsAre("null"));
  EXPECT_THAT(Valid(R"({"type": "integer", "oneOf": [{"type": "string"}, {"minimum": 3}]})", texts), ElementsAre("5"));
  EXPECT_THAT(Valid(R"({"type": ["integer", "null"], "minimum": 3, "maximum": 2})", texts), ElementsAre("null"));
  EXPECT_THAT(Valid(R"({"properties": {"a": {"anyOf": [false]}, "b": {}}})", texts), ElementsAre("{}", R"({"b": 1})"));
  EXPECT_THAT(Valid(R"({"additionalProperties": {"enum": []}})", texts), ElementsAre("{}"));
  EXPECT_THAT(Valid(R"({"items": {"minLength": 2, "maxLength": 1, "type": "string"}})", texts), ElementsAre("[]"));
  EXPECT_THAT(Valid(R"({"anyOf": [{"$ref": "#/$defs/a"}, {"type": "null"}], "$defs": {"a": false}})", texts),
              ElementsAre("null"));
  EXPECT_EQ(testing::StatusOf(FromSchema(R"({"anyOf": [false, {"enum": []}]})")),
            absl::InvalidArgumentError("schema at /anyOf/0: no value is allowed here"));
  EXPECT_THAT(SchemaError(R"({"properties": {"a": {"type": "string", "enum": [1]}}, "required": ["a"]})"),
              HasSubstr("schema at /properties/a: no value can be valid"));
  EXPECT_THAT(SchemaError(R"({"required": ["a"], "additionalProperties": {"enum": []}})"),
              HasSubstr("no value can be"));
}

TEST(JsonSchema, PutsTogetherWhatMustAllHold) {
  const std::string schema =
      R"({"allOf": [{"$ref": "#/$defs/named"}, {"properties": {"age": {"type": "integer"}}, "required": ["age"]}],
                                 "properties": {"name": {"minLength": 1}},
                                 "$defs": {"named": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}}})";
  EXPECT_THAT(Valid(schema, {R"({"name": "a", "age": 1})", R"({"name": "", "age": 1})", R"({"name": "a"})"}),
              ElementsAre(R"({"name": "a", "age": 1})"));
  EXPECT_THAT(Valid(R"({"allOf": [{"type": "integer"}], "description": "x"})", {"1", "null"}), ElementsAre("1"));
  EXPECT_THAT(Valid(R"({"allOf": [{"type": ["null", "integer"]}, {"minimum": 3}, {"type": ["integer", "string"]}]})",
                    {"2", "3", "null"}),
              ElementsAre("3"));
  EXPECT_THAT(SchemaError(R"({"allOf": [{"minimum": 3}, {"minimum": 4}], "type": "integer"})"),
              HasSubstr("at /allOf/1/minimum: expected no other value here than in another schema"));
  EXPECT_THAT(
      SchemaError(
          R"({"allOf": [{"properties": {"a": {}}, "additionalProperties": false}, {"properties": {"b": {}}}]})"),
      HasSubstr("at /allOf/0/additionalProperties: expected no other value"));
  EXPECT_THAT(SchemaError(R"({"allOf": [{"type": "null"}, {"type": "string"}]})"),
              HasSubstr("at /allOf/1/type: no value has"));
}

TEST(JsonSchema, FollowsReferencesAlsoToItself) {
  const std::string tree =
      R"({"$ref": "#/definitions/a~1b%20c", "definitions": {"a/b c": {"type": "object", "required": ["v"],
      "properties": {"v": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]},
                     "all": {"type": "array", "items": {"$ref": "#/definitions/a~1b c"}}}}}})";
  EXPECT_THAT(Valid(tree, {R"({"v": 1})", R"({"v": 1, "next": {"v": 2, "next": null}})",
                           R"({"v": 1, "all": [{"v": 2, "all": []}, {"v": 3}]})", R"({"v": 1, "next": {}})", "null"}),
              SizeIs(3));
  EXPECT_THAT(
      Valid(R"({"properties": {"a": {"type": "null"}, "b": {"$ref": "#/properties/a"}, "c": {"$ref": "#/allOf/0"}},
                        "allOf": [{"type": "object"}]})",
            {R"({"b": null, "c": {"x": 1}})", R"({"b": 1})"}),
      SizeIs(1));
  EXPECT_THAT(SchemaError(R"({"$ref": "https://example.org/s"})"),
              HasSubstr("at /$ref: expected a reference within the schema"));
  EXPECT_THAT(SchemaError(R"({"properties": {"a": {"$ref": "#/$defs/none"}}})"),
              HasSubstr("at /properties/a/$ref: expected the place of a schema, but nothing is at '#/$defs/none'"));
}

TEST(JsonSchema, RefusesEachKeywordThatIsNotSupportedWithItsPlace) {
  for (const std::string keyword : {"not",
                                    "if",
                                    "then",
                                    "else",
                                    "patternProperties",
                                    "propertyNames",
                                    "minProperties",
                                    "maxProperties",
                                    "dependencies",
                                    "dependentRequired",
                                    "dependentSchemas",
                                    "uniqueItems",
                                    "contains",
                                    "minContains",
                                    "maxContains",
                                    "unevaluatedItems",
                                    "unevaluatedProperties",
                                    "multipleOf",
                                    "divisibleBy",
                                    "disallow",
                                    "extends",
                                    "$dynamicRef",
                                    "$recursiveRef"}) {
    const std::string schema = absl::StrCat(R"({"properties": {"a/b": {"items": {")", keyword, R"(": 1}}}})");
    EXPECT_EQ(testing::StatusOf(FromSchema(schema)),
              absl::UnimplementedError(absl::StrCat("schema at /properties/a~1b/items/", keyword, ": the keyword '",
                                                    keyword, "' is not supported: leave it out")));
  }
  // They say nothing.
  EXPECT_EQ(SchemaError(R"({"type": "array", "uniqueItems": false, "unevaluatedItems": true})"), "");
  EXPECT_EQ(SchemaError(R"({"type": "object", "propertyNames": true, "minProperties": 0, "dependentRequired": {},
                            "dependentSchemas": {}, "unevaluatedProperties": {}, "patternProperties": {}})"),
            "");
  for (const char* schema : {R"({"propertyNames": {"type": "string", "maxLength": 1}})", R"({"minProperties": 1})",
                             R"({"unevaluatedProperties": false})", R"({"dependentRequired": {"a": []}})"}) {
    EXPECT_THAT(SchemaError(schema), HasSubstr("is not supported")) << schema;
  }
}

TEST(JsonSchema, SaysWhatIsNoSchema) {
  EXPECT_EQ(SchemaError("3"), "schema: expected a schema, found 3");
  EXPECT_THAT(
      SchemaError(R"({"items": {"type": "any"}})"),
      HasSubstr("at /items/type: expected one of null, boolean, object, array, string, integer, number, or a list of "
                "these, found \"any\""));
  EXPECT_THAT(SchemaError(R"({"properties": []})"), HasSubstr("at /properties: expected an object"));
  EXPECT_THAT(SchemaError(R"({"required": true})"), HasSubstr("at /required: expected a list of names, found true"));
  EXPECT_THAT(SchemaError(R"({"required": [1]})"), HasSubstr("at /required/0: expected a name, found 1"));
  EXPECT_THAT(SchemaError(R"({"allOf": {}})"), HasSubstr("at /allOf: expected a list of schemas"));
  EXPECT_THAT(SchemaError(R"({"anyOf": []})"), HasSubstr("at /anyOf: expected a list of schemas"));
  EXPECT_THAT(SchemaError(R"({"enum": 1})"), HasSubstr("at /enum: expected a list of values"));
  EXPECT_THAT(SchemaError(R"({"minLength": -1})"),
              HasSubstr("at /minLength: expected a number of 0 or more, found -1"));
  EXPECT_THAT(SchemaError(R"({"minItems": 1.5})"), HasSubstr("at /minItems: expected a number of 0 or more"));
  EXPECT_THAT(SchemaError(R"({"pattern": 1})"), HasSubstr("at /pattern: expected a regular expression"));
  EXPECT_THAT(SchemaError(R"({"$ref": 1})"), HasSubstr("at /$ref: expected a reference"));
  EXPECT_THAT(SchemaError(R"({"type": "integer", "minimum": "1"})"), HasSubstr("at /minimum: expected a number"));
  EXPECT_THAT(SchemaError(R"({"prefixItems": {}})"), HasSubstr("at /prefixItems: expected a list of schemas"));
}

TEST(JsonSchema, SaysWhereNoValueIsValid) {
  EXPECT_THAT(SchemaError(R"({"items": false, "minItems": 1})"), HasSubstr("schema: no value can be valid"));
  EXPECT_THAT(SchemaError(R"({"prefixItems": [{}], "items": false, "minItems": 2})"), HasSubstr("no value can be"));
  EXPECT_EQ(
      testing::StatusOf(FromSchema(R"({"prefixItems": [{}], "minItems": 2})")),
      absl::UnimplementedError("schema at /minItems: expected 'items', without which nothing is written behind the "
                               "prefix"));
  EXPECT_THAT(SchemaError("false"), HasSubstr("no value is allowed"));
  EXPECT_THAT(SchemaError(R"({"type": "string", "enum": [1]})"), HasSubstr("no value can be valid"));
  EXPECT_THAT(SchemaError(R"({"type": "integer", "minimum": 2, "maximum": 1})"), HasSubstr("no value can be valid"));
  EXPECT_THAT(SchemaError(R"({"type": "number", "minimum": 1e13, "maximum": 5})"), HasSubstr("no value can be valid"));
  // These have values, all of them too long to be written.
  for (const char* bounds : {R"("minimum": 1e13)", R"("exclusiveMinimum": 1e12, "maximum": 2e12)",
                             R"("maximum": -1e12)", R"("type": "integer", "minimum": 1000000000000000000)"}) {
    EXPECT_THAT(testing::StatusOf(FromSchema(absl::StrCat("{", bounds, "}"))),
                StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("schema: expected bounds that leave numbers")))
        << bounds;
  }
  EXPECT_THAT(Valid(R"({"type": "number", "minimum": 999999999990, "maximum": 1e13})", {"999999999999.5", "1"}),
              ElementsAre("999999999999.5"));
  EXPECT_THAT(SchemaError(R"({"minLength": 2, "maxLength": 1})"),
              HasSubstr("at /maxLength: expected minLength or more"));
  EXPECT_THAT(SchemaError(R"({"required": ["a"], "additionalProperties": false})"),
              HasSubstr("at /required/0: no value"));
  EXPECT_THAT(SchemaError(R"({"properties": {"a": {"$ref": "#"}}, "required": ["a"]})"), HasSubstr("no text fits"));
}

TEST(JsonSchema, EndsQuicklyWithHostileSchemas) {
  const std::string loop =
      R"({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}})";
  EXPECT_THAT(SchemaError(loop), HasSubstr("expected no reference that leads to itself"));
  EXPECT_THAT(SchemaError(R"({"allOf": [{"$ref": "#"}, {}]})"),
              HasSubstr("expected at most 32 schemas within each other"));
  EXPECT_NE(SchemaError(R"({"anyOf": [{"$ref": "#"}, {"type": "null"}]})"), "");
  std::string deep = "{}", alternatives = R"({"anyOf": [{})", doubling = R"({"$ref": "#/$defs/0", "$defs": {)",
              names = "1";
  for (int i = 0; i < 40; ++i) deep = absl::StrCat(R"({"items": )", deep, "}");
  EXPECT_THAT(SchemaError(deep), HasSubstr("expected at most 32 schemas within each other"));
  for (int i = 0; i < 80'000; ++i) alternatives += ",{}";
  EXPECT_THAT(testing::StatusOf(FromSchema(alternatives + "]}")),
              StatusIs(absl::StatusCode::kResourceExhausted, Not(IsEmpty())));
  for (int i = 0; i < 15; ++i) {
    absl::StrAppend(&doubling, "\"", i, R"(": {"allOf": [{"$ref": "#/$defs/)", i + 1, R"("}, {"$ref": "#/$defs/)",
                    i + 1, "\"}]},");
  }
  EXPECT_THAT(testing::StatusOf(FromSchema(doubling + R"("15": {}}})")),
              StatusIs(absl::StatusCode::kResourceExhausted, Not(IsEmpty())));
  for (int i = 0; i < 1'500; ++i) absl::StrAppend(&names, ", ", i);
  EXPECT_THAT(SchemaError(absl::StrCat(R"({"enum": [)", names, "]}")),
              HasSubstr("expected at most 1000 values in all"));
  EXPECT_THAT(testing::StatusOf(FromSchema(absl::StrCat("{\"title\": \"", std::string(300'000, 'a'), "\"}"))),
              StatusIs(absl::StatusCode::kResourceExhausted, Not(IsEmpty())));
  EXPECT_THAT(SchemaError(R"({"minLength": 1e18})"), HasSubstr("at /minLength: expected a count up to 65536"));
  // It takes no more memory than its values.
  GrammarRules rules;
  JsonRules json(&rules);
  EXPECT_EQ(AddJsonSchema({{"const", Json::array_t(100'000, 0)}}, &json).status().ToString(), "OK");
  EXPECT_FALSE(rules.full());
  // A long value in each of many alternatives.
  std::string long_value = absl::StrCat(R"({"enum": [")", std::string(200'000, 'a'), R"("], "anyOf": [{})");
  for (int i = 0; i < 180; ++i) long_value += ",{}";
  EXPECT_THAT(testing::StatusOf(FromSchema(long_value + "]}")),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("too large to compile")));
  // Properties that are put together with each of many alternatives.
  std::string many = R"({"properties": {"a": {})";
  for (int i = 0; i < 4'000; ++i) absl::StrAppend(&many, ",\"", i, "\":{}");
  absl::StrAppend(&many, "}, \"anyOf\": [{}");
  for (int i = 0; i < 10'000; ++i) many += ",{}";
  EXPECT_THAT(testing::StatusOf(FromSchema(many + "]}")),
              StatusIs(absl::StatusCode::kResourceExhausted, Not(IsEmpty())));
  // Names that are, and alternatives that are wrong.
  std::string required = R"({"required": ["")", wrong = "0";
  for (int i = 0; i < 20'000; ++i) absl::StrAppend(&required, ",\"", i, "\"");
  for (int i = 0; i < 40'000; ++i) wrong += ",0";
  EXPECT_THAT(testing::StatusOf(FromSchema(absl::StrCat(required, "], \"anyOf\": [", wrong, "]}"))),
              StatusIs(absl::StatusCode::kResourceExhausted, Not(IsEmpty())));
}

TEST(JsonSchema, HoldsAsManyOptionalPropertiesAsPeopleWrite) {
  std::string schema = R"({"type": "object", "properties": {"p": {})";
  for (int i = 0; i < 200; ++i) absl::StrAppend(&schema, R"(, "property_)", i, R"(": {"type": ["string", "null"]})");
  EXPECT_THAT(Valid(schema + "}}", {R"({"property_0": "a", "property_77": null, "property_199": "b"})",
                                    R"({"property_77": null, "property_0": "a"})"}),
              SizeIs(1));
}

TEST(Arguments, LeaveOutWhatIsNotSupported) {
  EXPECT_THAT(AcceptedBy(FromParameters("null"), {"{}", R"({"a": 1})", "1"}), SizeIs(2));
  EXPECT_THAT(AcceptedBy(FromParameters("{}"), {"{}", R"({"a": 1})", "1"}), SizeIs(2));
  EXPECT_THAT(AcceptedBy(FromParameters("3"), {"{}", R"({"a": 1})", "1"}), SizeIs(2));
  EXPECT_THAT(AcceptedBy(FromParameters(R"x({"type": "object", "properties": {"a": {"type": "number", "multipleOf": 9},
                                       "b": {"type": "array", "uniqueItems": true, "items": {"type": "null"}},
                                       "c": {"$ref": "https://example.org"}, "d": {"type": "string", "pattern": "(?=x)"}}})x"),
                         {R"({"a": 10})", R"({"a": "x"})", R"({"b": [null]})", R"({"b": [1]})", R"({"c": [1, {}]})",
                          R"({"d": "x"})", R"({"d": 1})", R"({"e": 1})"}),
              ElementsAre(R"({"a": 10})", R"({"b": [null]})", R"({"c": [1, {}]})", R"({"d": "x"})"));
  EXPECT_THAT(AcceptedBy(FromParameters(R"({"anyOf": [{"type": "string"}, {"properties": {"a": {}}}]})"),
                         {R"({"a": 1})", R"({"b": 1})", R"("a")"}),
              ElementsAre(R"({"a": 1})"));
  EXPECT_THAT(
      AcceptedBy(
          FromParameters(
              R"({"$ref": "#/$defs/a", "$defs": {"a": {"type": "object", "properties": {"b": {"$ref": "#/$defs/a"}}}}})"),
          {R"({"b": {"b": {}}})", R"({"c": 1})"}),
      ElementsAre(R"({"b": {"b": {}}})"));
}

TEST(Arguments, AreToldOneByOne) {
  GrammarRules rules;
  JsonRules json(&rules);
  const auto told = [&](const char* parameters) {
    const auto arguments = *AddEachArgument(Json::parse(parameters), "arguments", &json);
    if (!arguments.has_value()) return std::string("any");
    std::string summary;
    for (const ArgumentRule& argument : *arguments) {
      absl::StrAppend(&summary, argument.name, argument.required ? "!" : "", " ");
      if (argument.texts.has_value()) absl::StrAppend(&summary, "[", absl::StrJoin(*argument.texts, ","), "] ");
    }
    return summary;
  };
  EXPECT_EQ(told(R"({"properties": {"a": {"enum": ["x", 1, "y"]}, "b": {"type": "string"}}, "required": ["b", "c"]})"),
            "a [x,y] b! c! ");
  EXPECT_EQ(
      told(R"({"properties": {"a": {"anyOf": [{"enum": ["x"]}, {"oneOf": [{"const": "y"}, {"type": "null"}, false]}]},
                     "b": {"anyOf": [{"const": "x"}, {"type": "string"}]}, "c": {"$ref": "#/$defs/c"}},
                     "$defs": {"c": {"enum": ["z", "zz"], "maxLength": 1}}})"),
      "a [x,y] b c [z] ");
  EXPECT_EQ(told(R"({"type": "object"})"), "any");
  EXPECT_EQ(told(R"({"type": "string"})"), "any");
  EXPECT_EQ(told(R"({"properties": {}})"), "any");
  EXPECT_EQ(told(R"({"properties": {}, "additionalProperties": false})"), "");
}

TEST(JsonRules, WriteSparedSignsWithAnEscape) {
  const auto with_spared = [](const char* schema) {
    return [schema](GrammarRules* rules) {
      JsonRules json(rules, "<[");
      return AddJsonSchema(Json::parse(schema), &json);
    };
  };
  EXPECT_THAT(AcceptedBy(with_spared(R"({"type": "string"})"),
                         {R"("a")", R"("\u003c")", R"("\u003C\u005b]>")", R"("<")", R"("[")"}),
              SizeIs(3));
  EXPECT_THAT(AcceptedBy(with_spared(R"({"enum": ["<[a", {"<": ["\\<"]}]})"),
                         {R"("\u003c\u005ba")", R"({"\u003c": ["\\\u003c"]})", R"("<[a")", R"({"<": ["\\<"]})"}),
              SizeIs(2));
  EXPECT_THAT(AcceptedBy(with_spared(R"({"pattern": "^<[^a]$"})"), {R"("\u003c\u003c")", R"("\u003cb")", R"("<b")"}),
              SizeIs(2));
  EXPECT_THAT(AcceptedBy(with_spared(R"({"properties": {"<": {}}, "additionalProperties": true})"),
                         {R"({"\u003c": 1, "a": []})", R"({"<": 1})", R"({"a<": 1})", R"({"a": "<"})"}),
              SizeIs(1));
}

}  // namespace
}  // namespace stagecoach
