// How fast tensors cross from one process to another over loopback, and what
// CPU time that costs: the data plane, a bare gRPC stream (grpc+: with the
// allocator told what the data plane tells it), and plain TCP.
//
//   bench_data_plane [--repetitions N] [--mib M] [--json] [--check]
//
// Each transfer is two processes of this program.  The ways take turns,
// so that what else the machine does hits all alike; ratios are medians over
// pairs of the same turn.  --check: exit 1 when one is missed.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/check.h"
#include "tests/bench/transfers.h"

namespace paceline {
namespace {

// issue 2, "Must show".
constexpr double kLeastThroughput = 0.9;
constexpr double kMostCpu = 1.5;

struct Settings {
  int repetitions = 5;
  int64_t mib = 1024;  // of one transfer
  bool json = false;
  bool check = false;
};

// A child with both its ends.
struct Child {
  pid_t pid = -1;
  FILE* in = nullptr;   // what it reads
  FILE* out = nullptr;  // what it prints
};

Child StartChild(const std::vector<std::string>& arguments) {
  int to[2], from[2];
  PACELINE_CHECK(pipe2(to, O_CLOEXEC) == 0 && pipe2(from, O_CLOEXEC) == 0,
                 "pipe");
  const pid_t pid = fork();
  PACELINE_CHECK(pid >= 0, "fork");
  if (pid == 0) {
    dup2(to[0], STDIN_FILENO);
    dup2(from[1], STDOUT_FILENO);
    std::vector<char*> argv = {const_cast<char*>("bench_data_plane")};
    for (const std::string& argument : arguments) {
      argv.push_back(const_cast<char*>(argument.c_str()));
    }
    argv.push_back(nullptr);
    execv("/proc/self/exe", argv.data());
    _exit(127);
  }
  close(to[0]);
  close(from[1]);
  return {pid, fdopen(to[1], "w"), fdopen(from[0], "r")};
}

std::string ReadLine(const Child& child) {
  char line[256];
  PACELINE_CHECK(fgets(line, sizeof(line), child.out) != nullptr,
                 "a child ended early");
  return line;
}

void Tell(const Child& child, const std::string& line) {
  std::fputs(absl::StrCat(line, "\n").c_str(), child.in);
  std::fflush(child.in);
}

void Join(const Child& child) {
  std::fclose(child.in);
  std::fclose(child.out);
  int status = 0;
  waitpid(child.pid, &status, 0);
  PACELINE_CHECK(status == 0, absl::StrCat("a child ended with ", status));
}

struct Result {
  double gb_per_second = 0;
  double cpu_seconds_per_gb = 0;
};

Result Measure(const std::string& way, int64_t frame_bytes, int64_t frames) {
  const std::vector<std::string> common = {way, absl::StrCat(frame_bytes),
                                           absl::StrCat(frames)};
  const auto with_role = [&common](const char* role) {
    std::vector<std::string> arguments = {role};
    arguments.insert(arguments.end(), common.begin(), common.end());
    return arguments;
  };
  const Child receiver = StartChild(with_role("receive"));
  const Child sender = StartChild(with_role("send"));
  // Each says where it listens and is told of the other.
  const std::string receiver_port = ReadLine(receiver);
  const std::string sender_port = ReadLine(sender);
  Tell(receiver, sender_port);
  Tell(sender, receiver_port);

  double seconds = 0, receiver_cpu = 0, sender_cpu = 0;
  PACELINE_CHECK(sscanf(ReadLine(receiver).c_str(), "%lf %lf", &seconds,
                        &receiver_cpu) == 2,
                 "receiver");
  Tell(sender, "done");
  PACELINE_CHECK(sscanf(ReadLine(sender).c_str(), "%lf", &sender_cpu) == 1,
                 "sender");
  Tell(receiver, "done");
  Join(sender);
  Join(receiver);
  const double gb = static_cast<double>(frame_bytes * frames) / 1e9;
  return {gb / seconds, (receiver_cpu + sender_cpu) / gb};
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half]
                                : (values[half - 1] + values[half]) / 2;
}

double MedianOf(const std::vector<Result>& results, double Result::*field) {
  std::vector<double> values;
  for (const Result& result : results) values.push_back(result.*field);
  return Median(std::move(values));
}

double MedianRatio(const std::vector<Result>& ours,
                   const std::vector<Result>& bare, double Result::*field) {
  std::vector<double> ratios;
  for (size_t i = 0; i < ours.size(); ++i) {
    ratios.push_back(ours[i].*field / (bare[i].*field));
  }
  return Median(std::move(ratios));
}

// True when both ratios are good enough.
bool Report(int64_t frame_bytes,
            std::map<std::string, std::vector<Result>>& results, bool json) {
  const double throughput =
      MedianRatio(results["plane"], results["grpc"], &Result::gb_per_second);
  const double cpu = MedianRatio(results["plane"], results["grpc"],
                                 &Result::cpu_seconds_per_gb);
  const bool good = throughput >= kLeastThroughput && cpu <= kMostCpu;
  for (const auto& [way, measured] : results) {
    const double rate = MedianOf(measured, &Result::gb_per_second);
    const double cost = MedianOf(measured, &Result::cpu_seconds_per_gb);
    if (json) {
      absl::PrintF(
          "{\"frame_bytes\": %d, \"way\": \"%s\", \"gb_per_second\": %.4f, "
          "\"cpu_seconds_per_gb\": %.4f}\n",
          frame_bytes, way, rate, cost);
    } else {
      absl::PrintF("%9d  %-6s %8.3f GB/s %8.3f CPU s/GB\n", frame_bytes, way,
                   rate, cost);
    }
  }
  if (json) {
    absl::PrintF(
        "{\"frame_bytes\": %d, \"throughput_ratio\": %.3f, \"cpu_ratio\": "
        "%.3f, \"good\": %s}\n",
        frame_bytes, throughput, cpu, good ? "true" : "false");
  } else {
    absl::PrintF(
        "%9d  plane / grpc: throughput %.2f (at least %.1f), CPU %.2f (at "
        "most %.1f): %s\n",
        frame_bytes, throughput, kLeastThroughput, cpu, kMostCpu,
        good ? "good" : "MISSED");
  }
  std::fflush(stdout);
  return good;
}

int RunAll(const Settings& settings) {
  bool good = true;
  for (const int64_t frame_bytes : {int64_t{1} << 20, int64_t{16} << 10}) {
    const int64_t frames = (settings.mib << 20) / frame_bytes;
    std::map<std::string, std::vector<Result>> results;
    for (int i = 0; i < settings.repetitions; ++i) {
      for (const char* way : {"plane", "grpc", "grpc+", "tcp"}) {
        results[way].push_back(Measure(way, frame_bytes, frames));
      }
    }
    good &= Report(frame_bytes, results, settings.json);
  }
  return settings.check && !good ? 1 : 0;
}

int Usage() {
  std::fputs(
      "usage: bench_data_plane [--repetitions N] [--mib M] [--json] "
      "[--check]\n",
      stderr);
  return 2;
}

int Main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() == 4 &&
      (arguments[0] == "send" || arguments[0] == "receive")) {
    TransferSpec spec;
    PACELINE_CHECK(absl::SimpleAtoi(arguments[2], &spec.frame_bytes) &&
                       absl::SimpleAtoi(arguments[3], &spec.frames),
                   "arguments");
    return RunTransfer(arguments[1], arguments[0] == "send", spec);
  }
  Settings settings;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    const bool has_value = i + 1 < arguments.size();
    if (argument == "--json") {
      settings.json = true;
    } else if (argument == "--check") {
      settings.check = true;
    } else if (argument == "--repetitions" && has_value &&
               absl::SimpleAtoi(arguments[i + 1], &settings.repetitions) &&
               settings.repetitions > 0) {
      ++i;
    } else if (argument == "--mib" && has_value &&
               absl::SimpleAtoi(arguments[i + 1], &settings.mib) &&
               settings.mib > 0) {
      ++i;
    } else {
      return Usage();
    }
  }
  return RunAll(settings);
}

}  // namespace
}  // namespace paceline

int main(int argc, char** argv) { return paceline::Main(argc, argv); }
