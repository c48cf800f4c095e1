// What the functions behind the table of operations have in common: a part of
// operation.cc, token_operations.cc and pair_operations.cc.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/model/operation.h"

namespace paceline {

// InvalidArgument: names the operation, its sizes and the input.
absl::Status DoesNotFit(const Operation& operation, const Shape& input);

std::vector<Parameter> WeightAndBias(const std::string& name, Shape weight,
                                     int64_t bias);

// [tokens, width], where `width` is the operation's.
bool IsTokens(const Shape& input, int64_t width);

// A linear map of each token, [tokens, in] to [tokens, out], of an operation
// whose first sizes these are; whose parameters it takes is the caller's to
// say.  Errors: DoesNotFit
absl::StatusOr<OperationFacts> ExamineTokenMap(const Operation& operation,
                                               const Shape& input);
// The same where the output is what the loss takes in.
absl::StatusOr<OperationFacts> ExamineTokenScores(const Operation& operation,
                                                  const Shape& input);

// Of a linear map of the last dimension, from `in` to `out`, which fits.
OperationFacts LinearFacts(const Shape& input, int64_t out);

}  // namespace paceline
