#include "coordinator/text/grammar/form/answer_form.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "coordinator/text/grammar/form/format_text.h"
#include "coordinator/text/grammar/gbnf.h"
#include "coordinator/text/grammar/json/json_rules.h"
#include "coordinator/text/grammar/json/json_schema.h"
#include "coordinator/text/grammar/pattern_scanner.h"
#include "coordinator/text/grammar/regex.h"
#include "coordinator/text/output/call_scanner.h"
#include "coordinator/text/output/output_grammar.h"

namespace stagecoach {
namespace {

constexpr int kMostLayout = 4;

class AnswerRules {
 public:
  AnswerRules(const AnswerForm& form, OutputFormat format, const OutputStart& start, const Tokenizer& tokenizer,
              GrammarRules* rules)
      : form_(form),
        format_(format),
        reasoning_(ReasoningAt(format, start)),
        rules_(*rules),
        json_(rules, MarksInContent(format) ? "<" : ""),
        text_(&tokenizer, rules) {}

  absl::StatusOr<ExprId> Whole() {
    if (form_.content.has_value()) {
      ASSIGN_OR_RETURN(content_, Content(*form_.content));
    }
    if (form_.calls.has_value()) {
      const bool alone = form_.calls->required || form_.content.has_value();
      const CallCount one = alone ? CallCount::kOne : CallCount::kOneSection;
      const CallCount count = alone && form_.calls->several ? CallCount::kSeveral : one;
      ASSIGN_OR_RETURN(calls_, AddCalls(format_, form_.calls->tools, count, text_, &rules_));
    }
    return format_ == OutputFormat::kHarmony ? Messages() : Marked(GrammarOf(format_));
  }

 private:
  absl::StatusOr<ExprId> Content(const ContentForm& content);
  absl::StatusOr<ExprId> OneOf(const std::vector<std::string>& choices);
  ExprId Marked(const OutputGrammar& marks);
  ExprId Reasoning(const OutputGrammar& marks);
  ExprId Answer(const OutputGrammar& marks);
  ExprId TextWithCalls(const OutputGrammar& marks);
  ExprId TextThatDoesNotBeginReasoning(const OutputGrammar& marks);
  ExprId TextOrCallAtStart();
  ExprId Messages();

  // Calls alone.
  ExprId Calls() {
    std::vector<ExprId> ways;
    for (const MarkedCalls& call : calls_)
      ways.push_back(rules_.Sequence({text_.Exactly(call.begin), call.after_begin}));
    return rules_.Choice(ways);
  }
  // Readers find marks, all of which begin with '<', wherever they stand in content.
  static bool MarksInContent(OutputFormat format) {
    return format == OutputFormat::kHarmony || !GrammarOf(format).silent.empty();
  }
  // What free text has none of.
  static std::vector<std::string> TextMarks(const OutputGrammar& marks) {
    std::vector<std::string> all(marks.calls.begin(), marks.calls.end());
    for (const absl::string_view mark : marks.silent) all.emplace_back(mark);
    return all;
  }
  bool calls_required() const { return form_.calls.has_value() && form_.calls->required; }
  ExprId Empty() { return rules_.Literal(""); }
  ExprId Layout() { return rules_.Repeat(rules_.Class(SpaceBytes()), 0, kMostLayout); }
  ExprId LayoutBeforeContent() {
    return form_.content.has_value() ? rules_.Repeat(rules_.Literal("\n"), 0, kMostLayout) : Layout();
  }
  static ByteSet SpaceBytes() {
    ByteSet set;
    for (const char byte : absl::string_view(" \n\t\r")) set.set(static_cast<unsigned char>(byte));
    return set;
  }

  const AnswerForm& form_;
  const OutputFormat format_;
  const ReasoningAtStart reasoning_;
  GrammarRules& rules_;
  JsonRules json_;
  const FormatText text_;
  ExprId content_ = -1;  // of the form that is asked for
  std::vector<MarkedCalls> calls_;
};

absl::StatusOr<ExprId> AnswerRules::Content(const ContentForm& content) {
  switch (content.kind) {
    case ContentForm::Kind::kJsonObject: return json_.Object();
    case ContentForm::Kind::kJsonSchema: return AddJsonSchema(content.schema, &json_);
    case ContentForm::Kind::kGrammar: return AddGbnf(content.text, &rules_);
    case ContentForm::Kind::kRegex: {
      ASSIGN_OR_RETURN(const RegexExpr regex, AddPlainRegex(content.text, &rules_));
      return regex.expr;
    }
    case ContentForm::Kind::kChoice: break;
  }
  return OneOf(content.choices);
}

absl::StatusOr<ExprId> AnswerRules::OneOf(const std::vector<std::string>& choices) {
  if (choices.empty()) return absl::InvalidArgumentError("choice: expected one text or more, found none");
  size_t bytes = 0;
  for (const std::string& choice : choices) bytes += choice.size() + 1;
  if (bytes > kMostGrammarTextBytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("choice: expected at most ", kMostGrammarTextBytes, " bytes of texts in all, found ", bytes));
  }
  std::vector<ExprId> ways;
  ways.reserve(choices.size());
  for (const std::string& choice : choices) ways.push_back(rules_.Literal(choice));
  return rules_.Choice(ways);
}

ExprId AnswerRules::Marked(const OutputGrammar& marks) {
  if (reasoning_ == ReasoningAtStart::kIsOver) return Answer(marks);
  if (reasoning_ == ReasoningAtStart::kHasBegun) return rules_.Sequence({Reasoning(marks), Answer(marks)});
  const ExprId reasoning = rules_.Sequence({Layout(), text_.Exactly(marks.open), Reasoning(marks), Answer(marks)});
  const bool is_text = !form_.content.has_value() && !calls_required();
  if (!is_text || calls_.empty() || text_.HasControl(marks.open)) return rules_.Choice({reasoning, Answer(marks)});
  return rules_.Choice({reasoning, TextThatDoesNotBeginReasoning(marks)});
}

// After the mark that begins it, with the white space that follows it.
ExprId AnswerRules::Reasoning(const OutputGrammar& marks) {
  std::vector<std::string> others;  // in it they would begin a call
  if (form_.calls.has_value()) others = {marks.calls_in_reasoning.begin(), marks.calls_in_reasoning.end()};
  return rules_.Sequence({text_.UpTo(marks.close, others), LayoutBeforeContent()});
}

ExprId AnswerRules::Answer(const OutputGrammar& marks) {
  if (calls_required()) return rules_.Sequence({Layout(), Calls()});
  if (form_.content.has_value()) {
    std::vector<ExprId> silent = {Empty()};
    for (const absl::string_view mark : marks.silent) silent.push_back(text_.Exactly(mark));
    const ExprId around = rules_.Choice(silent);
    const ExprId before = marks.space_first ? LayoutBeforeContent() : Empty();
    const ExprId content = rules_.Sequence({before, around, content_, around});
    if (calls_.empty()) return content;
    return rules_.Choice({content, rules_.Sequence({Layout(), Calls()})});
  }
  if (calls_.empty()) return rules_.TextWithout({});
  if (marks.calls_at_start_only) return TextOrCallAtStart();
  return TextWithCalls(marks);
}

ExprId AnswerRules::TextWithCalls(const OutputGrammar& marks) {
  const std::vector<std::string> all = TextMarks(marks);
  const auto text_up_to = [&](absl::string_view mark) {
    std::vector<std::string> others = all;
    others.erase(std::remove(others.begin(), others.end(), mark), others.end());
    return text_.UpTo(mark, others);
  };
  std::vector<ExprId> ways;
  for (const MarkedCalls& call : calls_) ways.push_back(rules_.Sequence({text_up_to(call.begin), call.after_begin}));
  for (const absl::string_view mark : marks.silent) ways.push_back(text_up_to(mark));
  return rules_.Sequence({rules_.Repeat(rules_.Choice(ways), 0), rules_.TextWithout(all)});
}

// Text with calls, which does not begin with the mark of reasoning. Were it both, each place in a call would be a state
// for every place in the mark that reasoning ends with. All of the marks begin with the same byte, which is nowhere
// else in them.
ExprId AnswerRules::TextThatDoesNotBeginReasoning(const OutputGrammar& marks) {
  const absl::string_view open = marks.open;
  std::map<std::string, ByteSet> next;  // by the beginning of a mark: the bytes that it goes on with
  std::vector<std::string> all = TextMarks(marks);
  all.emplace_back(open);
  for (const std::string& mark : all) {
    for (size_t i = 1; i < mark.size(); ++i) {
      next[mark.substr(0, i)].set(static_cast<unsigned char>(mark[i]));
    }
  }
  std::vector<ExprId> begun, left = {Calls()};
  for (const absl::string_view mark : marks.silent) left.push_back(text_.Exactly(mark));
  for (const auto& [begin, bytes] : next) {
    ByteSet others = bytes;
    others.set(static_cast<unsigned char>(open[0])).flip();
    begun.push_back(rules_.Literal(begin));
    left.push_back(rules_.Sequence({begun.back(), rules_.Class(others)}));
  }
  ByteSet first = SpaceBytes();
  first.set(static_cast<unsigned char>(open[0])).flip();
  const ExprId rest = TextWithCalls(marks);
  const ExprId beginnings = rules_.Repeat(rules_.Choice(begun), 0);
  const ExprId text = rules_.Choice({rules_.Sequence({rules_.Class(first), rest}), beginnings,
                                     rules_.Sequence({beginnings, rules_.Choice(left), rest})});
  return rules_.Sequence({rules_.Repeat(rules_.Class(SpaceBytes()), 0), text});
}

// White space, then a call, or a text that does not begin as one: with '{' or "<|".
ExprId AnswerRules::TextOrCallAtStart() {
  ByteSet first = SpaceBytes(), after = {};
  first.set('{').set('<').flip();
  after.set('|').flip();
  const ExprId any = rules_.TextWithout({});
  const ExprId bracket =
      rules_.Sequence({rules_.Literal("<"), json_.Optional(rules_.Sequence({rules_.Class(after), any}))});
  const ExprId space = rules_.Repeat(rules_.Class(SpaceBytes()), 0);
  const ExprId text = rules_.Choice({Empty(), rules_.Sequence({rules_.Class(first), any}), bracket});
  return rules_.Sequence({space, rules_.Choice({Calls(), text})});
}

// kHarmony: messages of reasoning, or of text before calls, then the answer's.
ExprId AnswerRules::Messages() {
  const std::vector<std::string> ends(std::begin(kHarmonyBodyEnds), std::end(kHarmonyBodyEnds));
  std::vector<std::string> others(ends.begin() + 1, ends.end());
  const ExprId body = rules_.Sequence({text_.UpTo(ends[0], others), text_.Exactly("<|start|>assistant")});
  const ExprId analysis = rules_.Sequence({text_.Exactly("<|channel|>analysis<|message|>"), body});
  const ExprId preamble = rules_.Sequence({text_.Exactly("<|channel|>commentary<|message|>"), body});
  std::vector<ExprId> ways;
  if (!calls_required()) {
    const ExprId content = form_.content.has_value() ? content_ : rules_.TextWithout(ends);
    ways.push_back(rules_.Sequence({text_.Exactly("<|channel|>final<|message|>"), content}));
  }
  if (!calls_.empty()) ways.push_back(Calls());
  const ExprId before = calls_.empty() ? analysis : rules_.Choice({analysis, preamble});
  const ExprId begun = reasoning_ == ReasoningAtStart::kHasBegun ? body : Empty();
  return rules_.Sequence({begun, rules_.Repeat(before, 0), rules_.Choice(ways)});
}

}  // namespace

ReasoningAtStart ReasoningAt(OutputFormat format, const OutputStart& start) {
  if (OutputParser::Make(format, start, nullptr)->inside_reasoning()) return ReasoningAtStart::kHasBegun;
  if (format == OutputFormat::kHarmony) return ReasoningAtStart::kMayCome;
  const OutputGrammar marks = GrammarOf(format);
  const bool over = start.reasoning_is_text || !marks.model_opens ||
                    absl::EndsWith(WithoutSpaceAround(start.prompt_end), marks.close);
  return over ? ReasoningAtStart::kIsOver : ReasoningAtStart::kMayCome;
}

absl::StatusOr<GrammarRules> RulesOfAnswer(const AnswerForm& form, OutputFormat format, const OutputStart& start,
                                           const Tokenizer& tokenizer) {
  GrammarRules rules;
  const RuleId root = rules.Declare("answer");
  ASSIGN_OR_RETURN(const ExprId whole, AnswerRules(form, format, start, tokenizer, &rules).Whole());
  rules.Define(root, whole);
  rules.SetRoot(root);
  return rules;
}

}  // namespace stagecoach
