// Residual blocks of a model that are left out of a whole job (the fault
// skip-stage): their input is their output.  Pure.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "core/model/description.h"

namespace paceline {

// Fills in Layer::block.  A layer that begins with a residual is a block; of a
// transformer the attention half and the MLP half are one.
void NumberBlocks(ModelDescription& model);

// Says why the model cannot go without a block, or has none of that number;
// empty: it can.
std::string WhyNotSkipped(const ModelDescription& model, int64_t block);

// Makes the identity of a block that WhyNotSkipped() lets go: its layers cost
// nothing, and their parameters stay as they are.
void SkipBlock(ModelDescription& model, int64_t block);

// Skips the blocks that faults of kind skip-stage name.
// Errors: InvalidArgument  as WhyNotSkipped()
absl::Status SkipBlocksOf(const JobSpec& spec, ModelDescription& model);

}  // namespace paceline
