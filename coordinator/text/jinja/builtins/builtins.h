#ifndef STAGECOACH_COORDINATOR_TEXT_JINJA_BUILTINS_BUILTINS_H_
#define STAGECOACH_COORDINATOR_TEXT_JINJA_BUILTINS_BUILTINS_H_

// Filters, tests, functions and methods: tables of functions of one form.

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "coordinator/text/jinja/values/heap.h"
#include "coordinator/text/jinja/values/value.h"

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
  // The argument of each parameter, in the builtin's order; null: missing. Empty with kAnyArguments.
  absl::Span<const Value* const> given;

  bool Has(size_t parameter) const { return given[parameter] != nullptr; }
  const Value& Get(size_t parameter) const { return *given[parameter]; }
  bool Flag(size_t parameter, bool otherwise = false) const {
    return Has(parameter) ? Truth(Get(parameter)) : otherwise;
  }
  // Whether the argument is there and not none.
  bool IsSet(size_t parameter) const { return Has(parameter) && !Get(parameter).IsNone(); }
  // InvalidArgument when it is there and no integer.
  absl::StatusOr<Integer> IntegerOr(size_t parameter, Integer otherwise) const;
  // The argument as a string; InvalidArgument when it is no string.
  absl::StatusOr<const String*> StringOf(size_t parameter) const;
  // The same, and null when the argument is missing or none.
  absl::StatusOr<const String*> StringIfSet(size_t parameter) const {
    return IsSet(parameter) ? StringOf(parameter) : nullptr;
  }
};

struct Builtin {
  enum class Kind { kFilter, kTest, kFunction, kStringMethod, kListMethod, kDictMethod, kLoopMethod };
  static constexpr int kAnyArguments = -1;

  Kind kind;
  absl::string_view name;  // in the tables: of several with a blank between
  absl::StatusOr<Value> (*run)(const Call& call);
  int required = 0;  // of the parameters, the first so many; kAnyArguments: `run` looks at them itself
  std::vector<absl::string_view> parameters = {};
};

// Null when there is none of this name.
const Builtin* FindBuiltin(Builtin::Kind kind, absl::string_view name);
// Of a value's type.
const Builtin* FindMethod(const Value& self, absl::string_view name);

// InvalidArgument for a filter or test that FindBuiltin does not find: "unknown filter 'x'; there are ...".
absl::Status UnknownBuiltin(Builtin::Kind kind, absl::string_view name);

// Binds the arguments to the builtin's parameters and runs it. InvalidArgument where they do not fit.
absl::StatusOr<Value> RunBuiltin(const Builtin& builtin, Heap& heap, absl::Time now, const Value& self,
                                 const Arguments& arguments);

// What raise_exception(message) ends a rendering with: JinjaRaised knows it, and it gets no line put before its text.
absl::Status RaisedError(absl::string_view message);

// The tables of other files.
std::vector<Builtin> StringBuiltins();
std::vector<Builtin> ContainerBuiltins();
std::vector<Builtin> ValueBuiltins();

}  // namespace stagecoach::jinja

#endif  // STAGECOACH_COORDINATOR_TEXT_JINJA_BUILTINS_BUILTINS_H_
