#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/shown_text.h"
#include "common/base/status_macros.h"
#include "coordinator/text/jinja/access.h"
#include "coordinator/text/jinja/builtins.h"

// Filters that apply a filter or test to every item: map, select, reject, selectattr, rejectattr.

namespace stagecoach::jinja {
namespace {

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
  if (place >= arguments.by_place.size())
    return absl::InvalidArgumentError(absl::StrCat("the name of ", what, " is missing"));
  const String* name = arguments.by_place[place].AsString();
  if (name == nullptr) return absl::InvalidArgumentError(absl::StrCat("the name of ", what, " is no string"));
  return name;
}

// What is false has no items, even if it is nothing that has items: none, 0.
absl::StatusOr<Items> ItemsOf(const Call& call) {
  if (!Truth(call.self)) return call.heap.NewItems();
  return Iterate(call.heap, call.self);
}

absl::StatusOr<Value> MapAttribute(const Call& call, const Value& attribute) {
  if (!call.arguments.by_place.empty())
    return absl::InvalidArgumentError("'map' takes a filter or an attribute, not both");
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
  const Builtin* filter = FindFilter(name->view());
  if (filter == nullptr)
    return absl::InvalidArgumentError(
        absl::StrCat("unknown filter ", ShownText(name->view()), "; there are ", FilterNames()));
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
  if (call.arguments.by_place.size() < test_place)
    return absl::InvalidArgumentError("the name of an attribute is missing");
  const Builtin* test = nullptr;  // null: the value's own truth
  Arguments rest;
  if (call.arguments.by_place.size() > test_place) {
    ASSIGN_OR_RETURN(const String* name, NameAt(call.arguments, test_place, "a test"));
    test = FindTest(name->view());
    if (test == nullptr)
      return absl::InvalidArgumentError(
          absl::StrCat("unknown test ", ShownText(name->view()), "; there are ", TestNames()));
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

}  // namespace

absl::Span<const Builtin> SelectingFilters() {
  static const auto* const filters = new std::vector<Builtin>{
      {"map", MapFilter, Builtin::kAnyArguments},
      {"reject", SelectFilter<false, false>, Builtin::kAnyArguments},
      {"rejectattr", SelectFilter<true, false>, Builtin::kAnyArguments},
      {"select", SelectFilter<false, true>, Builtin::kAnyArguments},
      {"selectattr", SelectFilter<true, true>, Builtin::kAnyArguments},
  };
  return *filters;
}

}  // namespace stagecoach::jinja
