#include "core/model/token_operations.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "core/model/operation_facts.h"

namespace paceline {
namespace {

// Adds a row of a table to every token.
absl::StatusOr<OperationFacts> ExamineAddedRows(const Operation& operation,
                                                const Shape& input,
                                                int64_t rows_needed) {
  const int64_t rows = operation.sizes[0];
  const int64_t width = operation.sizes[1];
  if (!IsTokens(input, width) || rows_needed > rows) {
    return DoesNotFit(operation, input);
  }
  OperationFacts facts;
  facts.output = input;
  facts.parameters = {{operation.name + ".weight", {rows, width}}};
  facts.flops = static_cast<double>(NumElements(input));
  // The rows that are taken, and the sum.
  facts.kept_elements = 2 * NumElements(input);
  return facts;
}

struct AttentionSize {
  int64_t tokens = 0;
  int64_t width = 0;
  int64_t heads = 0;
};

// Of four projections, of queries times keys, and of weights times values.
OperationFacts AttentionFacts(const Operation& operation, const Shape& input,
                              const AttentionSize& size) {
  const auto& [tokens, width, heads] = size;
  OperationFacts facts;
  facts.output = input;
  facts.flops = 8.0 * tokens * width * width + 4.0 * tokens * tokens * width;
  // Queries, keys and values, each also in parts by heads; scores, masked
  // scores and weights; the mixed values and the output.
  const int64_t scores = heads * tokens * tokens;
  facts.kept_elements = 8 * tokens * width + 3 * scores;
  if (operation.probability > 0) facts.kept_elements += 2 * scores;
  return facts;
}

// Width and heads are the operation's sizes.
absl::StatusOr<AttentionSize> SizeOf(const Operation& operation,
                                     const Shape& input) {
  const int64_t width = operation.sizes[0];
  const int64_t heads = operation.sizes[1];
  if (!IsTokens(input, width) || width % heads != 0) {
    return DoesNotFit(operation, input);
  }
  return AttentionSize{input[0], width, heads};
}

}  // namespace

absl::StatusOr<OperationFacts> ExaminePaddingMask(const Operation& operation,
                                                  const Shape& input) {
  if (input.size() != 1) return DoesNotFit(operation, input);
  OperationFacts facts;
  facts.output = input;
  facts.beside = {{DType::kU8, input}};
  facts.kept_elements = NumElements(input);
  return facts;
}

absl::StatusOr<OperationFacts> ExamineTokenEmbedding(const Operation& operation,
                                                     const Shape& input) {
  const int64_t vocabulary = operation.sizes[0];
  const int64_t width = operation.sizes[1];
  if (input.size() != 1) return DoesNotFit(operation, input);
  OperationFacts facts;
  facts.output = {input[0], width};
  facts.parameters = {{operation.name + ".weight", {vocabulary, width}}};
  facts.kept_elements = NumElements(facts.output);
  return facts;
}

absl::StatusOr<OperationFacts> ExamineLearnedPositions(
    const Operation& operation, const Shape& input) {
  return ExamineAddedRows(operation, input, input[0]);
}

// Positions begin behind the padding token's number.
absl::StatusOr<OperationFacts> ExamineMaskedPositions(
    const Operation& operation, const Shape& input) {
  return ExamineAddedRows(operation, input, input[0] + operation.sizes[2] + 1);
}

absl::StatusOr<OperationFacts> ExamineFirstType(const Operation& operation,
                                                const Shape& input) {
  return ExamineAddedRows(operation, input, 1);
}

absl::StatusOr<OperationFacts> ExamineConv1d(const Operation& operation,
                                             const Shape& input) {
  absl::StatusOr<OperationFacts> facts = ExamineTokenMap(operation, input);
  if (!facts.ok()) return facts;
  const int64_t in = operation.sizes[0];
  const int64_t out = operation.sizes[1];
  facts->parameters = WeightAndBias(operation.name, {in, out}, out);
  return facts;
}

absl::StatusOr<OperationFacts> ExamineTiedLinear(const Operation& operation,
                                                 const Shape& input) {
  absl::StatusOr<OperationFacts> facts = ExamineTokenScores(operation, input);
  if (!facts.ok()) return facts;
  const int64_t in = operation.sizes[0];
  const int64_t out = operation.sizes[1];
  facts->borrowed = {{operation.name + ".weight", {out, in}}};
  return facts;
}

absl::StatusOr<OperationFacts> ExamineCausalAttention(
    const Operation& operation, const Shape& input) {
  const absl::StatusOr<AttentionSize> size = SizeOf(operation, input);
  if (!size.ok()) return size.status();
  const int64_t width = size->width;
  OperationFacts facts = AttentionFacts(operation, input, *size);
  facts.parameters = {
      {operation.name + ".c_attn.weight", {width, 3 * width}},
      {operation.name + ".c_attn.bias", {3 * width}},
      {operation.name + ".c_proj.weight", {width, width}},
      {operation.name + ".c_proj.bias", {width}},
  };
  return facts;
}

absl::StatusOr<OperationFacts> ExamineMaskedAttention(
    const Operation& operation, const Shape& input) {
  const absl::StatusOr<AttentionSize> size = SizeOf(operation, input);
  if (!size.ok()) return size.status();
  const int64_t width = size->width;
  OperationFacts facts = AttentionFacts(operation, input, *size);
  // One projection less.
  facts.flops -= 2.0 * size->tokens * width * width;
  facts.kept_elements -= size->tokens * width;
  for (const char* part : {".query", ".key", ".value"}) {
    facts.parameters.push_back(
        {absl::StrCat(operation.name, part, ".weight"), {width, width}});
    facts.parameters.push_back(
        {absl::StrCat(operation.name, part, ".bias"), {width}});
  }
  return facts;
}

}  // namespace paceline
