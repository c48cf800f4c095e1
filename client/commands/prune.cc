#include "client/commands/prune.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/commands/export.h"
#include "client/render/text.h"
#include "core/base/errors.h"
#include "core/base/status_macros.h"
#include "core/model/catalog.h"
#include "core/model/pruning.h"

namespace paceline {
namespace {

absl::Status CheckScore(const PruneOptions& options) {
  const bool taylor = options.score == "taylor";
  if (taylor == !options.after.empty()) return absl::OkStatus();
  return InvalidArgument(
      taylor ? "--score taylor needs --after FILE: the weights after one step "
               "of SGD at learning rate 1, as often as you like with another "
               "train.seed"
             : "--after is for --score taylor; the score here is l1, which "
               "looks at the weights alone");
}

absl::StatusOr<std::vector<NamedTensor>> Load(const LoadModelWeights& load,
                                              ModelSpec spec,
                                              const ModelDescription& model,
                                              const std::string& file) {
  spec.weights = file;
  return load(spec, model, {0, static_cast<int>(model.layers.size())});
}

struct Pruning {
  ModelDescription whole;
  PrunedModel pruned;
};

absl::StatusOr<Pruning> PruneFile(const LoadModelWeights& load,
                                  const JobSpec& job,
                                  const PruneOptions& options) {
  PACELINE_RETURN_IF_ERROR(CheckScore(options));
  ModelSpec spec = job.model;
  spec.lora = {};
  spec.only = kTrainsAll;
  spec.reset_head = false;
  PACELINE_RETURN_IF_ERROR(CheckPrunable(spec, options.target_macs));
  Pruning pruning;
  PACELINE_ASSIGN_OR_RETURN(
      pruning.whole, DescribeModel(spec, job.data.shape, job.data.classes));
  PACELINE_ASSIGN_OR_RETURN(const std::vector<NamedTensor> weights,
                            Load(load, spec, pruning.whole, options.weights));
  std::vector<std::vector<NamedTensor>> after;
  for (const std::string& file : options.after) {
    PACELINE_ASSIGN_OR_RETURN(std::vector<NamedTensor> moved,
                              Load(load, spec, pruning.whole, file));
    after.push_back(std::move(moved));
  }
  PACELINE_ASSIGN_OR_RETURN(
      pruning.pruned, Prune(spec, job.data.shape, job.data.classes, weights,
                            after, options.target_macs));
  return pruning;
}

int64_t ParametersOf(const ModelDescription& model) {
  int64_t count = 0;
  for (const Layer& layer : model.layers) {
    for (const Parameter& parameter : layer.parameters) {
      if (parameter.trainable) count += NumElements(parameter.shape);
    }
  }
  return count;
}

}  // namespace

ExitCode PruneModelCommand(Console& console, const LoadModelWeights& load,
                           const JobSpec& spec, const PruneOptions& options) {
  const auto pruning = PruneFile(load, spec, options);
  if (!pruning.ok()) return ReportError(console, pruning.status());
  const auto& [whole, pruned] = *pruning;
  const std::string sizes =
      absl::StrCat("[", absl::StrJoin(pruned.model.sizes, ","), "]");
  const absl::Status written = WriteWeightsFile(
      options.out, pruned.weights,
      {{"format", "pt"}, {"model", whole.name}, {"model.sizes", sizes}});
  if (!written.ok()) return ReportError(console, written);
  const double flops = FlopsOf(whole), left = FlopsOf(pruned.model);
  const int64_t parameters = ParametersOf(whole),
                parameters_left = ParametersOf(pruned.model);
  console.Print(
      RenderFacts({{"file", options.out},
                   {"flops a sample",
                    absl::StrCat(HumanCount(left), " of ", HumanCount(flops),
                                 ", ", HumanNumber(left / flops))},
                   {"parameters", absl::StrCat(HumanCount(parameters_left),
                                               " of ", HumanCount(parameters))},
                   {"model.sizes", sizes}}),
      Document{{"path", options.out},
               {"flops", left},
               {"flops_before", flops},
               {"parameters", parameters_left},
               {"parameters_before", parameters},
               {"sizes", pruned.model.sizes}});
  return kExitOk;
}

}  // namespace paceline
