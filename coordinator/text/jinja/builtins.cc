#include "coordinator/text/jinja/builtins.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/shown_text.h"
#include "common/base/status_macros.h"

namespace stagecoach::jinja {
namespace {

// The builtins of several tables by name.
class BuiltinIndex {
 public:
  BuiltinIndex(std::initializer_list<absl::Span<const Builtin>> tables) {
    for (const absl::Span<const Builtin> table : tables) {
      for (const Builtin& builtin : table) builtins_.emplace(builtin.name, &builtin);
    }
  }

  const Builtin* Find(absl::string_view name) const {
    const auto found = builtins_.find(name);
    return found == builtins_.end() ? nullptr : found->second;
  }

  std::string Names() const {
    std::vector<absl::string_view> names;
    for (const auto& [name, builtin] : builtins_) names.push_back(name);
    std::sort(names.begin(), names.end());
    return absl::StrJoin(names, ", ");
  }

 private:
  absl::flat_hash_map<absl::string_view, const Builtin*> builtins_;
};

// Never destroyed: a rendering may still run when the program ends.
const BuiltinIndex& Filters() {
  static const auto* const index = new BuiltinIndex({TextFilters(), ListFilters(), ValueFilters(), SelectingFilters()});
  return *index;
}

const BuiltinIndex& Tests() {
  static const auto* const index = new BuiltinIndex({ValueTests()});
  return *index;
}

const BuiltinIndex& AllFunctions() {
  static const auto* const index = new BuiltinIndex({Functions()});
  return *index;
}

// Null for a type that has no methods.
const BuiltinIndex* MethodsOf(const Value& self) {
  static const auto* const of_strings = new BuiltinIndex({StringMethods()});
  static const auto* const of_lists = new BuiltinIndex({ListMethods()});
  static const auto* const of_dicts = new BuiltinIndex({DictMethods()});
  static const auto* const of_loops = new BuiltinIndex({LoopMethods()});
  if (self.AsString() != nullptr) return of_strings;
  if (self.AsDict() != nullptr) return of_dicts;
  if (self.AsLoop() != nullptr) return of_loops;
  return self.AsList(List::Kind::kList) != nullptr ? of_lists : nullptr;
}

// Finds the place of every argument among the parameters.
absl::Status Bind(const Builtin& builtin, const Arguments& arguments, std::vector<const Value*>* given) {
  if (arguments.by_place.size() > builtin.parameters.size()) {
    return absl::InvalidArgumentError(absl::StrCat("'", builtin.name, "' takes at most ", builtin.parameters.size(),
                                                   " arguments, not ", arguments.by_place.size()));
  }
  given->assign(builtin.parameters.size(), nullptr);
  for (size_t i = 0; i < arguments.by_place.size(); ++i) (*given)[i] = &arguments.by_place[i];
  for (const auto& [name, value] : arguments.by_name) {
    const auto parameter = std::find(builtin.parameters.begin(), builtin.parameters.end(), name);
    if (parameter == builtin.parameters.end())
      return absl::InvalidArgumentError(absl::StrCat("'", builtin.name, "' has no argument ", ShownText(name)));
    const Value*& place = (*given)[static_cast<size_t>(parameter - builtin.parameters.begin())];
    if (place != nullptr)
      return absl::InvalidArgumentError(
          absl::StrCat("the argument ", ShownText(name), " of '", builtin.name, "' is given twice"));
    place = &value;
  }
  for (int i = 0; i < builtin.required; ++i) {
    if ((*given)[static_cast<size_t>(i)] != nullptr) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("'", builtin.name, "' needs the argument '", builtin.parameters[static_cast<size_t>(i)], "'"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Integer> Call::IntegerOr(size_t parameter, Integer otherwise) const {
  if (!Has(parameter)) return otherwise;
  Integer value = 0;
  if (Get(parameter).AsInteger(&value)) return value;
  return absl::InvalidArgumentError(absl::StrCat("an integer is needed, not a ", TypeName(Get(parameter))));
}

absl::StatusOr<const String*> Call::StringOf(size_t parameter) const {
  const String* string = Get(parameter).AsString();
  if (string != nullptr) return string;
  if (Get(parameter).IsUndefined()) return absl::InvalidArgumentError(UndefinedMessage(Get(parameter)));
  return absl::InvalidArgumentError(absl::StrCat("a string is needed, not a ", TypeName(Get(parameter))));
}

const Builtin* FindFilter(absl::string_view name) { return Filters().Find(name); }

const Builtin* FindTest(absl::string_view name) { return Tests().Find(name); }

const Builtin* FindFunction(absl::string_view name) { return AllFunctions().Find(name); }

const Builtin* FindMethod(const Value& self, absl::string_view name) {
  const BuiltinIndex* methods = MethodsOf(self);
  return methods == nullptr ? nullptr : methods->Find(name);
}

std::string FilterNames() { return Filters().Names(); }

std::string TestNames() { return Tests().Names(); }

absl::StatusOr<Value> RunBuiltin(const Builtin& builtin, Heap& heap, absl::Time now, const Value& self,
                                 const Arguments& arguments) {
  RETURN_IF_ERROR(heap.budget().Work(1));
  std::vector<const Value*> given;
  if (builtin.required != Builtin::kAnyArguments) RETURN_IF_ERROR(Bind(builtin, arguments, &given));
  return builtin.run(Call{heap, now, self, arguments, given});
}

}  // namespace stagecoach::jinja
