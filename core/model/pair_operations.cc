#include "core/model/pair_operations.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "core/model/operation_facts.h"

namespace paceline {
namespace {

// About ten operations an exponential.
constexpr double kFlopsAnExponential = 10;

// Of one direction; its output is the caller's to say.
void AddDirection(const Operation& operation, int64_t tokens,
                  const std::string& suffix, OperationFacts& facts) {
  const int64_t in = operation.sizes[0];
  const int64_t width = operation.sizes[1];
  const std::string& name = operation.name;
  const int64_t gates = 4 * width;
  facts.parameters.push_back(
      {absl::StrCat(name, ".weight_ih_l0", suffix), {gates, in}});
  facts.parameters.push_back(
      {absl::StrCat(name, ".weight_hh_l0", suffix), {gates, width}});
  facts.parameters.push_back(
      {absl::StrCat(name, ".bias_ih_l0", suffix), {gates}});
  facts.parameters.push_back(
      {absl::StrCat(name, ".bias_hh_l0", suffix), {gates}});
  facts.flops += 2.0 * tokens * gates * (in + width) +
                 (kFlopsAnExponential + 2) * tokens * gates;
  // The input in the order of time, the gates, the cells and what was before
  // them, their tanh, and the output.
  facts.kept_elements += tokens * (in + gates + 3 * width);
}

}  // namespace

absl::StatusOr<OperationFacts> ExamineSplitPair(const Operation& operation,
                                                const Shape& input) {
  if (input.size() != 1 || input[0] % 2 != 0) {
    return DoesNotFit(operation, input);
  }
  OperationFacts facts;
  facts.output = {input[0] / 2};
  facts.beside = {{DType::kU8, facts.output}, {DType::kI64, facts.output}};
  // Both halves, eight bytes each; and the mask.
  facts.kept_elements = 2 * input[0] + facts.output[0];
  return facts;
}

absl::StatusOr<OperationFacts> ExamineLstm(const Operation& operation,
                                           const Shape& input) {
  if (!IsTokens(input, operation.sizes[0])) return DoesNotFit(operation, input);
  OperationFacts facts;
  facts.output = {input[0], operation.sizes[1]};
  AddDirection(operation, input[0], "", facts);
  // Again, a sample after the other.
  facts.kept_elements += NumElements(facts.output);
  return facts;
}

absl::StatusOr<OperationFacts> ExamineBidirectionalLstm(
    const Operation& operation, const Shape& input) {
  if (!IsTokens(input, operation.sizes[0])) return DoesNotFit(operation, input);
  OperationFacts facts;
  facts.output = {input[0], 2 * operation.sizes[1]};
  AddDirection(operation, input[0], "", facts);
  AddDirection(operation, input[0], "_reverse", facts);
  facts.kept_elements += NumElements(facts.output);
  return facts;
}

absl::StatusOr<OperationFacts> ExamineTakeTarget(const Operation& operation,
                                                 const Shape& input) {
  if (!IsTokens(input, operation.sizes[0])) return DoesNotFit(operation, input);
  OperationFacts facts;
  facts.output = {input[0]};
  facts.taken = {{DType::kI64, facts.output}};
  facts.beside = {{DType::kF32, input}};
  return facts;
}

absl::StatusOr<OperationFacts> ExamineAdditiveAttention(
    const Operation& operation, const Shape& input) {
  const int64_t width = operation.sizes[0];
  if (!IsTokens(input, width)) return DoesNotFit(operation, input);
  const int64_t tokens = input[0];
  const std::string& name = operation.name;
  OperationFacts facts;
  facts.output = input;
  facts.taken = {{DType::kU8, {tokens}}, {DType::kF32, input}};
  facts.beside = {{DType::kF32, input}};
  facts.parameters = {{name + ".linear_q.weight", {width, width}},
                      {name + ".linear_k.weight", {width, width}},
                      {name + ".linear_att.weight", {1, width}},
                      {name + ".normalize_scalar", {1}},
                      {name + ".normalize_bias", {width}}};
  const double pairs = static_cast<double>(tokens) * tokens;
  // Two projections; a sum, a tanh and a product for each pair; the mixture.
  facts.flops = 4.0 * tokens * width * width +
                (kFlopsAnExponential + 3) * pairs * width + 2 * pairs * width;
  // The tanh; scores, masked ones and weights; projections and the mixture.
  facts.kept_elements =
      tokens * tokens * width + 3 * tokens * tokens + 3 * tokens * width;
  return facts;
}

absl::StatusOr<OperationFacts> ExamineJoinContext(const Operation& operation,
                                                  const Shape& input) {
  absl::StatusOr<OperationFacts> facts =
      ExamineJoinLastContext(operation, input);
  if (facts.ok()) facts->beside = facts->taken;
  return facts;
}

absl::StatusOr<OperationFacts> ExamineJoinLastContext(
    const Operation& operation, const Shape& input) {
  const int64_t width = operation.sizes[0];
  if (!IsTokens(input, width)) return DoesNotFit(operation, input);
  OperationFacts facts;
  facts.output = {input[0], 2 * width};
  facts.taken = {{DType::kF32, input}};
  facts.kept_elements = NumElements(facts.output);
  return facts;
}

absl::StatusOr<OperationFacts> ExamineScoreTokens(const Operation& operation,
                                                  const Shape& input) {
  absl::StatusOr<OperationFacts> facts = ExamineTokenScores(operation, input);
  if (!facts.ok()) return facts;
  const int64_t in = operation.sizes[0];
  const int64_t out = operation.sizes[1];
  facts->parameters = WeightAndBias(operation.name, {out, in}, out);
  return facts;
}

}  // namespace paceline
