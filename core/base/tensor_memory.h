// Counts the bytes that this process's tensors take, and the most they took.
#pragma once

#include <cstdint>

namespace paceline {

// Counts our tensors (Tensor::Allocate) and those of LibTorch
// (worker/torch/allocation_meter.h).  There is one count for the process, since
// one library may free what another has allocated; a worker has one run at a
// time.  Scratch memory that the libraries get elsewhere is not counted.
// Thread-safe; takes a few nanoseconds.

// bytes: negative when memory is freed.
void CountTensorBytes(int64_t bytes);

int64_t TensorBytesNow();

// The peak since the process began, or since the last BeginTensorPeak().
int64_t TensorBytesPeak();
// Begins a new peak at the present number of bytes.
void BeginTensorPeak();

}  // namespace paceline
