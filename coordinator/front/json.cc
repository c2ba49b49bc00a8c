#include "coordinator/front/json.h"

#include <charconv>
#include <cmath>
#include <cstdlib>

#include "nlohmann/json.hpp"

namespace stagecoach {

Json FloatJson(float value) {
  if (!std::isfinite(value)) return nullptr;
  // The library prints the shortest form of a double. The double nearest to the float's shortest form has that same
  // form.
  char digits[64];
  const std::to_chars_result result = std::to_chars(digits, digits + sizeof(digits) - 1, value);
  *result.ptr = '\0';
  return std::strtod(digits, nullptr);
}

Json LogprobsJson(const std::vector<SampledToken>& tokens) {
  Json list = Json::array();
  for (const SampledToken& token : tokens) {
    Json top = Json::array();
    for (const TokenLogprob& entry : token.top) top.push_back(Json::array({entry.token, FloatJson(entry.logprob)}));
    list.push_back({{"token", token.token}, {"logprob", FloatJson(token.logprob)}, {"top", std::move(top)}});
  }
  return list;
}

std::string CompactJson(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

std::string PrettyJson(const Json& json) { return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n"; }

}  // namespace stagecoach
