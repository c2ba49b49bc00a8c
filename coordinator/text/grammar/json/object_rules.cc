#include "coordinator/text/grammar/json/object_rules.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "coordinator/text/utf8.h"

namespace stagecoach {
namespace {

class MemberRules {
 public:
  MemberRules(absl::Span<const ObjectMember> members, JsonRules* json)
      : members_(members), rules_(json->rules()), comma_(json->Comma()) {}

  // One or more of the members [begin, end), which is not empty. Halves, as either one may hold the first of them:
  // written one by one, each would stand in as many places as there are members before it.
  ExprId Some(size_t begin, size_t end) const {
    if (end - begin == 1) return members_[begin].expr;
    const size_t middle = begin + (end - begin) / 2;
    return rules_.Choice({rules_.Sequence({Some(begin, middle), Further(middle, end)}), Some(middle, end)});
  }

  // What may stand of [begin, end) after another member.
  ExprId Further(size_t begin, size_t end) const {
    std::vector<ExprId> parts;
    for (const ObjectMember& member : members_.subspan(begin, end - begin)) {
      const ExprId part = AfterComma(member.expr);
      parts.push_back(member.required ? part : rules_.Repeat(part, 0, 1));
    }
    return rules_.Sequence(parts);
  }

  ExprId AfterComma(ExprId member) const { return rules_.Sequence({comma_, member}); }
  ExprId BeforeComma(ExprId members) const { return rules_.Sequence({members, comma_}); }

 private:
  const absl::Span<const ObjectMember> members_;
  GrammarRules& rules_;
  const ExprId comma_;
};

using KeyText = std::vector<uint32_t>;  // characters

class OtherKeys {
 public:
  explicit OtherKeys(JsonRules* json) : json_(*json), rules_(json->rules()) {}

  // The rest of a key with its closing quote, after the first `at` characters of `names`, which are alike in them:
  // sorted, without doubles, not none.
  ExprId After(absl::Span<const KeyText> names, size_t at) {
    std::vector<ExprId> ways;
    CodePointSet next;
    if (names[0].size() > at) {
      ways.push_back(rules_.Literal("\""));
    } else {
      names.remove_prefix(1);  // this key is taken, unless it goes on
    }
    while (!names.empty()) {
      const uint32_t character = names[0][at];
      const auto differs = [&](const KeyText& name) { return name[at] != character; };
      const size_t alike = static_cast<size_t>(std::find_if(names.begin(), names.end(), differs) - names.begin());
      const CodePointSet one = CodePointSet::One(character);
      ways.push_back(rules_.Sequence({rules_.CodePoints(one), After(names.subspan(0, alike), at + 1)}));
      next.Add(one);
      names.remove_prefix(alike);
    }
    ways.push_back(rules_.Sequence({Plain(next), Rest()}));
    const ExprId after = rules_.Choice(ways);
    if (at % 32 != 31) return after;
    const RuleId rule = rules_.Declare("key");  // lest expressions nest too deeply
    rules_.Define(rule, after);
    return rules_.Call(rule);
  }

  ExprId Rest() { return rules_.Sequence({rules_.Repeat(Plain({}), 0), rules_.Literal("\"")}); }

 private:
  ExprId Plain(const CodePointSet& without) {
    return rules_.CodePoints(json_.CharactersWithoutEscape().Without(without));
  }

  JsonRules& json_;
  GrammarRules& rules_;
};

}  // namespace

ExprId ObjectOf(absl::Span<const ObjectMember> members, std::optional<ExprId> extra, JsonRules* json) {
  GrammarRules& rules = json->rules();
  const MemberRules parts(members, json);
  const auto is_required = [](const ObjectMember& member) { return member.required; };
  const size_t first = static_cast<size_t>(std::find_if(members.begin(), members.end(), is_required) - members.begin());
  const ExprId extras = extra.has_value() ? rules.Repeat(parts.AfterComma(*extra), 0) : rules.Literal("");
  if (first < members.size()) {
    const ExprId before = first > 0 ? json->Optional(parts.BeforeComma(parts.Some(0, first))) : rules.Literal("");
    const ExprId after = parts.Further(first + 1, members.size());
    return json->Enclosed("{", rules.Sequence({before, members[first].expr, after, extras}), "}", /*or_empty=*/false);
  }
  std::vector<ExprId> ways;
  if (!members.empty()) ways.push_back(rules.Sequence({parts.Some(0, members.size()), extras}));
  if (extra.has_value()) ways.push_back(rules.Sequence({*extra, extras}));
  return json->Enclosed("{", rules.Choice(ways), "}", /*or_empty=*/true);
}

ExprId KeyOtherThan(const std::vector<std::string>& names, JsonRules* json) {
  std::vector<KeyText> keys;
  for (const std::string& name : names) {
    KeyText key;
    for (size_t at = 0; at < name.size();) {
      const DecodedChar next = DecodeUtf8(name, at);
      key.push_back(next.code_point);
      at += next.bytes;
    }
    const auto needs_escape = [&](uint32_t character) { return !json->CharactersWithoutEscape().Contains(character); };
    if (std::none_of(key.begin(), key.end(), needs_escape)) keys.push_back(std::move(key));
  }
  std::sort(keys.begin(), keys.end());
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  OtherKeys others(json);
  GrammarRules& rules = json->rules();
  return rules.Sequence({rules.Literal("\""), keys.empty() ? others.Rest() : others.After(keys, 0)});
}

}  // namespace stagecoach
