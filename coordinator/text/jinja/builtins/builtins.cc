#include "coordinator/text/jinja/builtins/builtins.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/shown_text.h"
#include "common/base/status_macros.h"
#include "coordinator/text/jinja/operators.h"

namespace stagecoach::jinja {
namespace {

std::vector<Builtin> SelectingFilters();

using BuiltinIndex = absl::flat_hash_map<std::pair<Builtin::Kind, absl::string_view>, Builtin>;

// Never destroyed: a rendering may still run when the program ends.
const BuiltinIndex& AllBuiltins() {
  static const auto* const index = [] {
    auto* builtins = new BuiltinIndex;
    for (const auto& table : {StringBuiltins(), ContainerBuiltins(), SelectingFilters(), ValueBuiltins()}) {
      for (const Builtin& aliases : table) {
        for (const absl::string_view name : absl::StrSplit(aliases.name, ' ')) {
          Builtin builtin = aliases;
          builtin.name = name;
          builtins->emplace(BuiltinIndex::key_type(builtin.kind, name), std::move(builtin));
        }
      }
    }
    return builtins;
  }();
  return *index;
}

// Finds the place of every argument among the parameters.
absl::Status Bind(const Builtin& builtin, const Arguments& arguments, std::vector<const Value*>* given) {
  if (arguments.by_place.size() > builtin.parameters.size()) {
    return Invalid("'", builtin.name, "' takes at most ", builtin.parameters.size(), " arguments, not ",
                   arguments.by_place.size());
  }
  given->assign(builtin.parameters.size(), nullptr);
  for (size_t i = 0; i < arguments.by_place.size(); ++i) (*given)[i] = &arguments.by_place[i];
  for (const auto& [name, value] : arguments.by_name) {
    const auto parameter = std::find(builtin.parameters.begin(), builtin.parameters.end(), name);
    if (parameter == builtin.parameters.end()) return Invalid("'", builtin.name, "' has no argument ", ShownText(name));
    const Value*& place = (*given)[static_cast<size_t>(parameter - builtin.parameters.begin())];
    if (place != nullptr) return Invalid("the argument ", ShownText(name), " of '", builtin.name, "' is given twice");
    place = &value;
  }
  for (int i = 0; i < builtin.required; ++i) {
    if ((*given)[static_cast<size_t>(i)] != nullptr) continue;
    return Invalid("'", builtin.name, "' needs the argument '", builtin.parameters[static_cast<size_t>(i)], "'");
  }
  return absl::OkStatus();
}

// Filters that apply a filter or test to every item: map, select, reject, selectattr, rejectattr.

// The call's arguments without the first `count` by place.
Arguments Without(const Arguments& arguments, size_t count) {
  Arguments rest = arguments;
  rest.by_place.erase(rest.by_place.begin(), rest.by_place.begin() + static_cast<std::ptrdiff_t>(count));
  return rest;
}

const Value* Named(const Arguments& arguments, absl::string_view name) {
  for (const auto& [known, value] : arguments.by_name) {
    if (known == name) return &value;
  }
  return nullptr;
}

absl::StatusOr<const String*> NameAt(const Arguments& arguments, size_t place, absl::string_view what) {
  if (place >= arguments.by_place.size()) return Invalid("the name of ", what, " is missing");
  const String* name = arguments.by_place[place].AsString();
  if (name == nullptr) return Invalid("the name of ", what, " is no string");
  return name;
}

// What is false has no items, even if it is nothing that has items: none, 0.
absl::StatusOr<Items> ItemsOf(const Call& call) {
  if (!Truth(call.self)) return call.heap.NewItems();
  return Iterate(call.heap, call.self);
}

absl::StatusOr<Value> MapAttribute(const Call& call, const Value& attribute) {
  if (!call.arguments.by_place.empty()) return Invalid("'map' takes a filter or an attribute, not both");
  const Value* otherwise = Named(call.arguments, "default");
  ASSIGN_OR_RETURN(Items items, ItemsOf(call));
  for (Value& item : items) {
    ASSIGN_OR_RETURN(item, AttributePath(call.heap, item, attribute));
    if (item.IsUndefined() && otherwise != nullptr) item = *otherwise;
  }
  return call.heap.NewList(List::Kind::kGenerator, call.self.origin(), std::move(items));
}

absl::StatusOr<Value> MapFilter(const Call& call) {
  if (const Value* attribute = Named(call.arguments, "attribute")) return MapAttribute(call, *attribute);
  ASSIGN_OR_RETURN(const String* name, NameAt(call.arguments, 0, "a filter"));
  const Builtin* filter = FindBuiltin(Builtin::Kind::kFilter, name->view());
  if (filter == nullptr) return UnknownBuiltin(Builtin::Kind::kFilter, name->view());
  // map('map', 'map', ...) goes one level deeper for each.
  RETURN_IF_ERROR(
      call.heap.budget().CheckDepth(static_cast<int>(std::min<size_t>(call.arguments.by_place.size(), 1 << 20))));
  const Arguments rest = Without(call.arguments, 1);
  ASSIGN_OR_RETURN(Items items, ItemsOf(call));
  for (Value& item : items) {
    ASSIGN_OR_RETURN(item, RunBuiltin(*filter, call.heap, call.now, item, rest));
  }
  return call.heap.NewList(List::Kind::kGenerator, call.self.origin(), std::move(items));
}

// select and reject; selectattr and rejectattr look at an attribute of each item.
template <bool kOfAttribute, bool kWanted>
absl::StatusOr<Value> SelectFilter(const Call& call) {
  const size_t test_place = kOfAttribute ? 1 : 0;
  if (call.arguments.by_place.size() < test_place) return Invalid("the name of an attribute is missing");
  const Builtin* test = nullptr;  // null: the value's own truth
  Arguments rest;
  if (call.arguments.by_place.size() > test_place) {
    ASSIGN_OR_RETURN(const String* name, NameAt(call.arguments, test_place, "a test"));
    test = FindBuiltin(Builtin::Kind::kTest, name->view());
    if (test == nullptr) return UnknownBuiltin(Builtin::Kind::kTest, name->view());
    rest = Without(call.arguments, test_place + 1);
  }
  ASSIGN_OR_RETURN(const Items items, ItemsOf(call));
  Items selected = call.heap.NewItems();
  for (const Value& item : items) {
    RETURN_IF_ERROR(call.heap.budget().Work(1));
    Value value = item;
    if (kOfAttribute) {
      ASSIGN_OR_RETURN(value, AttributePath(call.heap, item, call.arguments.by_place[0]));
    }
    if (test != nullptr) {
      ASSIGN_OR_RETURN(value, RunBuiltin(*test, call.heap, call.now, value, rest));
    }
    if (Truth(value) == kWanted) RETURN_IF_ERROR(selected.Add(item));
  }
  return call.heap.NewList(List::Kind::kGenerator, call.self.origin(), std::move(selected));
}

std::vector<Builtin> SelectingFilters() {
  using enum Builtin::Kind;
  return {
      {kFilter, "map", MapFilter, Builtin::kAnyArguments},
      {kFilter, "reject", SelectFilter<false, false>, Builtin::kAnyArguments},
      {kFilter, "rejectattr", SelectFilter<true, false>, Builtin::kAnyArguments},
      {kFilter, "select", SelectFilter<false, true>, Builtin::kAnyArguments},
      {kFilter, "selectattr", SelectFilter<true, true>, Builtin::kAnyArguments},
  };
}

}  // namespace

absl::StatusOr<Integer> Call::IntegerOr(size_t parameter, Integer otherwise) const {
  if (!Has(parameter)) return otherwise;
  Integer value = 0;
  if (Get(parameter).AsInteger(&value)) return value;
  return Invalid("an integer is needed, not a ", TypeName(Get(parameter)));
}

absl::StatusOr<const String*> Call::StringOf(size_t parameter) const {
  const String* string = Get(parameter).AsString();
  if (string == nullptr) return TypeMismatch("a string is needed, not a ", Get(parameter));
  return string;
}

const Builtin* FindBuiltin(Builtin::Kind kind, absl::string_view name) {
  const auto found = AllBuiltins().find(BuiltinIndex::key_type(kind, name));
  return found == AllBuiltins().end() ? nullptr : &found->second;
}

const Builtin* FindMethod(const Value& self, absl::string_view name) {
  if (self.AsString() != nullptr) return FindBuiltin(Builtin::Kind::kStringMethod, name);
  if (self.AsDict() != nullptr) return FindBuiltin(Builtin::Kind::kDictMethod, name);
  if (self.AsLoop() != nullptr) return FindBuiltin(Builtin::Kind::kLoopMethod, name);
  return self.AsList(List::Kind::kList) == nullptr ? nullptr : FindBuiltin(Builtin::Kind::kListMethod, name);
}

absl::Status UnknownBuiltin(Builtin::Kind kind, absl::string_view name) {
  std::vector<absl::string_view> names;
  for (const auto& [key, builtin] : AllBuiltins()) {
    if (key.first == kind) names.push_back(key.second);
  }
  std::sort(names.begin(), names.end());
  return Invalid("unknown ", kind == Builtin::Kind::kTest ? "test " : "filter ", ShownText(name), "; there are ",
                 absl::StrJoin(names, ", "));
}

absl::StatusOr<Value> RunBuiltin(const Builtin& builtin, Heap& heap, absl::Time now, const Value& self,
                                 const Arguments& arguments) {
  RETURN_IF_ERROR(heap.budget().Work(1));
  std::vector<const Value*> given;
  if (builtin.required != Builtin::kAnyArguments) RETURN_IF_ERROR(Bind(builtin, arguments, &given));
  return builtin.run(Call{heap, now, self, arguments, given});
}

}  // namespace stagecoach::jinja
