// How a round grows with its members: 2 to 32 of them in this process, each
// with a server, streams and threads of its own, agree on a gradient over gRPC;
// then 2 to 64 over links inside the process, since 64 would have 4,032
// streams, more than two cores could connect.
//
//   bench_members [--check] [--mib 1] [--rounds 10]
//
// On few cores the time says how much CPU all members take together.  Beside it
// stands what the formula for a group's step says, for members that share this
// machine's cores and send a message at the price that two of them pay here.
// What a member sends is exact: --check ends with 1 when its messages grow
// faster than the members, or its bytes over gRPC beyond those of a
// reduce-scatter and an all-gather.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "core/base/errors.h"
#include "core/os/host_port.h"
#include "core/os/thread.h"
#include "core/rpc/channel.h"
#include "core/rpc/status.h"
#include "core/simulate/group_step.h"
#include "tests/bench/cpu_seconds.h"
#include "tests/bench/peers/round_member.h"
#include "tests/support/pipeline/memory_round_transport.h"
#include "worker/transport/round/round_plane.h"

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

// How the members reach one another.
class Wire {
 public:
  virtual ~Wire() = default;

  virtual std::string Address(int member) const = 0;
  virtual OpenTransport Door(int member) = 0;
  // All that all members have sent.
  virtual PlaneStats Sent() const = 0;
};

// Each has all that a worker has for rounds.
class GrpcWire final : public Wire {
 public:
  explicit GrpcWire(int members) : planes_(members), servers_(members) {
    for (int i = 0; i < members; ++i) {
      ServerOptions options;
      options.listen = "127.0.0.1:0";
      auto bound = StartServer(options, {planes_[i].service()});
      PACELINE_CHECK(bound.ok(), bound.status().ToString());
      servers_[i] = *std::move(bound);
    }
  }
  ~GrpcWire() override {
    for (size_t i = 0; i < planes_.size(); ++i) {
      planes_[i].Shutdown();
      servers_[i].Shutdown(absl::ZeroDuration());
    }
  }

  std::string Address(int member) const override {
    return JoinHostPort("127.0.0.1", servers_[member].port);
  }
  OpenTransport Door(int member) override {
    return [this, member](const MemberId& self, RoundSink* sink) {
      return planes_[member].Open({JobId{1}, /*attempt=*/1, 1}, self, sink);
    };
  }
  PlaneStats Sent() const override {
    PlaneStats sum;
    for (const RoundPlane& plane : planes_) {
      const PlaneStats stats = plane.stats();
      sum.frames_sent += stats.frames_sent;
      sum.bytes_sent += stats.bytes_sent;
    }
    return sum;
  }

 private:
  std::vector<RoundPlane> planes_;
  std::vector<BoundServer> servers_;
};

// Counts messages; their bytes go with them.
class MemoryWire final : public Wire {
 public:
  MemoryWire() {
    network_.SetHook([this](const MemberId&, const RoundMessage&) {
      ++messages_;
      return true;
    });
  }

  std::string Address(int member) const override {
    return std::to_string(member);
  }
  OpenTransport Door(int /*member*/) override {
    return [this](const MemberId& self, RoundSink* sink) {
      return absl::StatusOr<std::shared_ptr<RoundTransport>>(
          network_.Connect(self, sink));
    };
  }
  PlaneStats Sent() const override {
    PlaneStats sum;
    sum.frames_sent = messages_;
    return sum;
  }

 private:
  std::atomic<int64_t> messages_ = 0;
  MemoryRoundNetwork network_;
};

using Members = std::vector<std::unique_ptr<BenchMember>>;

// Each on a thread of its own, as it has a compute thread.
template <typename Work>
void OnAll(Members& members, Work work) {
  std::vector<Thread> threads;
  for (auto& member : members) {
    threads.emplace_back("compute", [&work, &member] { work(member); });
  }
  for (Thread& thread : threads) thread.Join();
}

Measured Measure(Wire& wire, int count, int64_t bytes, const Options& options) {
  std::vector<std::string> addresses;
  for (int i = 0; i < count; ++i) addresses.push_back(wire.Address(i));
  BenchReduction reduction;
  reduction.bytes = bytes;
  reduction.shards = count;
  Members members;
  for (int i = 0; i < count; ++i) {
    members.push_back(
        std::make_unique<BenchMember>(wire.Door(i), i, addresses, reduction));
  }
  std::vector<double> seconds;
  PlaneStats before;
  double cpu = 0;
  for (int round = 0; round < kWarmUp + options.rounds; ++round) {
    OnAll(members, [](auto& member) { member->Prepare(); });
    if (round == kWarmUp) {
      before = wire.Sent();
      cpu = CpuSeconds();
    }
    const auto begin = std::chrono::steady_clock::now();
    OnAll(members, [](auto& member) { member->Reduce(); });
    seconds.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin)
            .count());
  }
  const PlaneStats after = wire.Sent();
  const double all = static_cast<double>(count) * options.rounds;
  seconds.erase(seconds.begin(), seconds.begin() + kWarmUp);
  std::nth_element(seconds.begin(), seconds.begin() + options.rounds / 2,
                   seconds.end());
  Measured measured;
  measured.members = count;
  measured.seconds = seconds[options.rounds / 2];
  measured.cpu_seconds = (CpuSeconds() - cpu) / all;
  measured.frames =
      static_cast<double>(after.frames_sent - before.frames_sent) / all;
  measured.bytes =
      static_cast<double>(after.bytes_sent - before.bytes_sent) / all;
  OnAll(members, [](auto& member) { member.reset(); });
  return measured;
}

// Returns what the formula says of such a round.
double PredictedSeconds(int members, double message_seconds,
                        const Options& options) {
  GroupProblem problem;
  MemberCost member;
  member.message_seconds = message_seconds;
  problem.members.assign(members, member);
  problem.host_cores = {
      static_cast<double>(std::thread::hardware_concurrency())};
  problem.links.assign(members, std::vector<LinkCost>(members));
  problem.gradient_bytes = static_cast<double>(int64_t{options.mib} << 20);
  return PredictGroupStep(problem, /*shards=*/members).seconds();
}

// Prints a line; false when it is beyond the bounds.
bool Judge(const Measured& measured, double predicted, const Options& options) {
  const double others = measured.members - 1;
  const double least = 2 * others / measured.members *
                       static_cast<double>(int64_t{options.mib} << 20);
  std::printf("%7d %10.2f %10.2f %10.2f %10.1f %14.2f %10.3f\n",
              measured.members, 1e3 * measured.seconds, 1e3 * predicted,
              1e3 * measured.cpu_seconds, measured.frames,
              measured.frames / others, measured.bytes / least);
  std::fflush(stdout);
  return measured.frames <= kMostFramesAPeer * others &&
         measured.bytes <= kMostBytesBeyond * least;
}

// A table of rounds over wires that `make` makes.
template <typename Make>
bool Curve(const char* title, int most, const Options& options, Make make) {
  std::printf("%s\n%7s %10s %10s %10s %10s %14s %10s\n", title, "members", "ms",
              "predicted", "CPU ms", "frames", "frames/others", "bytes");
  // Next to nothing but messages, which both ends pay for.
  const Measured bare = Measure(*make(2), 2, /*bytes=*/4096, options);
  const double message_seconds = bare.cpu_seconds / (2 * bare.frames);
  bool good = true;
  for (int members = 2; members <= most; members *= 2) {
    const std::unique_ptr<Wire> wire = make(members);
    const Measured measured =
        Measure(*wire, members, int64_t{options.mib} << 20, options);
    good = Judge(measured, PredictedSeconds(members, message_seconds, options),
                 options) &&
           good;
  }
  return good;
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
  const bool over_grpc = Curve("over gRPC", 32, options, [](int members) {
    return std::make_unique<GrpcWire>(members);
  });
  const bool inside = Curve("inside the process", 64, options,
                            [](int) { return std::make_unique<MemoryWire>(); });
  const bool good = over_grpc && inside;
  return options.check && !good ? 1 : 0;
}

}  // namespace
}  // namespace paceline

int main(int argc, char** argv) { return paceline::Main(argc, argv); }
