#include <ctime>

#include "absl/strings/str_cat.h"
#include "common/base/shown_text.h"
#include "common/base/status_macros.h"
#include "coordinator/text/jinja/access.h"
#include "coordinator/text/jinja/builtins.h"
#include "coordinator/text/jinja/literals.h"
#include "coordinator/text/jinja/operators.h"
#include "coordinator/text/jinja/printing.h"
#include "coordinator/text/jinja/raised.h"

// Functions that every template can call.

namespace stagecoach::jinja {
namespace {

struct Range {
  Integer begin = 0;
  Integer end = 0;
  Integer stride = 1;

  Integer Count() const {
    if (stride > 0) return begin < end ? (end - begin - 1) / stride + 1 : 0;
    return begin > end ? (begin - end - 1) / -stride + 1 : 0;
  }
};

absl::StatusOr<Value> RangeFunction(const Call& call) {
  constexpr Integer kFarthest = Integer{1} << 64;  // no sum of bounds within is too large
  Range range;
  Integer* const parts[] = {&range.begin, &range.end, &range.stride};
  TextOrigin origin = TextOrigin::kTemplate;
  for (size_t i = 0; i < 3; ++i) {
    ASSIGN_OR_RETURN(*parts[i], call.IntegerOr(i, *parts[i]));
    if (*parts[i] < -kFarthest || *parts[i] > kFarthest)
      return absl::InvalidArgumentError("a bound of 'range' is too large");
    if (call.Has(i)) origin = Both(origin, call.Get(i).origin());
  }
  if (!call.Has(1)) range = Range{0, range.begin, 1};
  if (range.stride == 0) return absl::InvalidArgumentError("the stride of 'range' cannot be 0");
  const Integer count = range.Count();
  const int64_t limit = call.heap.budget().limits().loop_rounds;
  if (count > limit)
    return absl::ResourceExhaustedError(absl::StrCat("a range of ", IntegerText(count), " numbers, at most ", limit));
  RETURN_IF_ERROR(call.heap.budget().Work(static_cast<size_t>(count)));
  Items items = call.heap.NewItems();
  RETURN_IF_ERROR(items.Reserve(static_cast<size_t>(count)));
  for (Integer i = 0; i < count; ++i) RETURN_IF_ERROR(items.Add(Value(range.begin + i * range.stride, origin)));
  ASSIGN_OR_RETURN(const Value list, call.heap.NewList(List::Kind::kRange, origin, std::move(items)));
  list.AsList()->label = absl::StrCat("range(", IntegerText(range.begin), ", ", IntegerText(range.end),
                                      range.stride == 1 ? "" : absl::StrCat(", ", IntegerText(range.stride)), ")");
  return list;
}

// The entries of what dict(...) is given.
absl::StatusOr<Dict*> DictOfArguments(const Call& call) {
  const Arguments& arguments = call.arguments;
  if (arguments.by_place.size() > 1) return absl::InvalidArgumentError("at most one argument without a name is taken");
  const Dict* start = arguments.by_place.empty() ? nullptr : arguments.by_place[0].AsDict();
  if (start == nullptr && !arguments.by_place.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("a dict is needed, not a ", TypeName(arguments.by_place[0])));
  }
  ASSIGN_OR_RETURN(Dict * dict, call.heap.NewDict(start == nullptr ? TextOrigin::kTemplate : start->origin));
  const auto set = [&](const Value& name, const Value& value) -> absl::Status {
    ASSIGN_OR_RETURN(const std::string key, DictKey(call.heap, name));
    return call.heap.SetEntry(dict, key, name, value);
  };
  for (size_t i = 0; start != nullptr && i < start->entries().size(); ++i) {
    RETURN_IF_ERROR(set(start->entries()[i].first, start->entries()[i].second));
  }
  for (const auto& [name, value] : arguments.by_name) {
    ASSIGN_OR_RETURN(const Value key, call.heap.NewString(name, TextOrigin::kTemplate));
    RETURN_IF_ERROR(set(key, value));
  }
  return dict;
}

absl::StatusOr<Value> DictFunction(const Call& call) {
  ASSIGN_OR_RETURN(Dict * dict, DictOfArguments(call));
  return Value(dict);
}

absl::StatusOr<Value> NamespaceFunction(const Call& call) {
  ASSIGN_OR_RETURN(const Dict* dict, DictOfArguments(call));
  ASSIGN_OR_RETURN(Namespace * names, call.heap.New<Namespace>());
  for (const auto& [name, value] : dict->entries()) {
    if (name.AsString() == nullptr)
      return absl::InvalidArgumentError(absl::StrCat("a ", TypeName(name), " is no name in a namespace"));
    RETURN_IF_ERROR(call.heap.SetAttribute(names, name.AsString()->view(), value));
  }
  return Value(names);
}

// The template's own words are shown, what they echo of the request is cut.
absl::StatusOr<Value> RaiseExceptionFunction(const Call& call) {
  constexpr size_t kMostCharacters = 1000;
  ASSIGN_OR_RETURN(const Value value, ToText(call.heap, call.Get(0)));
  const MarkedText& text = value.AsString()->text;
  std::string message;
  size_t begin = 0;
  for (const MarkedText::Run& run : text.runs()) {
    const absl::string_view part = value.AsString()->view().substr(begin, run.end - begin);
    absl::StrAppend(&message,
                    CutText(part, run.origin == TextOrigin::kRequest ? kMostShownCharacters : kMostCharacters));
    if (message.size() > 4 * kMostCharacters) break;
    begin = run.end;
  }
  return RaisedError(CutText(message, kMostCharacters));
}

absl::StatusOr<Value> StrftimeNowFunction(const Call& call) {
  constexpr size_t kMaxFormatBytes = 1024;
  ASSIGN_OR_RETURN(const String* format, call.StringOf(0));
  if (format->text.size() > kMaxFormatBytes || format->view().find('\0') != absl::string_view::npos) {
    return absl::InvalidArgumentError("the format of 'strftime_now' is too long, or holds a zero");
  }
  const std::tm now = absl::ToTM(call.now, absl::LocalTimeZone());
  // A space more, so that an empty text is told from one that is too long.
  const std::string ended(absl::StrCat(format->view(), " "));
  char text[16384];
  const size_t size = std::strftime(text, sizeof(text), ended.c_str(), &now);
  if (size == 0) return absl::InvalidArgumentError("the text of 'strftime_now' is too long");
  return call.heap.NewString(absl::string_view(text, size - 1), OriginOf(format->text));
}

}  // namespace

absl::Span<const Builtin> Functions() {
  static const auto* const functions = new std::vector<Builtin>{
      {"dict", DictFunction, Builtin::kAnyArguments},
      {"namespace", NamespaceFunction, Builtin::kAnyArguments},
      {"raise_exception", RaiseExceptionFunction, 1, {"message"}},
      {"range", RangeFunction, 1, {"start", "stop", "step"}},
      {"strftime_now", StrftimeNowFunction, 1, {"format"}},
  };
  return *functions;
}

}  // namespace stagecoach::jinja
