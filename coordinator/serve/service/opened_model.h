#ifndef STAGECOACH_COORDINATOR_SERVE_SERVICE_OPENED_MODEL_H_
#define STAGECOACH_COORDINATOR_SERVE_SERVICE_OPENED_MODEL_H_

// A model file as a service needs it: everything but the weights.

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "coordinator/front/model_file.h"
#include "coordinator/serve/api/served_model.h"
#include "coordinator/text/chat/chat_format.h"
#include "coordinator/text/grammar/form/answer_grammars.h"
#include "proto/engine.pb.h"

namespace stagecoach {

struct OpenedModel {
  FrontModel front;
  std::unique_ptr<ChatFormat> chat;
  std::unique_ptr<AnswerGrammars> grammars;

  // What the file says of it. Named after the file, and any name is taken for it. Points into this object, which stays
  // where it is.
  ServedModel Served() const;
};

// system_fingerprint of what a job answers: "sc-<model>-<instruction sets>-<version>", all that its numbers depend on
// beside the request. Stages with different sets: each of these once, in the order of the enum, as "avx2+avx512".
std::string SystemFingerprint(const ServedModel& model, const pb::JobReady& job);

// Errors are those of OpenFrontModel; a chat template that cannot be used is none.
absl::StatusOr<std::unique_ptr<OpenedModel>> OpenServedModel(const std::string& path, const std::string& q2_layout,
                                                             const ChatTemplateChoice& choice);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SERVE_SERVICE_OPENED_MODEL_H_
