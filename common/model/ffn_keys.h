#ifndef STAGECOACH_COMMON_MODEL_FFN_KEYS_H_
#define STAGECOACH_COMMON_MODEL_FFN_KEYS_H_

#include "absl/status/status.h"
#include "common/model/architectures.h"
#include "common/model/hyper_parameters.h"
#include "common/model/key_reader.h"

namespace stagecoach {

// Reads the FFN of every layer into hyper.layers, which has the layers that run; hyper.vocab is known. `blocks`: the
// layers of the file. Errors: as ReadHyperParameters.
absl::Status ReadFfns(const KeyReader& keys, const Architecture& architecture, int64_t blocks, HyperParameters& hyper);

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_MODEL_FFN_KEYS_H_
