#include "coordinator/serve/api/batch_line.h"

#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/json/json.h"
#include "common/json/json_value.h"

namespace stagecoach {
namespace {

// What stands around a body. A line without a url is for the first API.
absl::StatusOr<const ApiDialect*> ReadRoute(const Json& line) {
  if (const auto method = line.find("method"); method != line.end() && *method != "POST") {
    return WrongField("method", absl::StrCat(ShownValue(*method), " is not supported, expected \"POST\""));
  }
  const auto url = line.find("url");
  std::vector<std::string> known;
  for (const ApiDialect* api : kApiDialects) {
    if (url == line.end() || *url == api->path) return api;
    known.push_back(absl::StrCat("\"", api->path, "\""));
  }
  return WrongField("url",
                    absl::StrCat(ShownValue(*url), " is not supported, expected ", absl::StrJoin(known, " or ")));
}

absl::Status ReadEnvelope(Json json, BatchLine* line) {
  ASSIGN_OR_RETURN(line->api, ReadRoute(json));
  const auto body = json.find("body");
  if (body == json.end() || !body->is_object()) return WrongField("body", "is missing or no object");
  line->body = std::make_shared<const Json>(std::move(*body));
  return absl::OkStatus();
}

BatchError InvalidRequest(absl::string_view message) { return {"invalid_request", std::string(message)}; }

}  // namespace

CallRules CallRules::Batch() {
  return {.refuse_unknown_fields = true,
          .streams = false,
          .several_answers = false,
          .engine_ranges = true,
          .answer_with_given_name = true};
}

BatchLine ParseBatchLine(int64_t number, absl::string_view text) {
  BatchLine line;
  line.number = number;
  absl::StatusOr<Json> json = ParseJson(text);
  if (!json.ok() || !json->is_object()) {
    line.error = BatchError{"invalid_json", json.ok() ? absl::StrCat("expected an object, found ", json->type_name())
                                                      : std::string(json.status().message())};
    return line;
  }
  if (const auto id = json->find("custom_id"); id != json->end() && id->is_string()) {
    line.custom_id = id->get<std::string>();
  }
  if (line.custom_id.empty()) {
    line.error = BatchError{"missing_custom_id", "there is no 'custom_id', or it is empty or no string"};
  } else if (absl::Status status = ReadEnvelope(*std::move(json), &line); !status.ok()) {
    line.error = InvalidRequest(status.message());
  }
  return line;
}

void PrepareBatchLine(const ServedModel& model, CallContext context, BatchLine* line) {
  context.rules = CallRules::Batch();
  PreparedCall prepared = PrepareParsedCall(*line->api, *line->body, model, context);
  line->body.reset();
  line->call = std::move(prepared.call);
  if (prepared.error.has_value()) line->error = InvalidRequest(prepared.error->message);
}

BatchError BatchErrorOf(const ApiError& error) {
  return {error.status >= 500 ? kBatchFailed : "rejected", error.message};
}

Json BatchAnswerJson(const std::string& id, const BatchLine& line, absl::string_view body) {
  return {{"id", absl::StrCat("batch_req_", id)},
          {"custom_id", line.custom_id},
          {"response", {{"status_code", 200}, {"request_id", absl::StrCat("req_", id)}, {"body", ReadJson(body)}}},
          {"error", nullptr}};
}

Json BatchErrorJson(const std::string& id, const BatchLine& line) {
  return {{"id", absl::StrCat("batch_req_", id)},
          {"custom_id", line.custom_id.empty() ? Json(nullptr) : Json(line.custom_id)},
          {"response", nullptr},
          {"error",
           {{"code", line.error->code},
            {"message", absl::StrCat("line ", line.number, ": ", line.error->message)},
            {"line", line.number}}}};
}

}  // namespace stagecoach
