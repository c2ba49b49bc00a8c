#include "coordinator/serve/api/bound_answer.h"

#include <memory>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/json/json_value.h"
#include "coordinator/serve/api/api_dialect.h"
#include "coordinator/serve/api/conversation/tools.h"
#include "coordinator/text/grammar/form/answer_grammars.h"
#include "coordinator/text/grammar/form/call_markup.h"
#include "coordinator/text/grammar/pattern_scanner.h"

namespace stagecoach {
namespace {

using Kind = ContentForm::Kind;

AskedForm FormOf(Kind kind, const std::string& place) {
  AskedForm form;
  form.content.kind = kind;
  form.place = place;
  return form;
}

// Before it is copied: of JSON each byte may take many.
absl::Status CheckFormSize(const std::string& place, size_t size, absl::string_view unit) {
  if (size <= kMostGrammarTextBytes) return absl::OkStatus();
  return Misplaced(place, absl::StrCat("has ", size, " ", unit, ", expected at most ", kMostGrammarTextBytes));
}

absl::StatusOr<AskedForm> SchemaForm(const std::string& place, const Json& schema) {
  if (!schema.is_object()) return MisplacedType(place, "an object, a JSON schema", schema);
  RETURN_IF_ERROR(CheckFormSize(place, CompactJson(schema).size(), "bytes"));
  AskedForm form = FormOf(Kind::kJsonSchema, place);
  form.content.schema = schema;
  return form;
}

absl::StatusOr<AskedForm> WrittenForm(Kind kind, const std::string& place, const Json& text) {
  if (!text.is_string()) return MisplacedType(place, "a string", text);
  AskedForm form = FormOf(kind, place);
  form.content.text = text.get<std::string>();
  return form;
}

absl::StatusOr<AskedForm> FormOfChoices(const std::string& place, const Json& choices) {
  AskedForm form = FormOf(Kind::kChoice, place);
  if (!choices.is_array()) return MisplacedType(place, "a list of strings", choices);
  RETURN_IF_ERROR(CheckFormSize(place, choices.size(), "texts"));
  for (const Json& choice : choices) {
    if (!choice.is_string()) return MisplacedType(place, "a list of strings", choice);
    form.content.choices.push_back(choice.get<std::string>());
  }
  return form;
}

// name, strict and schema. What is accepted is held to, strict or not.
absl::StatusOr<AskedForm> NamedSchema(const std::string& place, const Json& members) {
  if (!members.is_object()) return MisplacedType(place, "an object with a schema", members);
  Json unused;
  RETURN_IF_ERROR(CopyString(place, members, "name", "name", &unused));
  bool strict = false;
  if (const Json* given = Member(members, "strict"); given != nullptr) {
    RETURN_IF_ERROR(ReadBool(absl::StrCat(place, ".strict"), *given, &strict));
  }
  const std::string schema_place = absl::StrCat(place, ".schema");
  const Json* schema = Member(members, "schema");
  if (schema == nullptr) return MissingAt(schema_place);
  return SchemaForm(schema_place, *schema);
}

// {"type": ...}, which has the members of json_schema either in an object of this name or beside the type; `usual` is
// the API's way, which an error names.
absl::Status ReadFormat(const std::string& place, const char* usual, const Json& format,
                        std::optional<AskedForm>* form) {
  if (!format.is_object()) return MisplacedType(place, "an object with a type", format);
  const std::string type = TextOf(format, "type");
  if (type == "text") return absl::OkStatus();
  const Json* nested = Member(format, "json_schema");
  const bool beside = Member(format, "schema") != nullptr;
  if (type == "json_object" && nested == nullptr && !beside) {
    *form = FormOf(Kind::kJsonObject, place);
    return absl::OkStatus();
  }
  if (type != "json_object" && type != "json_schema") {
    return Misplaced(place, "expected a type of text, json_object or json_schema");
  }
  if (nested == nullptr && !beside) return MissingAt(absl::StrCat(place, ".", usual));
  ASSIGN_OR_RETURN(*form, nested == nullptr ? NamedSchema(place, format)
                                            : NamedSchema(absl::StrCat(place, ".json_schema"), *nested));
  return absl::OkStatus();
}

// Of a member of vLLM's structured_outputs.
absl::StatusOr<AskedForm> StructuredForm(absl::string_view name, const std::string& place, const Json& value) {
  if (name == "json_object") return FormOf(Kind::kJsonObject, place);
  if (name == "regex") return WrittenForm(Kind::kRegex, place, value);
  if (name == "grammar") return WrittenForm(Kind::kGrammar, place, value);
  if (name == "choice") return FormOfChoices(place, value);
  if (!value.is_string()) return SchemaForm(place, value);
  const absl::StatusOr<Json> schema = ParseJson(value.get_ref<const std::string&>());
  return schema.ok() ? SchemaForm(place, *schema) : Misplaced(place, schema.status().message());
}

// One member is there, false being absent.
absl::Status ReadStructured(const std::string& place, const Json& given, std::optional<AskedForm>* form,
                            std::vector<std::string>* ignored) {
  if (!given.is_object()) return MisplacedType(place, "an object with json, regex, choice or grammar", given);
  FieldReader members(&given);
  for (const char* name : {"json", "regex", "choice", "grammar", "json_object"}) {
    const Json* value = members.Find(name);
    if (value == nullptr || *value == false) continue;
    const std::string at = absl::StrCat(place, ".", name);
    if (form->has_value()) return Misplaced(at, "is one form too many, expected one");
    ASSIGN_OR_RETURN(*form, StructuredForm(name, at, *value));
  }
  for (const std::string& name : members.Unknown()) ignored->push_back(absl::StrCat(place, ".", name));
  if (form->has_value()) return absl::OkStatus();
  return Misplaced(place, "has no form, expected one of json, regex, choice and grammar");
}

constexpr absl::string_view kGuided = "guided_";  // an older spelling of the members of structured_outputs

absl::Status ReadResponseFormat(FieldReader* fields, std::optional<AskedForm>* form,
                                std::vector<std::string>* ignored) {
  std::string first;  // that was there
  for (const absl::string_view name : {"response_format", "structured_outputs", "grammar", "json_schema", "guided_json",
                                       "guided_regex", "guided_choice", "guided_grammar"}) {
    const Json* value = fields->Find(name);
    if (value == nullptr || (name == "grammar" && *value == Json(""))) continue;
    if (!first.empty()) return WrongField(name, absl::StrCat("expected one of this and '", first, "'"));
    first = std::string(name);
    if (first == "response_format") {
      RETURN_IF_ERROR(ReadFormat(first, "json_schema", *value, form));
    } else if (first == "structured_outputs") {
      RETURN_IF_ERROR(ReadStructured(first, *value, form, ignored));
    } else if (first == "grammar") {
      ASSIGN_OR_RETURN(*form, WrittenForm(Kind::kGrammar, first, *value));
    } else if (absl::StartsWith(name, kGuided)) {
      ASSIGN_OR_RETURN(*form, StructuredForm(name.substr(kGuided.size()), first, *value));
    } else {
      ASSIGN_OR_RETURN(*form, SchemaForm(first, *value));
    }
  }
  return absl::OkStatus();
}

absl::Status ReadFormatWithin(FieldReader* fields, const char* field, std::optional<AskedForm>* form) {
  ASSIGN_OR_RETURN(const Json* object, fields->FindObject(field));
  const Json* format = object == nullptr ? nullptr : Member(*object, "format");
  return format == nullptr ? absl::OkStatus() : ReadFormat(absl::StrCat(field, ".format"), "schema", *format, form);
}

bool MustCall(const ToolSet& tools) {
  return tools.choice() == ToolSet::Choice::kRequired || tools.choice() == ToolSet::Choice::kNamed;
}

absl::Status CannotBind(const std::string& place, absl::string_view why) {
  return ApiStatus(ApiErrorCode::kUnsupportedParameter, absl::StrCat(place, ": ", why), place);
}

// What the calls are bound to; absent: nothing. Without tools there are none.
absl::StatusOr<std::optional<CallForm>> CallsOf(const ToolSet& tools, CallPlan* plan) {
  const bool strict = absl::c_any_of(tools.offered(), [](const OfferedTool& tool) { return tool.strict; });
  const bool bound = MustCall(tools) || plan->fields.form.has_value() || strict;
  if (tools.empty() || !bound) return std::nullopt;
  const bool read = plan->output_tools != nullptr, known = read && CallsCanBeBound(*plan->output_format);
  const std::string place = MustCall(tools) ? "tool_choice" : "tools";
  if (!read && MustCall(tools)) {
    return CannotBind(place, "calls are not read from what this model writes, so that none can be asked for");
  }
  if (read && !known && (MustCall(tools) || plan->fields.form.has_value())) {
    return CannotBind(place, absl::StrCat("calls of the family '", OutputFormatName(*plan->output_format),
                                          "' cannot be held to a form; leave the choice to the model, and the form of "
                                          "the answer open"));
  }
  if (!known) {
    if (strict) plan->ignored.push_back("tools.strict");
    return std::nullopt;
  }
  const bool one = tools.choice() == ToolSet::Choice::kNamed;
  CallForm calls = {.tools = {}, .required = MustCall(tools), .several = tools.parallel && !one};
  for (const OfferedTool& tool : tools.offered()) {
    if (one && tool.name != tools.chosen()) continue;
    calls.tools.push_back({tool.name, tool.function["parameters"], calls.required || tool.strict});
  }
  return calls;
}

// The program of the form. Where it cannot be compiled, and calls without bound arguments can (their schemas are too
// large, or one is a loop), it is the program of that, and plan->ignored says so.
absl::StatusOr<std::shared_ptr<const std::string>> ProgramOf(CallPlan* plan, AnswerForm* form) {
  const OutputFormat format = plan->output_format.value_or(OutputFormat::kPlain);
  AnswerGrammars& grammars = *plan->model->grammars;
  auto program = grammars.Get(*form, format, plan->output_start());
  const bool may_help = absl::IsResourceExhausted(program.status()) || absl::IsInvalidArgument(program.status());
  if (!may_help || !form->calls.has_value()) return program;
  for (CallableTool& tool : form->calls->tools) tool.bind_arguments = false;
  auto open = grammars.Get(*form, format, plan->output_start());
  if (open.ok()) plan->ignored.push_back("tools.strict");
  return open.ok() ? open : program;
}

absl::Status FormError(const std::string& place, bool is_content, const absl::Status& status) {
  const std::string message = absl::StrCat(place, ": ", status.message());
  switch (status.code()) {
    case absl::StatusCode::kUnimplemented:
      return ApiStatus(is_content ? ApiErrorCode::kUnsupportedSchema : ApiErrorCode::kUnsupportedParameter, message,
                       place);
    case absl::StatusCode::kFailedPrecondition: return ApiStatus(ApiErrorCode::kUnsupportedParameter, message, place);
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kResourceExhausted: return ApiStatus(ApiErrorCode::kInvalidValue, message, place);
    default: return status;
  }
}

}  // namespace

absl::Status ReadAskedForm(FieldReader* fields, FormSpelling spelling, std::optional<AskedForm>* form,
                           std::vector<std::string>* ignored) {
  if (spelling == FormSpelling::kResponseFormat) return ReadResponseFormat(fields, form, ignored);
  if (spelling == FormSpelling::kTextFormat) return ReadFormatWithin(fields, "text", form);
  RETURN_IF_ERROR(ReadFormatWithin(fields, "output_config", form));
  const Json* older = fields->Find("output_format");
  if (older == nullptr) return absl::OkStatus();
  if (form->has_value()) return WrongField("output_format", "expected one of this and 'output_config.format'");
  return ReadFormat("output_format", "schema", *older, form);
}

absl::Status BindAnswer(CallPlan* plan) {
  const ToolSet none;
  const ToolSet& tools = plan->tools == nullptr ? none : *plan->tools;
  const std::optional<AskedForm>& asked = plan->fields.form;
  AnswerForm form;
  ASSIGN_OR_RETURN(form.calls, CallsOf(tools, plan));
  if (asked.has_value()) form.content = asked->content;
  if (!form.content.has_value() && !form.calls.has_value()) return absl::OkStatus();

  const bool must_call = form.calls.has_value() && form.calls->required;
  const std::string calls_place = must_call ? "tool_choice" : "tools";
  const std::string place = asked.has_value() ? asked->place : calls_place;
  if (plan->fields.ignore_eos) {
    return WrongField("ignore_eos", absl::StrCat("is true beside ", place, ", whose answers end when they are whole"));
  }
  if (plan->continues && (asked.has_value() || must_call)) {
    return Misplaced(place, "asks for a form of the whole answer, but the last message has begun it");
  }
  if (plan->continues) {
    plan->ignored.push_back("tools.strict");
    return absl::OkStatus();
  }
  auto program = ProgramOf(plan, &form);
  if (program.ok()) {
    plan->grammar = *std::move(program);
    // Of a whole text, which may well have such a one in it.
    if (asked.has_value() || must_call) plan->answer_ends.clear();
    return absl::OkStatus();
  }
  bool of_content = form.content.has_value();
  if (of_content && form.calls.has_value()) {
    form.calls.reset();
    auto alone = ProgramOf(plan, &form);
    of_content = !alone.ok();
    if (of_content) program = std::move(alone);
  }
  return FormError(of_content ? place : calls_place, of_content, program.status());
}

}  // namespace stagecoach
