#ifndef STAGECOACH_COORDINATOR_SERVE_API_CONVERSATION_TOOLS_H_
#define STAGECOACH_COORDINATOR_SERVE_API_CONVERSATION_TOOLS_H_

// The tools of a conversation, whichever API they came by. Errors are those of ApiStatus and name the place.

#include <cstddef>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/json/json.h"
#include "common/json/json_value.h"
#include "coordinator/serve/api/body_fields.h"

namespace stagecoach {

inline constexpr size_t kMostTools = 256;
inline constexpr size_t kMostToolBytes = 1 << 20;  // of all tools together

// A tool that the model is told of, as a function.
struct OfferedTool {
  enum class Kind {
    kFunction,
    kCustom,  // takes a text: to the model a function with the string `input`
  };
  Kind kind = Kind::kFunction;
  std::string name;        // by which the model calls it; no two have the same
  std::string own_name;    // the client's
  std::string name_space;  // the client's, of a member of one; mostly empty
  Json function;           // {name, description?, parameters: a JSON schema}, for the template
  bool strict = false;     // its arguments are to follow the schema
};

// The name under which a member of a namespace is offered: "<namespace>__<name>", of `functions` and of no namespace
// the plain name.
std::string OfferedName(absl::string_view name_space, absl::string_view own_name);

// Filled by one call's translation, and constant from then on.
class ToolSet {
 public:
  enum class Choice {
    kAuto,
    kNone,      // no tool is offered, and no call is read
    kRequired,  // one call or more
    kNamed,     // one call, of this tool
  };

  // Refuses a name that is no name or an earlier tool's, and more than kMostTools or kMostToolBytes.
  absl::Status Add(const std::string& place, OfferedTool tool);
  // Of those that were added only these, by the model's names; all must be there.
  absl::Status OfferOnly(const std::string& place, const std::set<std::string>& names);
  // Last. `name`: the model's, of kNamed. Refuses a choice that no tool can meet.
  absl::Status Choose(const std::string& place, Choice choice, absl::string_view name = "");

  Choice choice() const { return choice_; }
  const std::string& chosen() const { return chosen_; }  // of kNamed
  bool empty() const { return offered_.empty(); }
  const std::vector<OfferedTool>& offered() const { return offered_; }
  // Null: there is none of this name; models invent some.
  const OfferedTool* Find(absl::string_view name) const;
  // [{"type": "function", "function": {name, description?, parameters}}], as templates and OutputTools take it.
  Json ForTemplate() const;

  bool parallel = true;  // false: the answer ends after its first call
  // What means nothing here: "tools.web_search", of a kind that only another's service has; "tools.format", of a custom
  // tool whose input is not held to it.
  std::vector<std::string> skipped;

 private:
  Choice choice_ = Choice::kAuto;
  std::string chosen_;
  std::vector<OfferedTool> offered_;
  size_t bytes_ = 0;
};

// How a tool's members are found.
struct ToolForm {
  OfferedTool::Kind kind = OfferedTool::Kind::kFunction;
  const char* schema = "parameters";  // the member with the JSON schema; absent: any object
  std::string name_space = {};
};
// Adds the tool with the members name, description, strict and, of a function, a schema, which stand in `members`, the
// object at `place`. Of a custom tool with a `format`: the input of its calls is held to a regular expression as the
// arguments of a strict tool are; of another grammar the model is told, and ToolSet::skipped says so.
absl::Status AddTool(const std::string& place, const Json& members, const ToolForm& form, ToolSet* tools);

// OpenAI's two spellings of the same tools.
enum class ToolSpelling {
  kNested,  // chat completions: {"type": "function", "function": {"name", ...}}
  kFlat,    // Responses: {"type": "function", "name", ...}
};
// A list of tools: function, custom, and namespace, whose `tools` are a list of the first two. Others are skipped.
absl::Status ReadTools(const std::string& place, const Json& list, ToolSpelling spelling, ToolSet* tools);
// tool_choice and parallel_tool_calls, after all tools.
absl::Status ReadToolChoice(FieldReader* fields, ToolSpelling spelling, ToolSet* tools);

// The arguments of a call of a custom tool with this input, as the model wrote them. CustomInput is the way back.
std::string ArgumentsOfInput(absl::string_view input);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SERVE_API_CONVERSATION_TOOLS_H_
