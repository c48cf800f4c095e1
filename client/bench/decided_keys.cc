#include "client/bench/decided_keys.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/text.h"

namespace paceline {
namespace {

struct DecidedKey {
  const char* key;       // one that ends with '.' stands for all below it
  const char* in_infer;  // what to do instead; null: the key counts there
  const char* in_train;
};

constexpr char kMicroBatch[] = "use --micro-batch";
constexpr char kMicroBatches[] = "use --micro-batches";
constexpr char kSteps[] = "use --steps";
constexpr char kForward[] = "nothing is trained: use 'bench train'";
constexpr char kTraining[] = "nothing is inferred: use 'bench infer'";
constexpr char kKind[] = "use 'bench infer' or 'bench train'";
constexpr char kModel[] = "use --model";
constexpr char kName[] = "jobs are called by their case";
constexpr char kPolicy[] = "use --policy";
constexpr char kPlaced[] = "use --policy, which cuts and places";

// The first that fits counts.
constexpr DecidedKey kDecided[] = {
    {"kind", kKind, kKind},
    {"name", kName, kName},
    {"model.name", kModel, kModel},
    {"pipeline.stages", "use --stages", "use --stages"},
    {"pipeline.policy", kPolicy, kPolicy},
    {"pipeline.schedule", kForward, "use --schedule"},
    {"pipeline.vertical_sync", kForward, nullptr},
    {"pipeline.cuts", kPlaced, kPlaced},
    {"pipeline.workers", kPlaced, kPlaced},
    {"infer.micro_batch", kMicroBatch, kTraining},
    {"infer.samples", kMicroBatches, kTraining},
    {"infer.", "predictions are not kept", kTraining},
    {"train.micro_batch", kMicroBatch, kMicroBatch},
    {"train.batch", kMicroBatches, kMicroBatches},
    {"train.steps", kForward, kSteps},
    {"train.epochs", kForward, kSteps},
    {"train.evaluate_every", kForward, "the time of evaluation is not counted"},
    {"train.seed", nullptr, nullptr},
    {"train.", kForward, nullptr},
    {"data.test_samples", kMicroBatches, "the test set is not read"},
};

bool Fits(const DecidedKey& decided, const std::string& key) {
  return absl::EndsWith(decided.key, ".") ? absl::StartsWith(key, decided.key)
                                          : key == decided.key;
}

}  // namespace

absl::Status CheckBenchSets(const std::vector<std::string>& sets, bool train) {
  std::vector<std::string> problems;
  for (const std::string& set : sets) {
    const std::string key = set.substr(0, set.find('='));
    for (const DecidedKey& decided : kDecided) {
      if (!Fits(decided, key)) continue;
      const char* const instead = train ? decided.in_train : decided.in_infer;
      if (instead != nullptr) {
        problems.push_back(
            absl::StrCat("--set ", Printable(set),
                         ": the bench decides that itself: ", instead));
      }
      break;
    }
  }
  if (problems.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrJoin(problems, "\n"));
}

}  // namespace paceline
