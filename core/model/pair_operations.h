// What the operations of models of sentence pairs take, give, own and cost;
// entries of the table in operation.cc.
#pragma once

#include "absl/status/statusor.h"
#include "core/model/operation.h"

namespace paceline {

absl::StatusOr<OperationFacts> ExamineSplitPair(const Operation& operation,
                                                const Shape& input);
absl::StatusOr<OperationFacts> ExamineLstm(const Operation& operation,
                                           const Shape& input);
absl::StatusOr<OperationFacts> ExamineBidirectionalLstm(
    const Operation& operation, const Shape& input);
absl::StatusOr<OperationFacts> ExamineTakeTarget(const Operation& operation,
                                                 const Shape& input);
absl::StatusOr<OperationFacts> ExamineAdditiveAttention(
    const Operation& operation, const Shape& input);
absl::StatusOr<OperationFacts> ExamineJoinContext(const Operation& operation,
                                                  const Shape& input);
absl::StatusOr<OperationFacts> ExamineJoinLastContext(
    const Operation& operation, const Shape& input);
absl::StatusOr<OperationFacts> ExamineScoreTokens(const Operation& operation,
                                                  const Shape& input);

}  // namespace paceline
