// Residual blocks of a model that are left out: their input is their output.
// The fault skip-stage leaves a block out of a whole job, and train.layer_drop
// leaves blocks out of single micro-batches.  Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/model/description.h"

namespace paceline {

// Fills in Layer::block.  A layer that begins with a residual is a block; of a
// transformer the attention half and the MLP half are one.
void NumberBlocks(ModelDescription& model);

// Says why the model cannot go without a block, or has none of that number;
// empty: it can.
std::string WhyNotSkipped(const ModelDescription& model, int64_t block);

// Replaces a block by the identity: its layers cost nothing, and their
// parameters stay as they are.  WhyNotSkipped() is empty for the block.
void SkipBlock(ModelDescription& model, int64_t block);

// Skips the blocks that faults of kind skip-stage name.
// Errors: InvalidArgument  as WhyNotSkipped()
absl::Status SkipBlocksOf(const JobSpec& spec, ModelDescription& model);

// Whether training leaves a block out of a micro-batch (LayerDrop, Fan et al.
// 2019, section 3: without scaling; evaluations have all blocks).
bool IsDropped(const TrainSpec& train, int64_t step, int micro_batch,
               int block);

// [last - first]: Layer::block of these layers, -1 where the block has to stay.
std::vector<int> DroppableBlocks(const ModelDescription& model, int first,
                                 int last);

// Says why train.layer_drop is not for this model; empty: it is.
std::string WhyNoLayerDrop(const ModelDescription& model);

}  // namespace paceline
