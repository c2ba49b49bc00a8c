#ifndef STAGECOACH_COORDINATOR_TEXT_JINJA_VALUES_VALUE_H_
#define STAGECOACH_COORDINATOR_TEXT_JINJA_VALUES_VALUE_H_

// The values of a template's expressions, which are Python's, and what they are made of. Objects belong to the Heap of
// one rendering and are not counted; strings are.

#include <cstddef>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "coordinator/text/marked_text.h"

namespace stagecoach::jinja {

class Budget;
class Dict;
struct BoundMethod;
struct Builtin;  // builtins.h
struct List;
struct Loop;
struct Macro;  // jinja_template.cc
struct Namespace;

using Integer = __int128;  // Python's have no end; these hold every integer of a JSON text that is read as one

// Printed as nothing, false, empty; an error where more is asked of it.
struct Undefined {
  const std::string* name = nullptr;  // what the template calls it, for messages; null when it has no name there
};

struct None {};

// Never changes. `budget` is given its bytes back; null for a literal, which belongs to the program.
struct String {
  String(MarkedText text, Budget* budget);
  String(const String&) = delete;
  ~String();

  absl::string_view view() const { return text.text(); }
  bool IsAscii() const { return code_points == text.size(); }

  const MarkedText text;  // valid UTF-8
  const size_t code_points;
  Budget* const budget;
};

enum class ListKind {
  kList,
  kTuple,
  kRange,
  kView,       // what dict.items() and its like give: no indices
  kGenerator,  // what filters like `select` give: no length, and gone when it was read once
};

class Value {
 public:
  using Form = std::variant<Undefined, None, bool, Integer, double, std::shared_ptr<const String>, List*, Dict*,
                            Namespace*, Loop*, Macro*, BoundMethod*, const Builtin*>;

  Value() = default;  // undefined
  explicit Value(const std::string* undefined_name) : form_(Undefined{undefined_name}) {}
  Value(bool value, TextOrigin origin) : form_(value), origin_(origin) {}
  Value(Integer value, TextOrigin origin) : form_(value), origin_(origin) {}
  Value(double value, TextOrigin origin) : form_(value), origin_(origin) {}
  explicit Value(std::shared_ptr<const String> value) : form_(std::move(value)) {}
  template <typename T>
  requires std::is_constructible_v<Form, T*>
  explicit Value(T* object) : form_(object) {}
  static Value NoneOf(TextOrigin origin = TextOrigin::kTemplate);
  static Value Bool(bool value) { return Value(value, TextOrigin::kTemplate); }  // what the template found out
  static Value Count(size_t count, TextOrigin origin = TextOrigin::kTemplate) { return Value(Integer{count}, origin); }

  const Form& form() const { return form_; }

  bool IsUndefined() const { return Holds<Undefined>(); }
  bool IsNone() const { return Holds<None>(); }
  // Null, or 0, when it is something else.
  const String* AsString() const;
  List* AsList() const { return Pointer<List*>(); }
  List* AsList(ListKind kind) const;
  Dict* AsDict() const { return Pointer<Dict*>(); }
  Namespace* AsNamespace() const { return Pointer<Namespace*>(); }
  Loop* AsLoop() const { return Pointer<Loop*>(); }
  Macro* AsMacro() const { return Pointer<Macro*>(); }
  BoundMethod* AsMethod() const { return Pointer<BoundMethod*>(); }
  const Builtin* AsBuiltin() const { return Pointer<const Builtin*>(); }
  const bool* AsBool() const { return std::get_if<bool>(&form_); }
  const double* AsDouble() const { return std::get_if<double>(&form_); }
  // True counts as 1.
  bool AsInteger(Integer* integer) const;
  // Integers count too.
  bool AsNumber(double* number) const;

  // The request's, when any byte of a string is.
  TextOrigin origin() const;

 private:
  template <typename T>
  bool Holds() const {
    return std::holds_alternative<T>(form_);
  }
  template <typename T>
  T Pointer() const {
    const T* pointer = std::get_if<T>(&form_);
    return pointer == nullptr ? nullptr : *pointer;
  }

  Form form_;
  TextOrigin origin_ = TextOrigin::kTemplate;  // of numbers, booleans and none
};

// What the Heap owns.
struct Object {
  Object() = default;
  Object(const Object&) = delete;
  virtual ~Object() = default;
};

// A list, or what else has values one after the other.
struct List : Object {
  using Kind = ListKind;
  Kind kind = Kind::kList;
  TextOrigin origin = TextOrigin::kTemplate;
  std::vector<Value> items;
  std::string label;  // how a range or a view prints: "range(0, 3)", "dict_items"
};

// Keeps the order in which keys came.
class Dict : public Object {
 public:
  using Entry = std::pair<Value, Value>;

  TextOrigin origin = TextOrigin::kTemplate;

  const std::vector<Entry>& entries() const { return entries_; }
  // `key` is DictKey's or DictKeyOf's.
  const Value* Find(const std::string& key) const;
  void Set(const std::string& key, Value name, Value value);  // Heap::SetEntry counts it
  void Erase(const std::string& key);                         // it is there
  void Clear();

 private:
  friend class Heap;
  std::vector<Entry> entries_;
  absl::flat_hash_map<std::string, size_t> places_;
};

struct Namespace : Object {
  std::vector<std::pair<std::string, Value>> attributes;
  Value* Find(absl::string_view name);
};

// `loop`.
struct Loop : Object {
  std::vector<Value> items;  // those that the loop's own `if` lets through; none once the loop is over
  size_t index = 0;          // of the round, from 0
  size_t length = 0;
  TextOrigin origin = TextOrigin::kTemplate;  // of the list
  bool was_asked = false;                     // loop.changed
  std::vector<Value> changed;                 // what it was asked about last
};

struct BoundMethod : Object {
  Value self;
  const Builtin* method = nullptr;
};

// The request's, when one of them is.
TextOrigin CombinedOrigin(TextOrigin a, TextOrigin b);
// The request's, when any byte is.
TextOrigin OriginOf(const MarkedText& text);
// Of one byte, which is less than the text's size.
TextOrigin OriginAt(const MarkedText& text, size_t byte);

// What Python calls its type: "str", "NoneType", "dict".
absl::string_view TypeName(const Value& value);

// What `if` makes of it.
bool Truth(const Value& value);

// What Dict finds a string's entry under.
std::string DictKeyOf(absl::string_view text);

// "'name' is undefined", or without the name when it has none.
std::string UndefinedMessage(const Value& undefined);

// InvalidArgument, of the parts' text.
template <typename... Parts>
absl::Status Invalid(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

// InvalidArgument for a value of a type that does not fit: `need` and the type's name, or that it is undefined.
absl::Status TypeMismatch(absl::string_view need, const Value& value);

}  // namespace stagecoach::jinja

#endif  // STAGECOACH_COORDINATOR_TEXT_JINJA_VALUES_VALUE_H_
