#include "core/model/operation_facts.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace paceline {

absl::Status DoesNotFit(const Operation& operation, const Shape& input) {
  return absl::InvalidArgumentError(absl::StrCat(
      operation.kind, operation.name.empty() ? "" : " ", operation.name, "(",
      absl::StrJoin(operation.sizes, ", "), ") does not fit an input of shape ",
      "[", absl::StrJoin(input, ", "), "]"));
}

std::vector<Parameter> WeightAndBias(const std::string& name, Shape weight,
                                     int64_t bias) {
  return {{name + ".weight", std::move(weight)}, {name + ".bias", {bias}}};
}

bool IsTokens(const Shape& input, int64_t width) {
  return input.size() == 2 && input[1] == width;
}

OperationFacts LinearFacts(const Shape& input, int64_t out) {
  OperationFacts facts;
  facts.output = input;
  facts.output.back() = out;
  facts.flops = 2.0 * NumElements(input) * out;
  facts.kept_elements = NumElements(facts.output);
  return facts;
}

absl::StatusOr<OperationFacts> ExamineTokenMap(const Operation& operation,
                                               const Shape& input) {
  if (!IsTokens(input, operation.sizes[0])) return DoesNotFit(operation, input);
  return LinearFacts(input, operation.sizes[1]);
}

absl::StatusOr<OperationFacts> ExamineTokenScores(const Operation& operation,
                                                  const Shape& input) {
  absl::StatusOr<OperationFacts> facts = ExamineTokenMap(operation, input);
  // The scores, and the loss's logarithms of probabilities, which are many.
  if (facts.ok()) facts->kept_elements *= 2;
  return facts;
}

}  // namespace paceline
