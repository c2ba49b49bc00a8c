#include "coordinator/text/output/call_reader.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/json/json.h"

namespace stagecoach {
namespace {

// Text without quotes that is not known to be a string.
std::string ValueText(absl::string_view text) {
  const absl::string_view value = WithoutSpaceAround(text);
  if (value == "True") return "true";
  if (value == "False") return "false";
  if (value == "None") return "null";
  return AsJson(value).value_or(JsonString(text));
}

}  // namespace

CallReader::State CallReader::Read(absl::string_view text, bool at_end) {
  call_ended_ = false;
  while (true) {
    const size_t most = in_trial_ ? OutputParser::kTrialBytes : OutputParser::kMostCallBytes;
    const bool is_full = text.size() >= most;
    in_.Show(text.substr(0, most), at_end && !is_full);
    while (in_.ok() && at_ != At::kDone && !call_ended_) {
      settles_ = false;
      in_.BeginStep();
      Step();
      in_.EndStep();
      if (settles_) settled_ = in_.position();
    }
    if (at_ == At::kDone) return State::kDone;
    if (!in_.starved()) return call_ended_ ? State::kMore : State::kBad;
    if (!is_full) {
      if (!at_end) return State::kMore;
      in_.Skip(in_.rest().size());
      return State::kBad;
    }
    // Where nothing can be released, no more can be held back.
    if (!in_trial_) return settled_ > 0 ? State::kMore : State::kBad;
    in_trial_ = false;
  }
}

size_t CallReader::Release(std::vector<OutputDelta>* deltas) {
  const bool is_done = at_ == At::kDone;
  if (in_trial_ && !call_ended_ && !is_done) return 0;
  for (OutputDelta& delta : deltas_) AppendDelta(std::move(delta), deltas);
  deltas_.clear();
  const size_t bytes = is_done ? in_.position() : std::exchange(settled_, 0);
  in_.Forget(bytes);
  return bytes;
}

void CallReader::Step() {
  if (at_ >= At::kArgument && IsOutputSpace(in_.Peek())) return in_.Skip(LeadingSpace(in_.rest()));
  switch (at_) {
    case At::kHead: return ReadHead();
    case At::kObject: return StepObject();
    case At::kArgument: return ReadArgument();
    case At::kText: return StepText();
    case At::kTail: return ReadTail();
    case At::kDone: return;
    default: return StepJson();
  }
}

void CallReader::ReadTail() {
  if (!end_mark_.empty()) in_.TryAfterSpace(end_mark_);
  Finish();
}

// What is given out.

void CallReader::StartCall(absl::string_view name, absl::string_view id) {
  if (name.empty() || (is_message_ && !tools_.Has(name))) in_.Fail();
  if (!in_.ok()) return;
  open_ = settles_ = true;
  name_ = std::string(name);
  has_arguments_ = false;
  deltas_.push_back({OutputKind::kCallStart, name_, std::string(id)});
}

void CallReader::Put(absl::string_view arguments) {
  if (!in_.ok() || arguments.empty()) return;
  settles_ = true;
  AppendDelta({OutputKind::kCallArguments, std::string(arguments), ""}, &deltas_);
}

void CallReader::EndCall() {
  if (!in_.ok() || !open_) return;
  deltas_.push_back({OutputKind::kCallEnd, "", ""});
  open_ = false;
  settles_ = call_ended_ = in_trial_ = true;
}

void CallReader::EndArguments() {
  if (!is_message_ || !in_doubt()) EndCall();
}

// Arguments that are an object.

void CallReader::BeginObject(absl::string_view name, absl::string_view id) {
  in_.SkipSpace();
  if (in_.Peek() != '{') in_.Fail();
  StartCall(name, id);
  value_.Begin(ValueReader::Language::kJson);
  Go(At::kObject);
}

void CallReader::BeginInside(absl::string_view name, ValueReader::Language language, char close) {
  StartCall(name, "");
  Put("{");
  value_.BeginInside(language, close);
  Go(At::kObject);
}

void CallReader::StepObject() {
  Put(StepValue());
  if (!in_.ok() || !value_.done()) return;
  EndArguments();
  Go(At::kTail);
}

std::string CallReader::StepValue() {
  std::string json;
  value_.Step(&in_, &json);
  return in_.ok() ? json : "";
}

// Arguments that have tags of their own.

void CallReader::BeginTags(absl::string_view name) {
  StartCall(name, "");
  Put("{");
  Go(At::kArgument);
}

bool CallReader::SchemaSaysText(absl::string_view key) const {
  return tools_.Find(name_, key) == OutputTools::Parameter::kText;
}

void CallReader::BeginText(absl::string_view key, bool is_text, absl::Span<const absl::string_view> ends) {
  if (!in_.ok()) return;
  Put(absl::StrCat(has_arguments_ ? ", " : "", JsonString(key), ": ", is_text ? "\"" : ""));
  has_arguments_ = true;
  is_text_ = is_text;
  ends_ = ends;
  text_.clear();
  Go(At::kText);
}

void CallReader::StepText() {
  std::string text;
  const bool ends = in_.Text(ends_, &text);
  if (!in_.ok()) return;
  if (is_text_) {
    std::string json;
    AppendInString(text, &json);
    Put(absl::StrCat(json, ends ? "\"" : ""));
  } else {
    text_ += text;
    if (ends) Put(ValueText(text_));
  }
  if (ends) Go(At::kArgument);
}

void CallReader::EndTags() {
  Put("}");
  EndArguments();
  Go(At::kTail);
}

// Calls in JSON.

void CallReader::BeginJson(bool in_list) {
  in_list_ = in_list;
  Go(At::kJsonCall);
}

void CallReader::StepJson() {
  const char next = in_.Peek();
  switch (at_) {
    case At::kJsonCall:
      in_.Expect("{");
      json_ = {};
      return Go(At::kJsonMember);
    case At::kJsonMember:
      if (next == '}' && !json_.has_members) return EndJsonCall();
      if (next != '"') in_.Fail();
      text_.clear();
      value_.Begin(ValueReader::Language::kJson);
      return Go(At::kJsonKey);
    case At::kJsonKey: return StepJsonKey();
    case At::kJsonColon: return BeginJsonValue();
    case At::kJsonValue: return StepJsonValue();
    case At::kJsonAfter:
      if (next == '}') return EndJsonCall();
      // Of a call that has left as a whole, the last brace may be missing.
      if (json_.has_name && !open_ && !end_mark_.empty() && in_.Try(end_mark_)) return Finish();
      in_.Expect(",");
      return Go(At::kJsonMember);
    case At::kJsonNext:
      if (in_.Try("]")) return Go(At::kTail);
      in_.Expect(",");
      return Go(At::kJsonCall);
    default: return;
  }
}

void CallReader::StepJsonKey() {
  text_ += StepValue();
  if (!in_.ok() || !value_.done()) return;
  const std::string key = JsonStringValue(text_).value_or("");
  const bool may_begin = key == "name" || key == "type" || key == "parameters" || key == "arguments";
  if (is_message_ && !json_.has_members && !may_begin) in_.Fail();
  json_.member = MemberOf(key);
  json_.has_members = true;
  Go(At::kJsonColon);
}

CallReader::Member CallReader::MemberOf(absl::string_view key) const {
  if (key == "name" || key == "tool_name") return json_.has_name ? Member::kOther : Member::kName;
  if (key == "arguments" || key == "parameters") return json_.has_arguments ? Member::kOther : Member::kArguments;
  if (key == "id" || key == "tool_call_id") return Member::kId;
  return Member::kOther;
}

// Some models write the object as a string, some null or "" where there are no arguments.
void CallReader::BeginJsonValue() {
  in_.Expect(":");
  in_.SkipSpace();
  const char next = in_.Peek();
  if (json_.member == Member::kArguments && next != '{') {
    if (next != '"' && next != 'n') in_.Fail();
    if (in_.ok()) json_.member = Member::kArgumentsAsText;
  }
  // What is left of a call that breaks begins with its arguments.
  settles_ = in_.ok() && json_.has_name && json_.member >= Member::kArguments;
  text_.clear();
  value_.Begin(ValueReader::Language::kJson);
  Go(At::kJsonValue);
}

void CallReader::StepJsonValue() {
  const std::string json = StepValue();
  if (json_.member == Member::kArguments) {
    json_.arguments += json;
    PutJsonArguments();
  } else if (json_.member != Member::kOther) {
    text_ += json;
  }
  if (!in_.ok() || !value_.done()) return;
  EndJsonMember();
  Go(At::kJsonAfter);
}

void CallReader::EndJsonMember() {
  switch (json_.member) {
    case Member::kOther: break;
    case Member::kName:
      StartCall(JsonStringValue(text_).value_or(""), json_.id);
      json_.has_name = true;
      break;
    case Member::kId:
      json_.id = JsonStringValue(text_).value_or("");
      if (in_doubt()) deltas_.front().call_id = json_.id;
      break;
    case Member::kArguments: json_.has_arguments = true; break;
    case Member::kArgumentsAsText: {
      const std::string text = JsonStringValue(text_).value_or("");
      const absl::string_view object = WithoutSpaceAround(text);
      json_.arguments = object.empty() ? "{}" : AsJson(object).value_or("");
      if (json_.arguments.empty() || json_.arguments[0] != '{') in_.Fail();
      json_.has_arguments = true;
      break;
    }
  }
  PutJsonArguments();
}

// As soon as the name is known. A call that has begun to leave needs no more than its arguments.
void CallReader::PutJsonArguments() {
  if (!json_.has_name) return;
  Put(std::exchange(json_.arguments, ""));
  if (json_.has_arguments && !in_doubt()) EndCall();
}

void CallReader::EndJsonCall() {
  in_.Expect("}");
  if (!json_.has_name) in_.Fail();
  if (!json_.has_arguments) Put("{}");
  EndArguments();
  Go(in_list_ ? At::kJsonNext : At::kTail);
}

}  // namespace stagecoach
