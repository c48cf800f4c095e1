// LibTorch's tensors in the count of core/base/tensor_memory.h.
#pragma once

namespace paceline {

// From the first call on, for the whole process: what LibTorch allocates for
// tensors passes through an allocator that counts it, freed by whatever thread.
// What was allocated before is not counted when it is freed.  Thread-safe.
void CountLibTorchsMemory();

}  // namespace paceline
