#ifndef STAGECOACH_COORDINATOR_TEXT_JINJA_BUILTINS_H_
#define STAGECOACH_COORDINATOR_TEXT_JINJA_BUILTINS_H_

// Filters, tests, functions and methods: one table for each, all of functions of one form.

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "coordinator/text/jinja/heap.h"
#include "coordinator/text/jinja/value.h"

namespace stagecoach::jinja {

struct Arguments {
  std::vector<Value> by_place;
  std::vector<std::pair<absl::string_view, Value>> by_name;
};

// One call of a filter, test, function or method.
struct Call {
  Heap& heap;
  absl::Time now;
  const Value& self;           // what is filtered or tested, or whose method it is; undefined for functions
  const Arguments& arguments;  // all of them
  // The argument of each parameter, in the builtin's order; null when it is missing. Empty for those with
  // kAnyArguments.
  absl::Span<const Value* const> given;

  bool Has(size_t parameter) const { return given[parameter] != nullptr; }
  const Value& Get(size_t parameter) const { return *given[parameter]; }
  bool Flag(size_t parameter, bool otherwise = false) const {
    return Has(parameter) ? Truth(Get(parameter)) : otherwise;
  }
  // Whether the argument is there and not none.
  bool IsSet(size_t parameter) const { return Has(parameter) && !Get(parameter).IsNone(); }
  // InvalidArgument when it is no integer.
  absl::StatusOr<Integer> IntegerOr(size_t parameter, Integer otherwise) const;
  // The argument as a string; InvalidArgument when it is none.
  absl::StatusOr<const String*> StringOf(size_t parameter) const;
};

struct Builtin {
  static constexpr int kAnyArguments = -1;

  const char* name;
  absl::StatusOr<Value> (*run)(const Call& call);
  int required = 0;  // of the parameters, the first so many; kAnyArguments: `run` looks at them itself
  std::vector<absl::string_view> parameters = {};
};

// Null when there is none of this name.
const Builtin* FindFilter(absl::string_view name);
const Builtin* FindTest(absl::string_view name);
const Builtin* FindFunction(absl::string_view name);
// Of a value's type.
const Builtin* FindMethod(const Value& self, absl::string_view name);

// The names of a table in alphabetical order, for messages.
std::string FilterNames();
std::string TestNames();

// Binds the arguments to the builtin's parameters and runs it. InvalidArgument where they do not fit.
absl::StatusOr<Value> RunBuiltin(const Builtin& builtin, Heap& heap, absl::Time now, const Value& self,
                                 const Arguments& arguments);

// The tables, each in a file of its own.
absl::Span<const Builtin> TextFilters();
absl::Span<const Builtin> ListFilters();
absl::Span<const Builtin> ValueFilters();
absl::Span<const Builtin> SelectingFilters();
absl::Span<const Builtin> ValueTests();
absl::Span<const Builtin> Functions();
absl::Span<const Builtin> StringMethods();
absl::Span<const Builtin> ListMethods();
absl::Span<const Builtin> DictMethods();
absl::Span<const Builtin> LoopMethods();

}  // namespace stagecoach::jinja

#endif  // STAGECOACH_COORDINATOR_TEXT_JINJA_BUILTINS_H_
