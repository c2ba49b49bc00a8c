#include <cmath>
#include <cstdio>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/shown_text.h"
#include "common/base/status_macros.h"
#include "coordinator/text/jinja/syntax/literals.h"
#include "coordinator/text/jinja/values/text_operations.h"
#include "coordinator/text/utf8.h"

namespace stagecoach::jinja {
namespace {

constexpr int kMaxWidth = 1000;  // of a field, and digits after the point

// One %... of a format.
struct Field {
  bool left = false, zeros = false, sign = false, space = false, other_form = false;
  int width = 0;
  int precision = -1;
  char conversion = 0;
  std::optional<std::string> name;  // %(name)
};

// The field whose % is before `*position`, which goes on to the field's end.
absl::StatusOr<Field> ReadField(absl::string_view format, size_t* position) {
  const auto skip = [&](char c) {
    const bool is_there = *position < format.size() && format[*position] == c;
    if (is_there) ++*position;
    return is_there;
  };
  const auto number = [&] {
    int value = 0;
    while (*position < format.size() && absl::ascii_isdigit(static_cast<unsigned char>(format[*position]))) {
      value = std::min(value * 10 + (format[(*position)++] - '0'), kMaxWidth + 1);
    }
    return value;
  };
  Field field;
  if (skip('(')) {
    const size_t end = format.find(')', *position);
    if (end == absl::string_view::npos) return Invalid("a name in the format has no ')'");
    field.name = std::string(format.substr(*position, end - *position));
    *position = end + 1;
  }
  const std::pair<char, bool*> flags[] = {
      {'-', &field.left}, {'0', &field.zeros}, {'+', &field.sign}, {' ', &field.space}, {'#', &field.other_form}};
  const auto skip_flag = [&](const auto& flag) { return skip(flag.first) && (*flag.second = true); };
  while (std::any_of(std::begin(flags), std::end(flags), skip_flag)) {
  }
  field.width = number();
  if (skip('.')) field.precision = number();
  if (field.width > kMaxWidth || field.precision > kMaxWidth) return Invalid("a field of the format is too wide");
  if (*position == format.size()) return Invalid("the format ends within a field");
  field.conversion = format[(*position)++];
  return field;
}

// Sign, prefix and digits to the field's width.
std::string Padded(const Field& field, bool negative, absl::string_view prefix, const std::string& digits) {
  const std::string sign = absl::StrCat(negative ? "-" : field.sign ? "+" : field.space ? " " : "", prefix);
  const size_t used = sign.size() + digits.size();
  const size_t missing = static_cast<size_t>(field.width) > used ? static_cast<size_t>(field.width) - used : 0;
  if (field.left) return absl::StrCat(sign, digits, std::string(missing, ' '));
  if (field.zeros) return absl::StrCat(sign, std::string(missing, '0'), digits);
  return absl::StrCat(std::string(missing, ' '), sign, digits);
}

absl::StatusOr<std::string> IntegerField(const Field& field, const Value& value) {
  Integer integer = 0;
  if (const double* real = value.AsDouble(); real != nullptr && std::isfinite(*real) && std::fabs(*real) < 1e30) {
    integer = static_cast<Integer>(*real);
  } else if (!value.AsInteger(&integer)) {
    return Invalid("%", std::string(1, field.conversion), " needs a number, not a ", TypeName(value));
  }
  const char kind = absl::ascii_tolower(static_cast<unsigned char>(field.conversion));
  const unsigned base = kind == 'x' ? 16 : kind == 'o' ? 8 : 10;
  std::string digits = IntegerDigits(integer, base);
  if (field.conversion == 'X') digits = absl::AsciiStrToUpper(digits);
  if (field.precision > static_cast<int>(digits.size()))
    digits.insert(0, static_cast<size_t>(field.precision) - digits.size(), '0');
  const std::string prefix = !field.other_form || base == 10 ? "" : absl::StrCat("0", std::string(1, field.conversion));
  return Padded(field, integer < 0, prefix, digits);
}

absl::StatusOr<std::string> FloatField(const Field& field, const Value& value) {
  double number = 0;
  if (!value.AsNumber(&number)) {
    return Invalid("%", std::string(1, field.conversion), " needs a number, not a ", TypeName(value));
  }
  const std::string format = absl::StrCat("%", field.other_form ? "#" : "", ".*", std::string(1, field.conversion));
  char digits[kMaxWidth + 400];  // the largest number has 309 digits
  const int size = std::snprintf(digits, sizeof(digits), format.c_str(), field.precision < 0 ? 6 : field.precision,
                                 std::fabs(number));
  return Padded(field, std::signbit(number), "", std::string(digits, static_cast<size_t>(size)));
}

absl::Status AppendStringField(Heap& heap, const Field& field, const Value& value, TextBuilder* out) {
  TextBuilder text(&heap.budget());
  RETURN_IF_ERROR(field.conversion == 'r' ? AppendRepr(value, /*depth=*/1, &text) : AppendText(value, &text));
  const MarkedText& whole = text.text();
  size_t characters = 0, end = 0;
  for (; end < whole.size(); ++end) {
    const bool starts = !IsContinuation(whole.text()[end]);
    if (starts && field.precision >= 0 && characters == static_cast<size_t>(field.precision)) break;
    if (starts) ++characters;
  }
  const size_t width = static_cast<size_t>(field.width);
  const size_t missing = width > characters ? width - characters : 0;
  if (!field.left) RETURN_IF_ERROR(out->AppendRepeated(' ', missing, TextOrigin::kTemplate));
  RETURN_IF_ERROR(out->Append(whole, 0, end));
  return field.left ? out->AppendRepeated(' ', missing, TextOrigin::kTemplate) : absl::OkStatus();
}

absl::Status AppendField(Heap& heap, const Field& field, const Value& value, TextBuilder* out) {
  const auto is_any_of = [&](absl::string_view set) { return set.find(field.conversion) != absl::string_view::npos; };
  if (is_any_of("sr")) return AppendStringField(heap, field, value, out);
  if (!is_any_of("diuxXofFeEgG")) return Invalid("the format has no '%", std::string(1, field.conversion), "'");
  ASSIGN_OR_RETURN(const std::string text, is_any_of("diuxXo") ? IntegerField(field, value) : FloatField(field, value));
  return out->Append(text, value.origin());
}

// The values that a format takes in, one after the other or by name.
class FormatValues {
 public:
  explicit FormatValues(const Value& values) : values_(values), tuple_(values.AsList(List::Kind::kTuple)) {}

  absl::StatusOr<Value> Next(const Field& field) {
    if (field.name.has_value()) {
      const Dict* dict = values_.AsDict();
      if (dict == nullptr) return Invalid("a format with names needs a dict");
      const Value* value = dict->Find(DictKeyOf(*field.name));
      if (value == nullptr) return Invalid("the format's ", ShownText(*field.name), " is not in the dict");
      return *value;
    }
    const size_t count = tuple_ == nullptr ? 1 : tuple_->items.size();
    if (next_ >= count) return Invalid("not enough values for the format");
    return tuple_ == nullptr ? (++next_, values_) : tuple_->items[next_++];
  }

  // Whatever has items, but a tuple, may hold more than the format takes.
  absl::Status CheckAllUsed() const {
    const bool has_items = values_.AsDict() != nullptr || values_.AsList() != nullptr || values_.IsUndefined();
    const bool left = tuple_ != nullptr ? next_ < tuple_->items.size() : next_ == 0 && !has_items;
    return left ? Invalid("more values than the format takes") : absl::OkStatus();
  }

 private:
  const Value& values_;
  const List* tuple_;
  size_t next_ = 0;
};

// What a field {name} or {0} or {} stands for. `next` counts the fields without a name.
absl::StatusOr<Value> BraceValue(absl::string_view name, const Arguments& arguments, size_t* next) {
  size_t place = *next;
  if (name.empty()) {
    ++*next;
  } else if (!absl::SimpleAtoi(name, &place)) {
    for (const auto& [known, value] : arguments.by_name) {
      if (known == name) return value;
    }
    return Invalid("the format's ", ShownText(name), " is not among the arguments");
  }
  if (place >= arguments.by_place.size()) return Invalid("not enough values for the format");
  return arguments.by_place[place];
}

absl::Status AppendBraceField(absl::string_view field, const Arguments& arguments, size_t* next, TextBuilder* text) {
  const size_t mark = field.find_first_of("!:.[");
  const absl::string_view rest = mark == absl::string_view::npos ? "" : field.substr(mark);
  if (!rest.empty() && rest != "!s" && rest != "!r") {
    return Invalid("the format's ", ShownText(rest), " is not supported");
  }
  ASSIGN_OR_RETURN(const Value value, BraceValue(field.substr(0, mark), arguments, next));
  return rest == "!r" ? AppendRepr(value, /*depth=*/1, text) : AppendText(value, text);
}

}  // namespace

absl::StatusOr<Value> PercentFormat(Heap& heap, const String& format, const Value& values) {
  FormatValues arguments(values);
  TextBuilder text(&heap.budget());
  const absl::string_view view = format.view();
  for (size_t i = 0; i < view.size();) {
    const size_t percent = std::min(view.find('%', i), view.size());
    RETURN_IF_ERROR(text.Append(format.text, i, percent - i));
    if (percent == view.size()) break;
    i = percent + 1;
    ASSIGN_OR_RETURN(const Field field, ReadField(view, &i));
    if (field.conversion == '%') {
      RETURN_IF_ERROR(text.Append(format.text, percent, 1));
      continue;
    }
    ASSIGN_OR_RETURN(const Value value, arguments.Next(field));
    RETURN_IF_ERROR(AppendField(heap, field, value, &text));
  }
  RETURN_IF_ERROR(arguments.CheckAllUsed());
  return heap.NewString(&text);
}

absl::StatusOr<Value> BraceFormat(Heap& heap, const String& format, const Arguments& arguments) {
  TextBuilder text(&heap.budget());
  const absl::string_view view = format.view();
  size_t next = 0;
  for (size_t i = 0; i < view.size();) {
    const size_t brace = std::min(view.find_first_of("{}", i), view.size());
    RETURN_IF_ERROR(text.Append(format.text, i, brace - i));
    if (brace == view.size()) break;
    i = brace + 2;
    if (i <= view.size() && view[brace + 1] == view[brace]) {
      RETURN_IF_ERROR(text.Append(format.text, brace, 1));
      continue;
    }
    const size_t end = view[brace] == '{' ? view.find('}', brace) : absl::string_view::npos;
    if (end == absl::string_view::npos) return Invalid("the format has a brace without its other one");
    RETURN_IF_ERROR(AppendBraceField(view.substr(brace + 1, end - brace - 1), arguments, &next, &text));
    i = end + 1;
  }
  return heap.NewString(&text);
}

}  // namespace stagecoach::jinja
