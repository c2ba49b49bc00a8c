#ifndef STAGECOACH_COMMON_MODEL_ATTENTION_KEYS_H_
#define STAGECOACH_COMMON_MODEL_ATTENTION_KEYS_H_

#include "absl/status/status.h"
#include "common/gguf/gguf_file.h"
#include "common/model/architectures.h"
#include "common/model/hyper_parameters.h"
#include "common/model/key_reader.h"

namespace stagecoach {

// Reads the attention of every layer and the block group of its KV into hyper.layers, which has the layers that run.
// `blocks`: the layers of the file. Errors: as ReadHyperParameters.
absl::Status ReadAttentions(const KeyReader& keys, const Architecture& architecture, const GgufFile& file,
                            int64_t blocks, HyperParameters& hyper);

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_MODEL_ATTENTION_KEYS_H_
