// How many threads the numeric libraries of this process use.
#pragma once

#include <string>

namespace paceline {

// Sets LibTorch's, OpenMP's and OpenBLAS's pools to `threads` (at least 1) and
// LibTorch's pool between operations to 1.  Idle pool threads spin a small
// machine's quota away, and another count gives other bytes.  May be called
// again; call it on the compute thread, since OpenMP's number is a thread's
// own.
void SetComputeThreads(int threads);

// The level LibTorch's own kernels run at: "default", "avx2" or "avx512", and
// "avx512_bf16" where oneDNN uses these instructions besides; elsewhere what
// LibTorch calls it, in lower case.
std::string ActiveCpuCapability();

}  // namespace paceline
