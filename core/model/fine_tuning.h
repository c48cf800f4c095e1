// Which parameters of a model a job trains (the keys train.only and
// model.lora).  The others are frozen: they have no gradient and no optimizer's
// state, and are in no round; snapshots, files of weights and hashes have them
// as before.  Pure.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "core/model/description.h"

namespace paceline {

inline constexpr int64_t kMostRank = 65536;  // of adapters

// Errors: InvalidArgument  spec.lora is impossible, or not for this model
absl::Status CheckLora(const ModelSpec& spec);

// Freezes what spec.only leaves out, and counts what a backward has to do:
//   all     nothing
//   head    all but the parameters of the last layer that has any
//   norm    all but scales and shifts of normalisations
//   last-N  all but the last N layers
// With adapters: all but these and ModelDescription::head.  Buffers still move
// by themselves.  A parameter that layers share trains where its owner does.
//
// Errors: InvalidArgument  another word, more layers than there are, or nothing
//                          would train
absl::Status Freeze(const ModelSpec& spec, ModelDescription& model);

}  // namespace paceline
