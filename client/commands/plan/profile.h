// `paceline profile`.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/commands/command.h"
#include "client/rpc/control_client.h"
#include "core/job/job_model.h"
#include "core/job/spec/job_spec.h"
#include "core/plan/plan.h"
#include "core/weights/safetensors_layout.h"

namespace paceline {

struct ProfileOptions {
  std::string model = {};
  int64_t batch = 0;                      // samples of a micro-batch
  std::string job_file = {};              // instead of both
  std::vector<std::string> workers = {};  // empty: all live ones
  bool all = false;                       // says so
  std::optional<bool> links =
      {};  // nothing: when more than one worker measures
  std::vector<std::string> sets = {};
  std::optional<absl::Duration> timeout = {};
};

// Errors: InvalidArgument  neither a model nor a job
absl::Status CheckProfileOptions(const ProfileOptions& options);

// Has workers measure `spec` (whose micro-batch is set already), shows what is
// still waited for, then prints what was found; `failed` makes it kExitFailed.
// A timeout and Ctrl-C print what there is; the workers go on, and what they
// find is kept.
//
// Ends with kExitUsage for a wrong spec, kExitNotFound for an unknown worker,
// kExitUnplaceable when there is no worker, kExitTimedOut, kExitInterrupted.
ExitCode ProfileCommand(const CommandContext& context, const JobSpec& spec,
                        const ProfileOptions& options);

// The same, without printing what was found.
// Errors: those of ControlClient; DeadlineExceeded, Cancelled (Ctrl-C);
//         FailedPrecondition  something could not be measured: says what
absl::StatusOr<ProfileProgress> TakeProfile(const CommandContext& context,
                                            const JobSpec& spec,
                                            const ProfileOptions& options);

// The workers that could measure and hold stages: those that are attached, by
// id.
// Errors: those of ControlClient::ListWorkers.
absl::StatusOr<std::vector<v1::Worker>> LiveWorkers(ControlClient& client);

// `spec` as a measurement needs it: micro-batches of `batch` samples, and a
// data set that any worker can make.  The batch stays what --set made it, else
// it is as many micro-batches as in a job file that does not say.
// Errors: InvalidArgument  one line for each thing that is wrong, unknown
// models among them
absl::StatusOr<JobSpec> WithMicroBatch(JobSpec spec, int64_t batch,
                                       const std::vector<std::string>& sets);

// How a weights file is looked into here, where no worker can; null: it is not.
// Real: LoadWeights of core/weights.
using LoadModelWeights = std::function<absl::StatusOr<std::vector<NamedTensor>>(
    const ModelSpec& spec, const ModelDescription& model,
    const LayerRange& layers, WeightsOrigin* origin)>;

// Has the workers that have nothing else to do look for the data, weights and
// script of a job, and into them as the job would, for some seconds at most.
// Notes their answers, the files that some of them cannot read, and the files
// that none has looked at.  A coordinator that does not answer is no error
// here.
//   inputs  that the data must be; zeros: any
//
// Errors: InvalidArgument  no worker can read one of them, or it does not fit
//                          the job, and all live workers were asked
//         Cancelled        interrupted
absl::Status LookForFiles(const CommandContext& context, const JobSpec& spec,
                          const LoadModelWeights& load = nullptr,
                          const v1::Inputs& inputs = {});

// This program has no LibTorch: a worker looks into a TorchScript file for it.
//
// When the model of `spec` is a script that no worker has looked into, has one
// do so, and fills in what it found; otherwise does nothing.  Blocks until a
// worker is free of jobs and has looked, though no longer than `timeout`; says
// for what it waits.
//
// Errors:
//   InvalidArgument   the worker cannot use the file; says why
//   Cancelled         interrupted
//   DeadlineExceeded  `timeout` is over; the coordinator gives it up too
//   those of ControlClient
absl::Status FillInScript(const CommandContext& context,
                          std::optional<absl::Duration> timeout, JobSpec* spec);

}  // namespace paceline
