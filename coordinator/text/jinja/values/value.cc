#include "coordinator/text/jinja/values/value.h"

#include <iterator>

#include "common/base/shown_text.h"
#include "coordinator/text/jinja/values/heap.h"
#include "coordinator/text/utf8.h"

namespace stagecoach::jinja {
namespace {

// One for each alternative of Value::Form, a list's by its kind.
constexpr absl::string_view kTypeNames[] = {"undefined", "NoneType",  "bool", "int",   "float",  "str",     "",
                                            "dict",      "namespace", "loop", "macro", "method", "function"};
static_assert(std::size(kTypeNames) == std::variant_size_v<Value::Form>);

struct Truths {
  bool operator()(Undefined) const { return false; }
  bool operator()(None) const { return false; }
  bool operator()(bool value) const { return value; }
  bool operator()(Integer value) const { return value != 0; }
  bool operator()(double value) const { return value != 0; }
  bool operator()(const std::shared_ptr<const String>& value) const { return !value->text.empty(); }
  bool operator()(const List* list) const { return list->kind == List::Kind::kGenerator || !list->items.empty(); }
  bool operator()(const Dict* dict) const { return !dict->entries().empty(); }
  bool operator()(const void*) const { return true; }
};

}  // namespace

String::String(MarkedText marked, Budget* owner)
    : text(std::move(marked)), code_points(static_cast<size_t>(CodePoints(text.text()))), budget(owner) {}

String::~String() {
  if (budget != nullptr) budget->Give(StringBytes(text));
}

const Value* Dict::Find(const std::string& key) const {
  const auto place = places_.find(key);
  return place == places_.end() ? nullptr : &entries_[place->second].second;
}

void Dict::Set(const std::string& key, Value name, Value value) {
  const auto [place, is_new] = places_.try_emplace(key, entries_.size());
  if (is_new) {
    entries_.emplace_back(std::move(name), std::move(value));
  } else {
    entries_[place->second].second = std::move(value);
  }
}

void Dict::Erase(const std::string& key) {
  const auto place = places_.find(key);
  const size_t index = place->second;
  places_.erase(place);
  entries_.erase(entries_.begin() + static_cast<std::ptrdiff_t>(index));
  for (auto& [other, at] : places_) {
    if (at > index) --at;
  }
}

void Dict::Clear() {
  entries_.clear();
  places_.clear();
}

Value* Namespace::Find(absl::string_view name) {
  for (auto& [attribute, value] : attributes) {
    if (attribute == name) return &value;
  }
  return nullptr;
}

Value Value::NoneOf(TextOrigin origin) {
  Value none;
  none.form_ = None{};
  none.origin_ = origin;
  return none;
}

const String* Value::AsString() const {
  const auto* string = std::get_if<std::shared_ptr<const String>>(&form_);
  return string == nullptr ? nullptr : string->get();
}

List* Value::AsList(List::Kind kind) const {
  List* list = AsList();
  return list != nullptr && list->kind == kind ? list : nullptr;
}

bool Value::AsInteger(Integer* integer) const {
  if (const bool* flag = AsBool()) {
    *integer = *flag ? 1 : 0;
    return true;
  }
  const Integer* value = std::get_if<Integer>(&form_);
  if (value != nullptr) *integer = *value;
  return value != nullptr;
}

bool Value::AsNumber(double* number) const {
  if (const double* value = AsDouble()) {
    *number = *value;
    return true;
  }
  Integer integer = 0;
  if (!AsInteger(&integer)) return false;
  *number = static_cast<double>(integer);
  return true;
}

TextOrigin Value::origin() const {
  if (const String* string = AsString()) return OriginOf(string->text);
  if (const List* list = AsList()) return list->origin;
  if (const Dict* dict = AsDict()) return dict->origin;
  return origin_;
}

TextOrigin CombinedOrigin(TextOrigin a, TextOrigin b) { return a == TextOrigin::kRequest ? a : b; }

TextOrigin OriginOf(const MarkedText& text) {
  return text.IsTemplate(0, text.size()) ? TextOrigin::kTemplate : TextOrigin::kRequest;
}

TextOrigin OriginAt(const MarkedText& text, size_t byte) {
  return text.IsTemplate(byte, byte + 1) ? TextOrigin::kTemplate : TextOrigin::kRequest;
}

absl::string_view TypeName(const Value& value) {
  const List* list = value.AsList();
  if (list == nullptr) return kTypeNames[value.form().index()];
  switch (list->kind) {
    case List::Kind::kList: return "list";
    case List::Kind::kTuple: return "tuple";
    case List::Kind::kRange: return "range";
    case List::Kind::kView: return list->label;
    case List::Kind::kGenerator: return "generator";
  }
  return "list";
}

bool Truth(const Value& value) { return std::visit(Truths(), value.form()); }

std::string DictKeyOf(absl::string_view text) { return absl::StrCat("s", text); }

std::string UndefinedMessage(const Value& undefined) {
  const auto* form = std::get_if<Undefined>(&undefined.form());
  if (form == nullptr || form->name == nullptr) return "the value is undefined";
  return absl::StrCat(ShownText(*form->name), " is undefined");
}

absl::Status TypeMismatch(absl::string_view need, const Value& value) {
  return value.IsUndefined() ? Invalid(UndefinedMessage(value)) : Invalid(need, TypeName(value));
}

}  // namespace stagecoach::jinja
