// One member of an all-reduce by rounds, as a process of its own: for
// tests/nightly/rounds/round_speed.py, which starts several and compares them.
//
//   bench_round_exchange INDEX HOST
//
// Prints "HOST:PORT", where it listens; then reads lines and answers each with
// one.  NS is a time of the steady clock, the same in all processes.
//
//   peers ADDRESS...           all members, itself too     ok
//   go NS                      as the last one says, then  done NS CPU_SECONDS
//   bare BYTES                 `go` sends so many bytes to each other one and
//                              waits until they were read; gRPC alone  ready
//   reduce BYTES SHARDS MODE   `go` is one round            ready
//   again                      before another go            ready
//   end                        of the program
#include <chrono>
#include <cstdio>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/base/errors.h"
#include "core/os/host_port.h"
#include "core/os/thread.h"
#include "core/rpc/channel.h"
#include "core/rpc/status.h"
#include "tests/bench/cpu_seconds.h"
#include "tests/bench/peers/bare_exchange.h"
#include "tests/bench/peers/round_member.h"
#include "worker/transport/round/round_plane.h"

namespace paceline {
namespace {

int64_t SteadyNow() {
  return std::chrono::steady_clock::now().time_since_epoch() /
         std::chrono::nanoseconds(1);
}

int64_t Number(const std::string& text) {
  int64_t number = 0;
  PACELINE_CHECK(absl::SimpleAtoi(text, &number), text);
  return number;
}

void Say(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

// Thread-compatible.
class Program {
 public:
  Program(int self, const std::string& host) : self_(self) {
    ServerOptions options;
    options.listen = JoinHostPort(host, 0);
    options.insecure = true;
    auto bound = StartServer(options, {plane_.service(), bare_.service()});
    PACELINE_CHECK(bound.ok(), bound.status().ToString());
    server_ = *std::move(bound);
    Say(JoinHostPort(server_.host, server_.port));
  }
  ~Program() {
    member_.reset();
    plane_.Shutdown();
    server_.server->Shutdown(DeadlineAfter(absl::ZeroDuration()));
  }

  // False at the end.
  bool Do(const std::vector<std::string>& words) {
    if (words[0] == "end") return false;
    if (words[0] == "go") {
      Go(Number(words.at(1)));
    } else if (words[0] == "peers") {
      Meet({words.begin() + 1, words.end()});
    } else if (words[0] == "bare") {
      bare_bytes_ = Number(words.at(1));
      member_.reset();
      Say("ready");
    } else if (words[0] == "reduce") {
      member_.reset();
      const BenchReduction reduction{++attempts_, Number(words.at(1)),
                                     static_cast<int>(Number(words.at(2))),
                                     words.at(3)};
      member_ = std::make_unique<BenchMember>(
          [&](const MemberId& self, RoundSink* sink) {
            return plane_.Open({JobId{1}, reduction.attempt, 1}, self, sink);
          },
          self_, addresses_, reduction);
      Again();
    } else if (words[0] == "again") {
      Again();
    } else {
      PACELINE_CHECK(false, "no such word: ", words[0]);
    }
    return true;
  }

 private:
  void Meet(std::vector<std::string> addresses) {
    addresses_ = std::move(addresses);
    std::vector<std::string> others = addresses_;
    others.erase(others.begin() + self_);
    bare_.Connect(others);
    Say("ok");
  }

  void Again() {
    if (member_ != nullptr) member_->Prepare();
    Say("ready");
  }

  void Go(int64_t when) {
    const double cpu = CpuSeconds();
    never_.WaitFor(absl::Nanoseconds(when - SteadyNow()));
    if (member_ != nullptr) {
      member_->Reduce();
    } else {
      bare_.Send(bare_bytes_);
    }
    const int64_t end = SteadyNow();
    Say(absl::StrCat("done ", end, " ", CpuSeconds() - cpu));
  }

  const int self_;
  int64_t attempts_ = 0;
  int64_t bare_bytes_ = 0;
  std::vector<std::string> addresses_;
  SteadyNotification never_;
  BareExchange bare_;
  RoundPlane plane_;
  BoundServer server_;
  std::unique_ptr<BenchMember> member_;
};

int Main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: bench_round_exchange INDEX HOST\n");
    return 2;
  }
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  Program program(static_cast<int>(Number(argv[1])), argv[2]);
  for (std::string line; std::getline(std::cin, line);) {
    if (!program.Do(absl::StrSplit(line, ' '))) break;
  }
  return 0;
}

}  // namespace
}  // namespace paceline

int main(int argc, char** argv) { return paceline::Main(argc, argv); }
