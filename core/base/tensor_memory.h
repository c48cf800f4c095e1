// How much memory the tensors of this process take, and took at most.
#pragma once

#include <cstdint>

namespace paceline {

// Tensors of ours (Tensor::Allocate) and those of LibTorch
// (worker/torch/allocation_meter.h).  One count for the process, since what
// one library allocates another frees: a worker has one run at a time.  Scratch
// memory that the libraries get elsewhere is not in it.  Thread-safe; a few
// nanoseconds.

// bytes: below 0 where some are freed.
void CountTensorBytes(int64_t bytes);

int64_t TensorBytesNow();

// Since the process began, or since the last BeginTensorPeak().
int64_t TensorBytesPeak();
// From now on the peak is that of what is there and what comes.
void BeginTensorPeak();

}  // namespace paceline
