// Hundreds of peers begin messages and never end them: a worker must not hold
// all of it.
#include <algorithm>
#include <limits>
#include <memory>
#include <vector>

#include "core/base/clock.h"
#include "core/base/tensor.h"
#include "core/os/thread.h"
#include "core/rpc/channel.h"
#include "core/rpc/listener.h"
#include "gtest/gtest.h"
#include "tests/cluster/data_plane_mesh.h"
#include "tests/support/stranger.h"

namespace paceline {
namespace {

// ThreadSanitizer keeps a shadow of several times the memory that is used,
// AddressSanitizer keeps memory that was freed, 256 MB by default.
#if defined(__SANITIZE_THREAD__)
constexpr int64_t kSanitizerBytes = int64_t{8} << 30;
#elif defined(__SANITIZE_ADDRESS__)
constexpr int64_t kSanitizerBytes = 512 << 20;
#else
constexpr int64_t kSanitizerBytes = 0;
#endif

int64_t ResidentBytes() {
  int64_t pages = 0;
  FILE* file = std::fopen("/proc/self/statm", "r");
  EXPECT_EQ(std::fscanf(file, "%*d %ld", &pages), 1);
  std::fclose(file);
  return pages * sysconf(_SC_PAGESIZE);
}

// Three times what tests/nightly/scale/strangers.py asks: on a busy host the
// listener looks later.  Without its bounds they take as much as the server
// may.
constexpr int64_t kMostBytes = (192 << 20) + kSanitizerBytes;

constexpr int kUntilQuiet = std::numeric_limits<int>::max();

using Strangers = std::vector<std::unique_ptr<Stranger>>;

// Moves all of them on, so many times, or until nothing moves for `quiet` or
// all have ended.
void Pump(const Strangers& strangers, int times, absl::Duration quiet) {
  for (int i = 0; i < times; ++i) {
    std::vector<pollfd> wanted;
    for (const auto& stranger : strangers) wanted.push_back(stranger->Wanted());
    const int ready = poll(wanted.data(), wanted.size(),
                           static_cast<int>(absl::ToInt64Milliseconds(quiet)));
    if (ready <= 0) return;
    for (size_t j = 0; j < wanted.size(); ++j) {
      if (wanted[j].revents != 0) strangers[j]->Step();
    }
  }
}

int Ended(const Strangers& strangers) {
  int ended = 0;
  for (const auto& stranger : strangers) ended += stranger->ended() ? 1 : 0;
  return ended;
}

void PassFrames(RpcLinkMesh& mesh, int first, int last) {
  for (int i = first; i < last; ++i) {
    ASSERT_TRUE(mesh.link(0).AwaitRoom(0, 0, 1).ok());
    ASSERT_TRUE(mesh.link(0).Send(MakeFrame(ActivationKey(i, 0))).ok());
    const auto got = mesh.link(1).Receive(ActivationKey(i, 0)).value();
  }
}

// Each of them could make a worker hold 1 GiB, for ever.
TEST(HostilePeers, CostAWorkerABoundedAmountOfMemoryAndNoFrame) {
  constexpr int kStrangers = 300;
  RpcLinkMesh mesh({}, PlaneOptions{.hello = absl::Seconds(5)});
  PassFrames(mesh, 0, 10);
  const int64_t before = ResidentBytes();

  // They come from an address of their own, as another machine's.
  Strangers strangers;
  for (int i = 0; i < kStrangers; ++i) {
    strangers.push_back(std::make_unique<Stranger>(
        "127.0.0.2", mesh.node(1).port(), "/paceline.v1.Stage/Exchange",
        kMaxRequestBytes));
    strangers.back()->Step();
  }
  Pump(strangers, kUntilQuiet, absl::Milliseconds(200));

  EXPECT_LT(ResidentBytes() - before, kMostBytes);
  EXPECT_GE(Ended(strangers), kStrangers - StreamLimit::kMostOfAHost);
  PassFrames(mesh, 10, 20);
  // A stream that is new to the worker gets in.
  mesh.node(1).plane.BreakStreamsForTest();
  PassFrames(mesh, 20, 30);
  // The rest is not waited for; the test's own time limit is the deadline.
  while (Ended(strangers) < kStrangers) {
    Pump(strangers, kUntilQuiet, absl::Milliseconds(200));
  }
}

class HostileCalls : public ::testing::TestWithParam<const char*> {};

// gRPC looks at the size of a message when all of it is there.
TEST_P(HostileCalls, AnnounceMessagesOfAnySizeAndFillNoMemory) {
  constexpr uint32_t kAnnounced = 1 << 30;
  RpcLinkMesh mesh({});
  PassFrames(mesh, 0, 10);
  const int64_t before = ResidentBytes();

  Strangers strangers;
  for (int i = 0; i < 40; ++i) {
    strangers.push_back(std::make_unique<Stranger>(
        "127.0.0.2", mesh.node(1).port(), GetParam(), kAnnounced));
  }
  int64_t most = 0;
  const Instant end = SteadyNow() + absl::Seconds(60);
  while (Ended(strangers) < std::ssize(strangers) && SteadyNow() < end &&
         most < 2 * kMostBytes) {
    Pump(strangers, 1, absl::Milliseconds(200));
    most = std::max(most, ResidentBytes() - before);
  }

  EXPECT_LT(most, kMostBytes);
  PassFrames(mesh, 10, 20);
}

INSTANTIATE_TEST_SUITE_P(HostilePeers, HostileCalls,
                         ::testing::Values("/paceline.v1.Stage/Exchange",
                                           "/paceline.v1.Stage/ReportStep"));

}  // namespace
}  // namespace paceline
