#include <algorithm>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <limits>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/cleanup/cleanup.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "client/commands/job/job.h"
#include "client/commands/plan/plan.h"
#include "client/files/whole_file.h"
#include "client/render/report.h"
#include "client/values/document.h"
#include "client/values/text.h"
#include "core/base/errors.h"
#include "core/job/job_model.h"
#include "core/model/catalog.h"
#include "core/plan/memory.h"
#include "core/rpc/convert/job_convert.h"
#include "core/transfer/checksum.h"
#include "core/weights/derived.h"

namespace paceline {
namespace {

constexpr int kBatches = 8;
constexpr uint64_t kMostSize = 1 << 20;
constexpr size_t kShownBytes = 64;

absl::StatusOr<std::vector<NamedTensor>> Load(const LoadModelWeights& load,
                                              ModelSpec spec,
                                              const ModelDescription& model,
                                              const std::string& file,
                                              WeightsOrigin* origin = nullptr) {
  spec.weights = file;
  return load(spec, model, {0, static_cast<int>(model.layers.size())}, origin);
}

struct Pruning {
  ModelSpec spec;
  ModelDescription whole;
  std::vector<NamedTensor> weights;
  WeightsOrigin origin;
  std::vector<UnitGroup> groups;
  UnitScores scores;
  PrunedModel pruned;
};

absl::Status CheckPruneOptions(const PruneOptions& options) {
  std::error_code error;
  if (std::filesystem::equivalent(options.weights, options.out, error)) {
    return InvalidArgument(options.out,
                           " is the file that is pruned, and fine-tuning may "
                           "want it as teacher: name another one");
  }
  if (options.out == "-") {
    return InvalidArgument("-o needs a file, as -o pruned.safetensors");
  }
  if (options.score != "taylor" && options.batches > 0) {
    return InvalidArgument(
        "--batches is for --score taylor; the score here is l1, which looks at "
        "the weights alone");
  }
  if (options.score == "taylor" && options.file.empty()) {
    return InvalidArgument(
        "--score taylor needs --file: the loss is of that job's data");
  }
  return absl::OkStatus();
}

// One step of SGD at learning rate 1 from these weights, so that the difference
// of the weights is the gradient of a batch.
JobSpec JobOfOneStep(const JobSpec& job, const std::string& weights) {
  JobSpec spec = job;
  spec.name = absl::StrCat("prune/", job.model.name);
  spec.kind = kTrainKind;
  spec.model = BareModel(job.model);
  spec.model.weights = std::filesystem::absolute(weights).lexically_normal();
  spec.train.steps = 1;
  spec.train.optimizer = {};
  spec.train.learning_rate = {.base = 1};
  spec.train.clip_norm = 0;
  spec.train.evaluate_every = 0;
  spec.train.checkpoint_every = 0;
  spec.train.layer_drop = 0;
  spec.train.distill = {};
  spec.aggregation = {};
  spec.pipeline.schedule = PipelineSpec().schedule;  // one update, not more
  spec.pipeline.vertical_sync = false;
  spec.data.distribution = DataSpec().distribution;
  spec.data.rotate = false;
  spec.faults.clear();
  return spec;
}

absl::Status Interrupted() {
  return Cancelled("interrupted; nothing was written");
}

// Prints why the job waits, each time that the reason changes.
//   read  HashFile() of the weights that are pruned
absl::Status WaitForJob(const CommandContext& mesh, int64_t id, uint64_t read) {
  v1::Job job;
  std::string told;
  const auto ask = [&] {
    auto now = mesh.client.GetJob(id, 0, 0);
    if (now.ok()) job = *std::move(now);
    return now.status();
  };
  const auto take = [&] {
    if (HasEnded(job.state())) return true;
    const bool is_news = std::exchange(told, job.why()) != job.why();
    if (is_news && !told.empty()) {
      mesh.console.Note("job ", id, ": ", Printable(told));
    }
    return false;
  };
  const absl::Status end = WaitUntil(mesh, {}, ask, take);
  if (absl::IsCancelled(end)) return Interrupted();
  PACELINE_RETURN_IF_ERROR(end);
  if (job.skipped_steps() > 0) {
    return FailedPrecondition("the step of job ", id,
                              " has a gradient that is not finite: 'paceline "
                              "model inspect' shows what the weights are");
  }
  if (job.inputs().weights() != 0 && job.inputs().weights() != read) {
    return FailedPrecondition("job ", id, " began with another file than the ",
                              job.spec().model().weights(),
                              " of this machine: put the same on every worker");
  }
  if (job.state() == v1::JOB_STATE_SUCCEEDED) return absl::OkStatus();
  return FailedPrecondition("the step of job ", id, " failed: the job ",
                            JobStateName(job.state()), ": ", job.why());
}

// Adds what each of these jobs says, and deletes it; the first one is taken off
// `jobs` then.
//   file  takes the weights of one job after the other
absl::Status AddScoresOfJobs(const CommandContext& mesh,
                             const LoadModelWeights& load, uint64_t read,
                             const std::string& file, Pruning& pruning,
                             std::deque<int64_t>& jobs) {
  const absl::Cleanup remove = [&] { std::remove(file.c_str()); };
  for (; !jobs.empty(); jobs.pop_front()) {
    PACELINE_RETURN_IF_ERROR(WaitForJob(mesh, jobs.front(), read));
    if (mesh.pauser.Sleep(absl::ZeroDuration())) return Interrupted();
    std::string bytes;
    const auto take = [&](absl::string_view chunk) {
      absl::StrAppend(&bytes, chunk);
      return absl::OkStatus();
    };
    PACELINE_RETURN_IF_ERROR(
        mesh.client.ExportWeights(jobs.front(), take).status());
    PACELINE_RETURN_IF_ERROR(WriteWholeFile(file, bytes));
    PACELINE_ASSIGN_OR_RETURN(const std::vector<NamedTensor> after,
                              Load(load, pruning.spec, pruning.whole, file));
    AddScoresOfStep(pruning.groups, pruning.weights, after, pruning.scores);
    PACELINE_RETURN_IF_ERROR(mesh.client.DeleteJob(jobs.front()));
  }
  return absl::OkStatus();
}

absl::Status AddTaylorScores(const CommandContext& mesh,
                             const LoadModelWeights& load, const JobSpec& job,
                             const PruneOptions& options, Pruning& pruning) {
  JobSpec spec = JobOfOneStep(job, options.weights);
  PACELINE_RETURN_IF_ERROR(LookForFiles(mesh, spec, load));
  const uint64_t read = HashFile(options.weights).value_or(0);
  const int batches = options.batches > 0 ? options.batches : kBatches;
  std::deque<int64_t> jobs;
  absl::Status status;
  spec.train.seed =
      std::min(spec.train.seed, std::numeric_limits<int64_t>::max() - batches);
  for (int batch = 0; batch < batches && status.ok(); ++batch) {
    if (mesh.pauser.Sleep(absl::ZeroDuration())) {
      status = Interrupted();
      break;
    }
    v1::SubmitJobRequest request;
    *request.mutable_spec() = ToProto(spec);
    const auto submitted = mesh.client.SubmitJob(request);
    status = submitted.status();
    if (status.ok()) jobs.push_back(submitted->id());
    ++spec.train.seed;  // another batch
  }
  if (status.ok()) {
    mesh.console.Note("jobs ", jobs.front(), " to ", jobs.back(),
                      " take a step each");
    status =
        AddScoresOfJobs(mesh, load, read, options.out + ".step", pruning, jobs);
  }
  for (const int64_t id : jobs) {
    mesh.client.StopJob(id).IgnoreError();
    if (!mesh.client.DeleteJob(id).ok()) {
      mesh.console.Note("job ", id, " is left: ", mesh.program, " job delete ",
                        id);
    }
  }
  return status;
}

absl::StatusOr<Pruning> PruneFile(const LoadModelWeights& load,
                                  const JobSpec& job,
                                  const PruneOptions& options,
                                  const CommandContext* mesh) {
  PACELINE_RETURN_IF_ERROR(CheckPruneOptions(options));
  if (mesh != nullptr) PACELINE_RETURN_IF_ERROR(CheckWritable(options.out));
  Pruning pruning;
  pruning.spec = BareModel(job.model);
  const Shape& shape = job.data.shape;
  const int32_t classes = job.data.classes;
  PACELINE_RETURN_IF_ERROR(CheckPrunable(pruning.spec, options.target_macs));
  JobSpec bare = job;
  bare.model = pruning.spec;
  bare.train.distill = {};
  bare.faults.clear();
  PACELINE_ASSIGN_OR_RETURN(pruning.whole, DescribeModel(bare));
  PACELINE_ASSIGN_OR_RETURN(
      pruning.weights, Load(load, pruning.spec, pruning.whole, options.weights,
                            &pruning.origin));
  PACELINE_ASSIGN_OR_RETURN(pruning.groups,
                            UnitGroupsOf(pruning.spec, shape, classes));
  if (mesh == nullptr) {
    pruning.scores = ScoresOfWeights(pruning.groups, pruning.weights);
  } else {
    pruning.scores.resize(pruning.groups.size());
    PACELINE_RETURN_IF_ERROR(
        AddTaylorScores(*mesh, load, job, options, pruning));
  }
  PACELINE_ASSIGN_OR_RETURN(pruning.pruned,
                            Prune(pruning.spec, shape, classes, pruning.weights,
                                  pruning.scores, options.target_macs));
  return pruning;
}

}  // namespace

absl::Status FillInSizes(const ReadMetadata& read, ModelSpec& spec) {
  if (read == nullptr || spec.weights.empty() || !spec.sizes.empty() ||
      !ModelReads(spec.name, "sizes")) {
    return absl::OkStatus();
  }
  const absl::StatusOr<std::string> text = read(spec.weights, kSizesKey);
  // The workers may have the file, and say what is wrong with it.
  if (!text.ok() || text->empty()) return absl::OkStatus();
  const auto sizes = Document::parse(*text, nullptr, false);
  const bool good =
      sizes.is_array() && absl::c_all_of(sizes, [](const auto& size) {
        return size.is_number_unsigned() &&
               size.template get<uint64_t>() <= kMostSize;
      });
  if (!good) {
    return InvalidArgument(
        spec.weights, " has '", absl::CHexEscape(text->substr(0, kShownBytes)),
        "' for ", kSizesKey, ", which is no list of numbers of units");
  }
  spec.sizes = sizes.get<std::vector<int32_t>>();
  return absl::OkStatus();
}

Outcome PruneModelCommand(Console& console, const LoadModelWeights& load,
                          const JobSpec& spec, const PruneOptions& options,
                          const CommandContext* mesh) {
  PACELINE_ASSIGN_OR_RETURN(const auto pruning,
                            PruneFile(load, spec, options, mesh));
  const ModelDescription& whole = pruning.whole;
  const PrunedModel& pruned = pruning.pruned;
  console.NoteEach("note: ", pruning.origin.notes);
  auto metadata = MetadataOf(pruned.model);
  metadata.insert(whole.made_with.begin(), whole.made_with.end());
  metadata.insert(pruning.origin.metadata.begin(),
                  pruning.origin.metadata.end());
  PACELINE_RETURN_IF_ERROR(
      WriteWeightsFile(options.out, pruned.weights, metadata));
  const double flops = FlopsOf(whole), left = FlopsOf(pruned.model);
  const int64_t parameters = TrainableElements(whole),
                parameters_left = TrainableElements(pruned.model);
  console.Print(
      RenderFacts({{"file", options.out},
                   {"flops a sample",
                    absl::StrCat(HumanCount(left), " of ", HumanCount(flops),
                                 ", ", HumanNumber(left / flops))},
                   {"parameters", absl::StrCat(HumanCount(parameters_left),
                                               " of ", HumanCount(parameters))},
                   {kSizesKey, metadata.at(kSizesKey)}}),
      Document{{"path", options.out},
               {"flops", left},
               {"flops_before", flops},
               {"parameters", parameters_left},
               {"parameters_before", parameters},
               {"sizes", pruned.model.sizes}});
  return kExitOk;
}

}  // namespace paceline
