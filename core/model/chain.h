// Builds a ModelDescription operation by operation, so that a model's file
// says what it is made of and nothing is counted by hand.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/model/description.h"
#include "core/model/operation.h"

namespace paceline {

// Thread-compatible.  The first error wins; Build() returns it.
class Chain {
 public:
  Chain(std::string model, Shape input, int32_t classes);

  // Samples are tokens [block], numbers below `vocabulary`.
  Chain& TakeTokens(int64_t vocabulary);

  // Every token has a label: the last layer's output is [block, classes].
  Chain& LabelTokens();

  // So has every token of the target: the second half of each sample.
  Chain& LabelTargets();

  // A file may hold parameter `name` a second time, as `alias`.
  Chain& AddAlias(std::string alias, std::string name);

  // Operations that are added from now on have adapters where `lora` wants
  // them, but for those of the module `head`.
  Chain& Adapt(const LoraSpec& lora, std::string head);

  // Size() gives these numbers, one after the other; empty: all it is asked.
  Chain& Resize(std::vector<int32_t> sizes);

  // Returns how many units the next group has: what pruning left of it, or
  // `full`.
  int64_t Size(int64_t full);

  // Begins the next layer.
  Chain& Begin(std::string layer);

  // Adds to the layer that was begun last.
  Chain& Add(Operation operation);
  Chain& Add(std::string kind) { return Add({std::move(kind), "", {}, 0}); }

  // Adds nothing when probability is 0.
  Chain& AddDropout(double probability);

  // The shape of one sample after everything that was added so far.
  const Shape& shape() const { return shape_; }

  // Errors: InvalidArgument  operations that do not fit one another, a last
  //                          layer whose output is not one score a class,
  //                          for every label, a target of adapters that is
  //                          not there, or sizes that are not of these groups
  absl::StatusOr<ModelDescription> Build() &&;

 private:
  void FindTargets(const OperationFacts& facts, Operation& operation);

  ModelDescription model_;
  Shape shape_;
  LoraSpec lora_;
  std::vector<int32_t> sizes_;
  std::set<std::string> maps_;     // ends of the names of all there are
  std::set<std::string> targets_;  // of lora_.targets those that were found
  absl::Status status_;
};

// Errors: InvalidArgument  unless least <= value <= most; `what` is the size's
//                          name in the job file
absl::Status CheckModelSize(const ModelSpec& spec, const char* what,
                            int64_t value, int64_t least, int64_t most);

// Errors: InvalidArgument  unless samples are images [channels, height, width]
//                          of at least `edge` x `edge` pixels
absl::Status CheckImages(const ModelSpec& spec, const Shape& input,
                         int64_t edge);

}  // namespace paceline
