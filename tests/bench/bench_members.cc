// How a round grows with its members: 2 to 32 of them in this process, each
// with a server, streams and threads of its own, agree on a gradient over gRPC.
// 64 would have 4,032 streams, more than two cores could connect.
//
//   bench_members [--check] [--mib 1] [--rounds 10]
//
// On few cores the time says how much CPU all members take together.  What a
// member sends is exact: --check ends with 1 when its messages grow faster than
// the members, or its bytes beyond those of a reduce-scatter and an all-gather.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "core/base/check.h"
#include "core/base/host_port.h"
#include "core/base/thread.h"
#include "core/rpc/channel.h"
#include "tests/bench/cpu_seconds.h"
#include "tests/bench/round_member.h"
#include "worker/transport/round_plane.h"

namespace paceline {
namespace {

constexpr int kWarmUp = 3;
// Beside its parts and results a member sends offers, holds and commits, and
// says a part again while a slow box works on it.
constexpr double kMostFramesAPeer = 8;
constexpr double kMostBytesBeyond = 1.05;

struct Options {
  bool check = false;
  int mib = 1;
  int rounds = 10;
};

struct Measured {
  int members = 0;
  double seconds = 0;  // of a round, the median
  double cpu_seconds = 0;
  double frames = 0;  // that a member sends in a round
  double bytes = 0;
};

// A member with all that a worker has for rounds.
struct Machine {
  RoundPlane plane;
  BoundServer server;
  std::unique_ptr<BenchMember> member;

  Machine() {
    ServerOptions options;
    options.listen = "127.0.0.1:0";
    auto bound = StartServer(options, {plane.service()});
    PACELINE_CHECK(bound.ok(), bound.status().ToString());
    server = *std::move(bound);
  }
};

// Each on a thread of its own, as it has a compute thread.
template <typename Work>
void OnAll(std::vector<std::unique_ptr<Machine>>& machines, Work work) {
  std::vector<Thread> threads;
  for (const auto& machine : machines) {
    threads.emplace_back("compute", [&work, &machine] { work(*machine); });
  }
  for (Thread& thread : threads) thread.Join();
}

PlaneStats Sum(const std::vector<std::unique_ptr<Machine>>& machines) {
  PlaneStats sum;
  for (const auto& machine : machines) {
    const PlaneStats stats = machine->plane.stats();
    sum.frames_sent += stats.frames_sent;
    sum.bytes_sent += stats.bytes_sent;
  }
  return sum;
}

Measured Measure(int members, const Options& options) {
  std::vector<std::unique_ptr<Machine>> machines;
  std::vector<std::string> addresses;
  for (int i = 0; i < members; ++i) {
    machines.push_back(std::make_unique<Machine>());
    addresses.push_back(JoinHostPort("127.0.0.1", machines[i]->server.port));
  }
  BenchReduction reduction;
  reduction.bytes = int64_t{options.mib} << 20;
  reduction.shards = members;
  for (int i = 0; i < members; ++i) {
    machines[i]->member = std::make_unique<BenchMember>(machines[i]->plane, i,
                                                        addresses, reduction);
  }
  Measured measured;
  measured.members = members;
  std::vector<double> seconds;
  PlaneStats before;
  double cpu = 0;
  for (int round = 0; round < kWarmUp + options.rounds; ++round) {
    OnAll(machines, [](Machine& machine) { machine.member->Prepare(); });
    if (round == kWarmUp) {
      before = Sum(machines);
      cpu = CpuSeconds();
    }
    const auto begin = std::chrono::steady_clock::now();
    OnAll(machines, [](Machine& machine) { machine.member->Reduce(); });
    seconds.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin)
            .count());
  }
  const PlaneStats after = Sum(machines);
  const double all = static_cast<double>(members) * options.rounds;
  seconds.erase(seconds.begin(), seconds.begin() + kWarmUp);
  std::nth_element(seconds.begin(), seconds.begin() + options.rounds / 2,
                   seconds.end());
  measured.seconds = seconds[options.rounds / 2];
  measured.cpu_seconds = (CpuSeconds() - cpu) / all;
  measured.frames =
      static_cast<double>(after.frames_sent - before.frames_sent) / all;
  measured.bytes =
      static_cast<double>(after.bytes_sent - before.bytes_sent) / all;
  OnAll(machines, [](Machine& machine) { machine.member.reset(); });
  for (const auto& machine : machines) {
    machine->plane.Shutdown();
    machine->server.Shutdown(std::chrono::system_clock::now());
  }
  return measured;
}

// Prints a line; false when it is beyond the bounds.
bool Judge(const Measured& measured, const Options& options) {
  const double others = measured.members - 1;
  const double least = 2 * others / measured.members *
                       static_cast<double>(int64_t{options.mib} << 20);
  std::printf("%7d %10.2f %10.2f %10.1f %14.2f %10.3f\n", measured.members,
              1e3 * measured.seconds, 1e3 * measured.cpu_seconds,
              measured.frames, measured.frames / others,
              measured.bytes / least);
  std::fflush(stdout);
  return measured.frames <= kMostFramesAPeer * others &&
         measured.bytes <= kMostBytesBeyond * least;
}

int Main(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const absl::string_view word = argv[i];
    int* const number = word == "--mib"      ? &options.mib
                        : word == "--rounds" ? &options.rounds
                                             : nullptr;
    if (word == "--check") {
      options.check = true;
    } else if (number == nullptr || ++i == argc ||
               !absl::SimpleAtoi(argv[i], number) || *number < 1) {
      std::fprintf(stderr,
                   "usage: bench_members [--check] [--mib N] [--rounds N]\n");
      return 2;
    }
  }
  std::printf("%7s %10s %10s %10s %14s %10s\n", "members", "ms", "CPU ms",
              "frames", "frames/others", "bytes");
  bool good = true;
  for (int members = 2; members <= 32; members *= 2) {
    good = Judge(Measure(members, options), options) && good;
  }
  return options.check && !good ? 1 : 0;
}

}  // namespace
}  // namespace paceline

int main(int argc, char** argv) { return paceline::Main(argc, argv); }
