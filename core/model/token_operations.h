// What the operations of language models take, give, own and cost; entries of
// the table in operation.cc.
#pragma once

#include "absl/status/statusor.h"
#include "core/model/operation.h"

namespace paceline {

absl::StatusOr<OperationFacts> ExaminePaddingMask(const Operation& operation,
                                                  const Shape& input);
absl::StatusOr<OperationFacts> ExamineTokenEmbedding(const Operation& operation,
                                                     const Shape& input);
absl::StatusOr<OperationFacts> ExamineLearnedPositions(
    const Operation& operation, const Shape& input);
absl::StatusOr<OperationFacts> ExamineMaskedPositions(
    const Operation& operation, const Shape& input);
absl::StatusOr<OperationFacts> ExamineFirstType(const Operation& operation,
                                                const Shape& input);
absl::StatusOr<OperationFacts> ExamineConv1d(const Operation& operation,
                                             const Shape& input);
absl::StatusOr<OperationFacts> ExamineTiedLinear(const Operation& operation,
                                                 const Shape& input);
absl::StatusOr<OperationFacts> ExamineCausalAttention(
    const Operation& operation, const Shape& input);
absl::StatusOr<OperationFacts> ExamineMaskedAttention(
    const Operation& operation, const Shape& input);

}  // namespace paceline
