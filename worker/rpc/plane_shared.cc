#include "worker/rpc/plane_shared.h"

#include <malloc.h>

#include <utility>

namespace paceline {
namespace {

// gRPC reads into fresh memory and frees it on other threads.  glibc gives
// such memory back to the kernel at once and takes it again, page fault by
// page fault: a fifth of a receiver's CPU time (measured 2026-11, 1 MiB
// frames).  Both values are where glibc's own adaptation ends; setting one
// switches that off, so both are set.
void KeepFreedMemory() {
#ifdef __GLIBC__
  constexpr int kBytes = 32 << 20;
  mallopt(M_TRIM_THRESHOLD, 2 * kBytes);
  mallopt(M_MMAP_THRESHOLD, kBytes);
#endif
}

}  // namespace

PlaneShared::PlaneShared(const DataPlaneOptions& o, std::string thread_name)
    : options(o), timers(std::move(thread_name)) {
  KeepFreedMemory();
}

}  // namespace paceline
