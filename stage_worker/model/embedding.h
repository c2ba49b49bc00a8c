#ifndef STAGECOACH_STAGE_WORKER_MODEL_EMBEDDING_H_
#define STAGECOACH_STAGE_WORKER_MODEL_EMBEDDING_H_

#include "stage_worker/model/step_context.h"
#include "stage_worker/weights/packed_matrix.h"

namespace stagecoach {

// x [rows, D] = the table's row of each row's token, times scale. Shared by rows.
void EmbedTokens(const PackedMatrix& table, float scale, const StepPlan& plan, const Worker& worker, float* x);

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_MODEL_EMBEDDING_H_
