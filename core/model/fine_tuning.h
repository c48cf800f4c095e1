// Which parameters of a model a job trains (the key train.only).  The others
// are frozen: they have no gradient and no optimizer's state, and are in no
// round; snapshots, files of weights and hashes have them as before.  Pure.
#pragma once

#include "absl/status/status.h"
#include "core/model/description.h"

namespace paceline {

// Freezes what spec.only leaves out, and counts what a backward has to do:
//   all     nothing
//   head    all but the parameters of the last layer that has any
//   norm    all but scales and shifts of normalisations
//   last-N  all but the last N layers
// Buffers still move by themselves.  A parameter that layers share trains where
// its owner does.
//
// Errors: InvalidArgument  another word, more layers than there are, or nothing
//                          would train
absl::Status Freeze(const ModelSpec& spec, ModelDescription& model);

}  // namespace paceline
