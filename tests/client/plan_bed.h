// `paceline plan` with a coordinator in memory.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/commands/plan.h"
#include "client/files/profile_file.h"
#include "gtest/gtest.h"
#include "tests/client/measure_fakes.h"

namespace paceline {

// Twelve layers of one second, two forward and backward halves.
inline std::string TwelveLayers() {
  std::string text;
  for (int i = 0; i < 12; ++i) {
    absl::StrAppend(&text, "node", i, " -- Linear -- ",
                    "forward_compute_time=500.0, backward_compute_time=500.0, "
                    "activation_size=0.0, parameter_size=0.0\n");
  }
  for (int i = 0; i < 11; ++i) {
    absl::StrAppend(&text, "\tnode", i, " -- node", i + 1, "\n");
  }
  return text;
}

inline ProfileSource Graph(const std::string& text) {
  const auto source = ParseProfileFile("graph.txt", text);
  EXPECT_TRUE(source.ok()) << source.status();
  return *source;
}

// The example of the released planners: two devices of ten seconds a layer, two
// of one.
inline PlanOptions Unlike() {
  PlanOptions options;
  options.profile = "graph.txt";
  options.machines = "4";
  options.bandwidth = "1e9";
  options.speed = "0.1,0.1,1,1";
  return options;
}

struct PlanBed : CommandBed {
  explicit PlanBed(OutputFormat format = OutputFormat::kJson)
      : CommandBed(format) {
    measure.workers = IdleWorkers({"w1", "w2", "w3"});
    for (const char* worker : {"w1", "w2"}) {
      measure.AddProfile(ProfileOf(LenetSpec(16), worker, 1e-3));
    }
    measure.AddProfile(ProfileOf(LenetSpec(16), "w3", 1e-1));
  }

  ExitCode RunProfile(const ProfileSource& source, const PlanOptions& options) {
    return Finish(AskForProfile(source, options), options);
  }
  ExitCode RunMesh(const JobSpec& spec, const PlanOptions& options) {
    return Finish(AskForMesh(measure, spec, options), options);
  }

  // The document of a plan that there must be.
  nlohmann::json Planned(const ProfileSource& source,
                         const PlanOptions& options) {
    EXPECT_EQ(RunProfile(source, options), kExitOk) << err.str();
    return Output();
  }
  nlohmann::json Planned(const JobSpec& spec, const PlanOptions& options) {
    EXPECT_EQ(RunMesh(spec, options), kExitOk) << err.str();
    return Output();
  }

  FakeMeasureClient measure;

 private:
  ExitCode Finish(const absl::StatusOr<PlanQuestion>& question,
                  const PlanOptions& options) {
    if (!question.ok()) {
      ReportError(console, question.status());
      return SubmitExitCodeFor(question.status());
    }
    return PlanCommand(console, clock, *question, options);
  }
};

}  // namespace paceline
