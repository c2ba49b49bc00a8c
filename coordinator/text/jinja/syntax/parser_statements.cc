#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/shown_text.h"
#include "common/base/status_macros.h"
#include "coordinator/text/jinja/syntax/parser.h"
#include "coordinator/text/utf8.h"

namespace stagecoach::jinja {
namespace {

using Kind = Token::Kind;

constexpr size_t kMaxSourceBytes = 256 << 10;  // ten times what the longest published ones have

}  // namespace

absl::StatusOr<std::shared_ptr<const Program>> ParseTemplate(absl::string_view source) {
  if (source.size() > kMaxSourceBytes) {
    return Invalid("the template has ", source.size(), " bytes, at most ", kMaxSourceBytes);
  }
  std::string valid;
  if (AppendWholeUtf8(source, &valid) < source.size()) AppendUtf8(kReplacementCharacter, &valid);
  ASSIGN_OR_RETURN(std::vector<Token> tokens, Tokenize(NormalizedSource(valid)));
  return Parser(std::move(tokens)).Run();
}

absl::StatusOr<std::shared_ptr<const Program>> Parser::Run() {
  program_->loop = SymbolOf("loop");
  program_->caller = SymbolOf("caller");
  ASSIGN_OR_RETURN(program_->body, ParseBody({}, Token{}));
  if (!unknown_.empty()) return unknown_.front();
  return program_;
}

Token Parser::Take() {
  Token token = std::move(tokens_[position_]);
  if (position_ + 1 < tokens_.size()) ++position_;
  return token;
}

bool Parser::SkipOperator(absl::string_view text) {
  if (!Current().IsOperator(text)) return false;
  Take();
  return true;
}

bool Parser::SkipName(absl::string_view text) {
  if (!Current().IsName(text)) return false;
  Take();
  return true;
}

absl::Status Parser::Expect(Kind kind, absl::string_view text, absl::string_view where) {
  if (!Current().Is(kind, text)) {
    return ErrorAt(Current().line, absl::StrCat("expected '", text, "' ", where, ", found ", Describe(Current())));
  }
  Take();
  return absl::OkStatus();
}

absl::Status Parser::Unexpected(absl::string_view where) const {
  return ErrorAt(Current().line, absl::StrCat("unexpected ", Describe(Current()), " ", where));
}

absl::Status Parser::CheckDepth(int more) const {
  if (depth_ + more <= kMaxDepth) return absl::OkStatus();
  return ErrorAt(Current().line, absl::StrCat("nested more than ", kMaxDepth, " levels deep"));
}

const Builtin* Parser::FindOrRecordUnknown(Builtin::Kind kind, absl::string_view name) {
  const Builtin* builtin = FindBuiltin(kind, name);
  if (builtin == nullptr && conditions_ == 0 && unknown_.empty())
    unknown_.push_back(ErrorAt(Current().line, UnknownBuiltin(kind, name).message()));
  return builtin;
}

Symbol Parser::SymbolOf(absl::string_view name) {
  const auto [entry, is_new] = symbols_.try_emplace(std::string(name), static_cast<Symbol>(program_->names.size()));
  if (is_new) program_->names.emplace_back(name);
  return entry->second;
}

absl::StatusOr<Body> Parser::ParseBody(absl::Span<const absl::string_view> ends, const Token& opened_by) {
  const Temporarily deeper(&depth_, depth_ + 1);
  RETURN_IF_ERROR(CheckDepth());
  Body body;
  while (Current().kind != Kind::kEnd) {
    Statement statement;
    statement.line = Current().line;
    const Token token = Take();
    if (token.kind == Kind::kText) {
      MarkedText text(token.text, TextOrigin::kTemplate);
      statement.form = Text{Value(std::make_shared<const String>(std::move(text), nullptr))};
    } else if (token.kind == Kind::kVariableBegin) {
      ASSIGN_OR_RETURN(ExpressionPtr value, ParseTuple(/*with_conditional=*/true));
      RETURN_IF_ERROR(Expect(Kind::kVariableEnd, "}}", "after the expression"));
      statement.form = Print{std::move(value)};
    } else {
      const bool names_end = std::find(ends.begin(), ends.end(), Current().text) != ends.end();
      if (Current().kind == Kind::kName && names_end) return body;
      statement.line = Current().line;
      ASSIGN_OR_RETURN(statement.form, ParseTag());
      RETURN_IF_ERROR(Expect(Kind::kBlockEnd, "%}", "after the statement"));
    }
    body.push_back(std::move(statement));
  }
  if (ends.empty()) return body;
  return ErrorAt(opened_by.line, absl::StrCat("'", opened_by.text, "' has no '", ends.back(), "'"));
}

// The rest of a tag that opens a block, and the block, with its end if only one. Python's colon may end the tag.
absl::StatusOr<Body> Parser::ParseBlockBody(absl::Span<const absl::string_view> ends, const Token& opened_by) {
  SkipOperator(":");
  RETURN_IF_ERROR(Expect(Kind::kBlockEnd, "%}", absl::StrCat("at the end of '", opened_by.text, "'")));
  ASSIGN_OR_RETURN(Body body, ParseBody(ends, opened_by));
  if (ends.size() == 1) Take();
  return body;
}

absl::StatusOr<StatementForm> Parser::ParseTag() {
  struct Tag {
    absl::string_view name;
    absl::StatusOr<StatementForm> (Parser::*parse)(const Token&);
  };
  static constexpr Tag kTags[] = {{"break", &Parser::ParseLoopControl},
                                  {"call", &Parser::ParseCallBlock},
                                  {"continue", &Parser::ParseLoopControl},
                                  {"filter", &Parser::ParseFilterBlock},
                                  {"for", &Parser::ParseFor},
                                  {"generation", &Parser::ParseGeneration},
                                  {"if", &Parser::ParseIf},
                                  {"macro", &Parser::ParseMacro},
                                  {"set", &Parser::ParseSet},
                                  {"with", &Parser::ParseWith}};
  if (Current().kind != Kind::kName) return Unexpected("where the name of a statement belongs");
  const Token name = Take();
  for (const Tag& tag : kTags) {
    if (tag.name == name.text) return (this->*tag.parse)(name);
  }
  const std::string known =
      absl::StrJoin(kTags, ", ", [](std::string* out, const Tag& tag) { absl::StrAppend(out, tag.name); });
  return ErrorAt(name.line, absl::StrCat("unknown statement ", ShownText(name.text), "; there are ", known));
}

absl::StatusOr<StatementForm> Parser::ParseIf(const Token& name) {
  static constexpr absl::string_view kEnds[] = {"elif", "else", "endif"};
  const Temporarily condition(&conditions_, conditions_ + 1);
  If conditional;
  do {
    auto& [test, body] = conditional.branches.emplace_back();
    ASSIGN_OR_RETURN(test, ParseTuple(/*with_conditional=*/false));
    ASSIGN_OR_RETURN(body, ParseBlockBody(kEnds, name));
  } while (SkipName("elif"));
  if (SkipName("else")) {
    ASSIGN_OR_RETURN(conditional.otherwise, ParseBlockBody({"endif"}, name));
  } else {
    Take();
  }
  return conditional;
}

absl::StatusOr<StatementForm> Parser::ParseFor(const Token& name) {
  static constexpr absl::string_view kEnds[] = {"else", "endfor"};
  For loop;
  ASSIGN_OR_RETURN(loop.target, ParseTarget(/*with_attribute=*/false));
  RETURN_IF_ERROR(Expect(Kind::kName, "in", "after the loop's variable"));
  ASSIGN_OR_RETURN(loop.iterable, ParseTuple(/*with_conditional=*/false));
  if (SkipName("if")) {
    ASSIGN_OR_RETURN(loop.condition, ParseExpression());
  }
  if (Current().IsName("recursive")) return ErrorAt(Current().line, "a recursive loop is not supported");
  {
    const Temporarily in_loop(&loops_, loops_ + 1);
    ASSIGN_OR_RETURN(loop.body, ParseBlockBody(kEnds, name));
  }
  if (SkipName("else")) {
    ASSIGN_OR_RETURN(loop.otherwise, ParseBlockBody({"endfor"}, name));
  } else {
    Take();
  }
  return loop;
}

absl::StatusOr<StatementForm> Parser::ParseSet(const Token& name) {
  ASSIGN_OR_RETURN(Target target, ParseTarget(/*with_attribute=*/true));
  if (SkipOperator("=")) {
    ASSIGN_OR_RETURN(ExpressionPtr value, ParseTuple(/*with_conditional=*/true));
    return Set{std::move(target), std::move(value)};
  }
  TextBlock block{std::move(target), {}, {}};
  if (SkipOperator("|")) RETURN_IF_ERROR(ParseBlockFilters(&block.filters));
  ASSIGN_OR_RETURN(block.body, ParseBlockBody({"endset"}, name));
  return block;
}

absl::StatusOr<StatementForm> Parser::ParseMacro(const Token& name) {
  MacroDefinition macro;
  ASSIGN_OR_RETURN(macro.symbol, ParseVariableName(&macro.name));
  RETURN_IF_ERROR(ParseMacroParameters(&macro));
  const Temporarily in_no_loop(&loops_, 0);
  ASSIGN_OR_RETURN(macro.body, ParseBlockBody({"endmacro"}, name));
  return macro;
}

absl::Status Parser::ParseMacroParameters(MacroDefinition* macro) {
  RETURN_IF_ERROR(ExpectOperator("(", "before the parameters"));
  while (!SkipOperator(")")) {
    if (!macro->parameters.empty()) RETURN_IF_ERROR(ExpectOperator(",", "between parameters"));
    MacroDefinition::Parameter parameter;
    ASSIGN_OR_RETURN(parameter.symbol, ParseVariableName(&parameter.name));
    if (SkipOperator("=")) {
      ASSIGN_OR_RETURN(parameter.default_value, ParseExpression());
    } else if (!macro->parameters.empty() && macro->parameters.back().default_value != nullptr) {
      return ErrorAt(Current().line, absl::StrCat("the parameter ", ShownText(parameter.name),
                                                  " without a default follows one that has one"));
    }
    macro->parameters.push_back(std::move(parameter));
  }
  return absl::OkStatus();
}

absl::StatusOr<StatementForm> Parser::ParseCallBlock(const Token& name) {
  CallBlock block;
  block.caller.name = "caller";
  if (Current().IsOperator("(")) RETURN_IF_ERROR(ParseMacroParameters(&block.caller));
  ASSIGN_OR_RETURN(block.call, ParseExpression());
  const Chain* chain = std::get_if<Chain>(&block.call->form);
  if (chain == nullptr || chain->steps.back().kind != Step::Kind::kCall)
    return ErrorAt(name.line, "'call' needs a call of a macro");
  const Temporarily in_no_loop(&loops_, 0);
  ASSIGN_OR_RETURN(block.caller.body, ParseBlockBody({"endcall"}, name));
  return block;
}

absl::StatusOr<StatementForm> Parser::ParseFilterBlock(const Token& name) {
  TextBlock block;
  RETURN_IF_ERROR(ParseBlockFilters(&block.filters));
  ASSIGN_OR_RETURN(block.body, ParseBlockBody({"endfilter"}, name));
  return block;
}

absl::StatusOr<StatementForm> Parser::ParseWith(const Token& name) {
  With with;
  while (Current().kind != Kind::kBlockEnd) {
    if (!with.variables.empty()) RETURN_IF_ERROR(ExpectOperator(",", "between variables"));
    auto& [target, value] = with.variables.emplace_back();
    ASSIGN_OR_RETURN(target, ParseSingleTarget());
    RETURN_IF_ERROR(ExpectOperator("=", "after the variable"));
    ASSIGN_OR_RETURN(value, ParseExpression());
  }
  ASSIGN_OR_RETURN(with.body, ParseBlockBody({"endwith"}, name));
  return with;
}

absl::StatusOr<StatementForm> Parser::ParseGeneration(const Token& name) {
  ASSIGN_OR_RETURN(Body body, ParseBlockBody({"endgeneration"}, name));
  return With{{}, std::move(body)};
}

absl::StatusOr<StatementForm> Parser::ParseLoopControl(const Token& name) {
  if (loops_ == 0) return ErrorAt(name.line, absl::StrCat("'", name.text, "' outside of a loop"));
  return LoopControl{name.text == "break"};
}

absl::StatusOr<Symbol> Parser::ParseVariableName(std::string* name) {
  const Token token = Take();
  if (token.kind != Kind::kName)
    return ErrorAt(token.line, absl::StrCat("expected a variable's name, found ", Describe(token)));
  for (const absl::string_view constant : {"true", "false", "none", "True", "False", "None"}) {
    if (token.text == constant) return ErrorAt(token.line, absl::StrCat("cannot assign to '", constant, "'"));
  }
  *name = token.text;
  return SymbolOf(token.text);
}

absl::StatusOr<Target> Parser::ParseSingleTarget() {
  const Temporarily deeper(&depth_, depth_ + 1);
  RETURN_IF_ERROR(CheckDepth());
  if (SkipOperator("(")) {
    ASSIGN_OR_RETURN(Target target, ParseTarget(/*with_attribute=*/false));
    RETURN_IF_ERROR(ExpectOperator(")", "after the variables"));
    return target;
  }
  Target target;
  std::string name;
  ASSIGN_OR_RETURN(target.symbol, ParseVariableName(&name));
  return target;
}

absl::StatusOr<Target> Parser::ParseTarget(bool with_attribute) {
  ASSIGN_OR_RETURN(Target first, ParseSingleTarget());
  if (with_attribute && first.parts.empty() && SkipOperator(".")) {
    const Token attribute = Take();
    if (attribute.kind != Kind::kName)
      return ErrorAt(attribute.line, absl::StrCat("expected a name after '.', found ", Describe(attribute)));
    first.attribute = attribute.text;
    return first;
  }
  if (!Current().IsOperator(",")) return first;
  Target target;
  target.parts.push_back(std::move(first));
  while (SkipOperator(",")) {
    const bool ends = Current().IsName("in") || Current().IsOperator("=") || Current().IsOperator(")") ||
                      Current().kind == Kind::kBlockEnd;
    if (ends) break;
    ASSIGN_OR_RETURN(target.parts.emplace_back(), ParseSingleTarget());
  }
  return target;
}

}  // namespace stagecoach::jinja
