#include "core/model/operation.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace paceline {
namespace {

// InvalidArgument: names the operation, its sizes and the input.
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

// [tokens, width], where `width` is the operation's.
bool IsTokens(const Shape& input, int64_t width) {
  return input.size() == 2 && input[1] == width;
}

// What keeps its output, and nothing else.
OperationFacts Keeping(Shape output) {
  OperationFacts facts;
  facts.kept_elements = NumElements(output);
  facts.output = std::move(output);
  return facts;
}

// Of a linear map of the last dimension, from `in` to `out`, which fits.
OperationFacts LinearFacts(const Shape& input, int64_t out) {
  Shape output = input;
  output.back() = out;
  OperationFacts facts = Keeping(std::move(output));
  facts.flops = 2.0 * NumElements(input) * out;
  return facts;
}

// A linear map of each token, [tokens, in] to [tokens, out], of an operation
// whose first sizes these are; whose parameters it takes is the caller's to
// say.  Errors: DoesNotFit
absl::StatusOr<OperationFacts> ExamineTokenMap(const Operation& operation,
                                               const Shape& input) {
  if (!IsTokens(input, operation.sizes[0])) return DoesNotFit(operation, input);
  return LinearFacts(input, operation.sizes[1]);
}

// The same where the output is what the loss takes in.
absl::StatusOr<OperationFacts> ExamineTokenScores(const Operation& operation,
                                                  const Shape& input) {
  absl::StatusOr<OperationFacts> facts = ExamineTokenMap(operation, input);
  // The scores, and the loss's logarithms of probabilities, which are many.
  if (facts.ok()) facts->kept_elements *= 2;
  return facts;
}

OperationFacts SameShape(const Shape& input, double flops_an_element,
                         int64_t kept_an_element) {
  const int64_t elements = NumElements(input);
  OperationFacts facts;
  facts.output = input;
  facts.flops = flops_an_element * elements;
  facts.kept_elements = kept_an_element * elements;
  return facts;
}

using Examine = absl::StatusOr<OperationFacts> (*)(const Operation&,
                                                   const Shape&);

absl::StatusOr<OperationFacts> Flatten(const Operation&, const Shape& input) {
  OperationFacts facts;
  facts.output = {NumElements(input)};
  return facts;
}

absl::StatusOr<OperationFacts> Linear(const Operation& operation,
                                      const Shape& input) {
  const int64_t in = operation.sizes[0];
  const int64_t out = operation.sizes[1];
  if (input.empty() || input.back() != in) return DoesNotFit(operation, input);
  OperationFacts facts = LinearFacts(input, out);
  facts.parameters = WeightAndBias(operation.name, {out, in}, out);
  return facts;
}

absl::StatusOr<OperationFacts> Elementwise(const Operation&,
                                           const Shape& input) {
  return SameShape(input, 1, 1);
}

// About ten operations an erf or a tanh.
absl::StatusOr<OperationFacts> Gelu(const Operation&, const Shape& input) {
  return SameShape(input, 10, 1);
}

// The mask and the product.
absl::StatusOr<OperationFacts> Dropout(const Operation& operation,
                                       const Shape& input) {
  return operation.probability > 0 ? SameShape(input, 2, 2)
                                   : SameShape(input, 0, 0);
}

// Edge of the output of a window that slides over `input` pixels.
int64_t Slide(int64_t input, int64_t kernel, int64_t stride, int64_t padding) {
  const int64_t room = input + 2 * padding - kernel;
  return room < 0 ? 0 : room / stride + 1;
}

absl::StatusOr<OperationFacts> Conv2dNoBias(const Operation& operation,
                                            const Shape& input) {
  const int64_t in = operation.sizes[0];
  const int64_t out = operation.sizes[1];
  const int64_t kernel = operation.sizes[2];
  const int64_t stride = operation.sizes[3];
  const int64_t padding = operation.sizes[4];
  if (input.size() != 3 || input[0] != in) return DoesNotFit(operation, input);
  OperationFacts facts = Keeping({out, Slide(input[1], kernel, stride, padding),
                                  Slide(input[2], kernel, stride, padding)});
  if (facts.kept_elements < 1) return DoesNotFit(operation, input);
  facts.parameters = {{operation.name + ".weight", {out, in, kernel, kernel}}};
  facts.flops = 2.0 * in * kernel * kernel * facts.kept_elements;
  return facts;
}

absl::StatusOr<OperationFacts> Conv2d(const Operation& operation,
                                      const Shape& input) {
  absl::StatusOr<OperationFacts> facts = Conv2dNoBias(operation, input);
  if (facts.ok()) {
    facts->parameters.push_back(
        {operation.name + ".bias", {operation.sizes[1]}});
  }
  return facts;
}

std::vector<Parameter> BatchNormParameters(const std::string& name,
                                           int64_t channels) {
  std::vector<Parameter> parameters = WeightAndBias(name, {channels}, channels);
  parameters.push_back({name + ".running_mean", {channels}, false});
  parameters.push_back({name + ".running_var", {channels}, false});
  parameters.push_back({name + ".num_batches_tracked", {}, false, DType::kI64});
  return parameters;
}

absl::StatusOr<OperationFacts> BatchNorm2d(const Operation& operation,
                                           const Shape& input) {
  const int64_t channels = operation.sizes[0];
  if (input.size() != 3 || input[0] != channels) {
    return DoesNotFit(operation, input);
  }
  OperationFacts facts = SameShape(input, 8, 1);
  facts.parameters = BatchNormParameters(operation.name, channels);
  return facts;
}

absl::StatusOr<OperationFacts> MaxPool2d(const Operation& operation,
                                         const Shape& input) {
  const int64_t kernel = operation.sizes[0];
  const int64_t stride = operation.sizes[1];
  const int64_t padding = operation.sizes[2];
  // LibTorch refuses more: a window could lie wholly in the padding.
  if (input.size() != 3 || padding > kernel / 2) {
    return DoesNotFit(operation, input);
  }
  OperationFacts facts;
  facts.output = {input[0], Slide(input[1], kernel, stride, padding),
                  Slide(input[2], kernel, stride, padding)};
  const int64_t elements = NumElements(facts.output);
  if (elements < 1) return DoesNotFit(operation, input);
  facts.flops = 1.0 * kernel * kernel * elements;
  facts.kept_elements = 3 * elements;  // the output and 64-bit indices
  return facts;
}

absl::StatusOr<OperationFacts> AdaptiveAvgPool2d(const Operation& operation,
                                                 const Shape& input) {
  const int64_t edge = operation.sizes[0];
  if (input.size() != 3) return DoesNotFit(operation, input);
  OperationFacts facts = Keeping({input[0], edge, edge});
  facts.flops = std::max(NumElements(input), facts.kept_elements);
  return facts;
}

absl::StatusOr<OperationFacts> LayerNorm(const Operation& operation,
                                         const Shape& input) {
  const int64_t width = operation.sizes[0];
  if (input.empty() || input.back() != width) {
    return DoesNotFit(operation, input);
  }
  OperationFacts facts = SameShape(input, 8, 1);
  facts.parameters = WeightAndBias(operation.name, {width}, width);
  return facts;
}

absl::StatusOr<OperationFacts> PatchEmbedding(const Operation& operation,
                                              const Shape& input) {
  const int64_t channels = operation.sizes[0];
  const int64_t width = operation.sizes[1];
  const int64_t patch = operation.sizes[2];
  if (input.size() != 3 || input[0] != channels || input[1] % patch != 0 ||
      input[2] % patch != 0) {
    return DoesNotFit(operation, input);
  }
  OperationFacts facts =
      Keeping({(input[1] / patch) * (input[2] / patch), width});
  facts.parameters =
      WeightAndBias(operation.name, {width, channels, patch, patch}, width);
  facts.flops = 2.0 * NumElements(input) * width;
  return facts;
}

absl::StatusOr<OperationFacts> ClassToken(const Operation& operation,
                                          const Shape& input) {
  const int64_t width = operation.sizes[0];
  if (!IsTokens(input, width)) return DoesNotFit(operation, input);
  OperationFacts facts = Keeping({input[0] + 1, width});
  facts.parameters = {{operation.name, {1, 1, width}}};
  return facts;
}

absl::StatusOr<OperationFacts> PositionEmbedding(const Operation& operation,
                                                 const Shape& input) {
  const int64_t tokens = operation.sizes[0];
  const int64_t width = operation.sizes[1];
  if (input != Shape{tokens, width}) return DoesNotFit(operation, input);
  OperationFacts facts = SameShape(input, 1, 1);
  facts.parameters = {{operation.name, {1, tokens, width}}};
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

// The parts "weight" and "bias" of the projections `in` and `out`; queries,
// keys and values are one projection, whose weight has the shape `fused`.
void AddFusedProjections(const Operation& operation, const char* in,
                         const char* out, Shape fused, OperationFacts& facts) {
  const int64_t width = operation.sizes[0];
  facts.parameters = {
      {absl::StrCat(operation.name, in, "weight"), std::move(fused)},
      {absl::StrCat(operation.name, in, "bias"), {3 * width}},
      {absl::StrCat(operation.name, out, "weight"), {width, width}},
      {absl::StrCat(operation.name, out, "bias"), {width}},
  };
}

absl::StatusOr<OperationFacts> Attention(const Operation& operation,
                                         const Shape& input) {
  const absl::StatusOr<AttentionSize> size = SizeOf(operation, input);
  if (!size.ok()) return size.status();
  OperationFacts facts = AttentionFacts(operation, input, *size);
  // Nothing is masked.
  facts.kept_elements -= size->heads * size->tokens * size->tokens;
  const bool torch_names = operation.kind == "multihead_attention";
  AddFusedProjections(operation, torch_names ? ".in_proj_" : ".qkv.",
                      torch_names ? ".out_proj." : ".proj.",
                      {3 * size->width, size->width}, facts);
  return facts;
}

absl::StatusOr<OperationFacts> ResidualBegin(const Operation&,
                                             const Shape& input) {
  return SameShape(input, 0, 0);
}

absl::StatusOr<OperationFacts> ResidualProject(const Operation& operation,
                                               const Shape& input) {
  const int64_t out = operation.sizes[1];
  const absl::StatusOr<OperationFacts> convolution =
      Conv2dNoBias({"",
                    operation.name + ".0",
                    {operation.sizes[0], out, 1, operation.sizes[2], 0}},
                   input);
  if (!convolution.ok()) return DoesNotFit(operation, input);
  const absl::StatusOr<OperationFacts> norm =
      BatchNorm2d({"", operation.name + ".1", {out}}, convolution->output);
  if (!norm.ok()) return DoesNotFit(operation, input);
  OperationFacts facts;
  facts.output = input;
  facts.parameters = convolution->parameters;
  facts.parameters.insert(facts.parameters.end(), norm->parameters.begin(),
                          norm->parameters.end());
  facts.flops = convolution->flops + norm->flops;
  facts.kept_elements = convolution->kept_elements + norm->kept_elements;
  return facts;
}

absl::StatusOr<OperationFacts> TakeToken(const Operation& operation,
                                         const Shape& input) {
  if (input.size() != 2 || operation.sizes[0] >= input[0]) {
    return DoesNotFit(operation, input);
  }
  return Keeping({input[1]});
}

// --- Language models ---

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

absl::StatusOr<OperationFacts> ExaminePaddingMask(const Operation& operation,
                                                  const Shape& input) {
  if (input.size() != 1) return DoesNotFit(operation, input);
  OperationFacts facts = Keeping(input);
  facts.beside = {{DType::kU8, input}};
  return facts;
}

absl::StatusOr<OperationFacts> ExamineTokenEmbedding(const Operation& operation,
                                                     const Shape& input) {
  const int64_t vocabulary = operation.sizes[0];
  const int64_t width = operation.sizes[1];
  if (input.size() != 1) return DoesNotFit(operation, input);
  OperationFacts facts = Keeping({input[0], width});
  facts.parameters = {{operation.name + ".weight", {vocabulary, width}}};
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
  OperationFacts facts = AttentionFacts(operation, input, *size);
  AddFusedProjections(operation, ".c_attn.", ".c_proj.",
                      {size->width, 3 * size->width}, facts);
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

// --- Models of sentence pairs ---

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
  // Again, a sample after the other.
  OperationFacts facts = Keeping({input[0], operation.sizes[1]});
  AddDirection(operation, input[0], "", facts);
  return facts;
}

absl::StatusOr<OperationFacts> ExamineBidirectionalLstm(
    const Operation& operation, const Shape& input) {
  if (!IsTokens(input, operation.sizes[0])) return DoesNotFit(operation, input);
  OperationFacts facts = Keeping({input[0], 2 * operation.sizes[1]});
  AddDirection(operation, input[0], "", facts);
  AddDirection(operation, input[0], "_reverse", facts);
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

absl::StatusOr<OperationFacts> ExamineJoinLastContext(
    const Operation& operation, const Shape& input) {
  const int64_t width = operation.sizes[0];
  if (!IsTokens(input, width)) return DoesNotFit(operation, input);
  OperationFacts facts = Keeping({input[0], 2 * width});
  facts.taken = {{DType::kF32, input}};
  return facts;
}

absl::StatusOr<OperationFacts> ExamineJoinContext(const Operation& operation,
                                                  const Shape& input) {
  absl::StatusOr<OperationFacts> facts =
      ExamineJoinLastContext(operation, input);
  if (facts.ok()) facts->beside = facts->taken;
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

struct Kind {
  const char* name;
  size_t sizes;  // how many
  Examine examine;
};

constexpr Kind kKinds[] = {
    {"flatten", 0, Flatten},
    {"linear", 2, Linear},
    {"relu", 0, Elementwise},
    {"gelu", 0, Gelu},
    {"conv2d", 5, Conv2d},
    {"conv2d_no_bias", 5, Conv2dNoBias},
    {"batch_norm2d", 1, BatchNorm2d},
    {"max_pool2d", 3, MaxPool2d},
    {"adaptive_avg_pool2d", 1, AdaptiveAvgPool2d},
    {"dropout", 0, Dropout},
    {"layer_norm", 1, LayerNorm},
    {"patch_embedding", 3, PatchEmbedding},
    {"class_token", 1, ClassToken},
    {"position_embedding", 2, PositionEmbedding},
    {"attention", 2, Attention},
    {"multihead_attention", 2, Attention},
    {"residual_begin", 0, ResidualBegin},
    {"residual_project", 3, ResidualProject},
    {"residual_end", 0, Elementwise},
    {"take_token", 1, TakeToken},
    {"tanh", 0, Gelu},
    {"gelu_new", 0, Gelu},
    {"layer_norm_e5", 1, LayerNorm},
    {"layer_norm_e12", 1, LayerNorm},
    {"padding_mask", 1, ExaminePaddingMask},
    {"token_embedding", 2, ExamineTokenEmbedding},
    {"padded_embedding", 3, ExamineTokenEmbedding},
    {"learned_positions", 2, ExamineLearnedPositions},
    {"masked_positions", 3, ExamineMaskedPositions},
    {"first_type", 2, ExamineFirstType},
    {"conv1d", 2, ExamineConv1d},
    {"causal_attention", 2, ExamineCausalAttention},
    {"masked_attention", 2, ExamineMaskedAttention},
    {"tied_linear", 2, ExamineTiedLinear},
    {"split_pair", 1, ExamineSplitPair},
    {"lstm", 2, ExamineLstm},
    {"bidirectional_lstm", 2, ExamineBidirectionalLstm},
    {"take_target", 1, ExamineTakeTarget},
    {"additive_attention", 1, ExamineAdditiveAttention},
    {"join_context", 1, ExamineJoinContext},
    {"join_last_context", 1, ExamineJoinLastContext},
    {"score_tokens", 2, ExamineScoreTokens},
};

// Padding, an index and a token may be 0; everything else is a size.
bool SizesArePossible(const Operation& operation) {
  constexpr const char* kLastMayBeZero[] = {
      "conv2d",       "conv2d_no_bias",   "max_pool2d",       "take_token",
      "padding_mask", "padded_embedding", "masked_positions", "split_pair"};
  const bool last_may_be_zero =
      std::any_of(std::begin(kLastMayBeZero), std::end(kLastMayBeZero),
                  [&](const char* kind) { return operation.kind == kind; });
  const size_t sizes = operation.sizes.size();
  for (size_t i = 0; i < sizes; ++i) {
    const int64_t least = last_may_be_zero && i + 1 == sizes ? 0 : 1;
    if (operation.sizes[i] < least) return false;
  }
  return operation.probability >= 0 && operation.probability < 1;
}

}  // namespace

bool IsInPlace(const Operation& operation, const Operation& before) {
  if (operation.kind != "relu") return false;
  const std::string& kind = before.kind;
  return kind == "conv2d" || kind == "conv2d_no_bias" || kind == "linear" ||
         kind == "batch_norm2d" || kind == "residual_end";
}

absl::StatusOr<OperationFacts> ExamineOperation(const Operation& operation,
                                                const Shape& input) {
  const auto kind =
      std::find_if(std::begin(kKinds), std::end(kKinds),
                   [&](const Kind& k) { return operation.kind == k.name; });
  if (kind == std::end(kKinds)) {
    return absl::InvalidArgumentError(
        absl::StrCat("unknown operation '", operation.kind, "'"));
  }
  if (operation.sizes.size() != kind->sizes) {
    return absl::InvalidArgumentError(absl::StrCat(operation.kind, " takes ",
                                                   kind->sizes, " sizes, got ",
                                                   operation.sizes.size()));
  }
  if (NumElements(input) < 1 || !SizesArePossible(operation)) {
    return DoesNotFit(operation, input);
  }
  return kind->examine(operation, input);
}

}  // namespace paceline
