#include "core/model/operation.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/errors.h"
#include "core/base/text.h"

namespace paceline {
namespace {

// InvalidArgument: names the operation, its sizes and the input.
absl::Status DoesNotFit(const Operation& operation, const Shape& input) {
  return InvalidArgument(operation.kind, operation.name.empty() ? "" : " ",
                         operation.name, "(",
                         absl::StrJoin(operation.sizes, ", "),
                         ") does not fit an input of shape ", ShapeText(input));
}

std::vector<Parameter> WeightAndBias(const std::string& name, Shape weight,
                                     int64_t bias) {
  return {{name + ".weight", std::move(weight)}, {name + ".bias", {bias}}};
}

// The facts of an operation that keeps its output, and nothing else.
OperationFacts Keeping(Shape output) {
  OperationFacts facts;
  facts.kept_elements = NumElements(output);
  facts.output = std::move(output);
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

// The input is of the kind's form (kKinds).  Where it does not fit all the
// same, the result has no output, or one of no elements.
using Examine = OperationFacts (*)(const Operation&, const Shape&);

OperationFacts Flatten(const Operation&, const Shape& input) {
  OperationFacts facts;
  facts.output = {NumElements(input)};
  return facts;
}

// A linear map of the last dimension.
OperationFacts Linear(const Operation& operation, const Shape& input) {
  const int64_t in = operation.sizes[0];
  const int64_t out = operation.sizes[1];
  Shape output = input;
  output.back() = out;
  OperationFacts facts = Keeping(std::move(output));
  facts.parameters = WeightAndBias(operation.name, {out, in}, out);
  facts.flops = 2.0 * NumElements(input) * out;
  return facts;
}

OperationFacts Conv1d(const Operation& operation, const Shape& input) {
  OperationFacts facts = Linear(operation, input);
  std::ranges::reverse(facts.parameters[0].shape);
  return facts;
}

// A linear map of each token, whose output is what the loss takes in.
OperationFacts ScoreTokens(const Operation& operation, const Shape& input) {
  OperationFacts facts = Linear(operation, input);
  // The scores, and the loss's logarithms of probabilities, which are many.
  facts.kept_elements *= 2;
  return facts;
}

OperationFacts TiedLinear(const Operation& operation, const Shape& input) {
  OperationFacts facts = ScoreTokens(operation, input);
  facts.parameters.pop_back();
  facts.borrowed = std::exchange(facts.parameters, {});
  return facts;
}

OperationFacts Elementwise(const Operation&, const Shape& input) {
  return SameShape(input, 1, 1);
}

// About ten operations an erf or a tanh.
OperationFacts Gelu(const Operation&, const Shape& input) {
  return SameShape(input, 10, 1);
}

// The mask and the product.
OperationFacts Dropout(const Operation& operation, const Shape& input) {
  return operation.probability > 0 ? SameShape(input, 2, 2)
                                   : SameShape(input, 0, 0);
}

// Edge of the output of a window that slides over `input` pixels.
int64_t Slide(int64_t input, int64_t kernel, int64_t stride, int64_t padding) {
  const int64_t room = input + 2 * padding - kernel;
  return room < 0 ? 0 : room / stride + 1;
}

OperationFacts Conv2dNoBias(const Operation& operation, const Shape& input) {
  const int64_t in = operation.sizes[0];
  const int64_t out = operation.sizes[1];
  const int64_t kernel = operation.sizes[2];
  const int64_t stride = operation.sizes[3];
  const int64_t padding = operation.sizes[4];
  OperationFacts facts = Keeping({out, Slide(input[1], kernel, stride, padding),
                                  Slide(input[2], kernel, stride, padding)});
  facts.parameters = {{operation.name + ".weight", {out, in, kernel, kernel}}};
  facts.flops = 2.0 * in * kernel * kernel * facts.kept_elements;
  return facts;
}

OperationFacts Conv2d(const Operation& operation, const Shape& input) {
  OperationFacts facts = Conv2dNoBias(operation, input);
  facts.parameters.push_back({operation.name + ".bias", {operation.sizes[1]}});
  return facts;
}

// Scale and shift.
OperationFacts LayerNorm(const Operation& operation, const Shape& input) {
  const int64_t width = operation.sizes[0];
  OperationFacts facts = SameShape(input, 8, 1);
  facts.parameters = WeightAndBias(operation.name, {width}, width);
  return facts;
}

OperationFacts BatchNorm2d(const Operation& operation, const Shape& input) {
  const int64_t channels = operation.sizes[0];
  const std::string& name = operation.name;
  OperationFacts facts = LayerNorm(operation, input);
  facts.parameters.push_back({name + ".running_mean", {channels}, false});
  facts.parameters.push_back({name + ".running_var", {channels}, false});
  facts.parameters.push_back(
      {name + ".num_batches_tracked", {}, false, DType::kI64});
  return facts;
}

OperationFacts MaxPool2d(const Operation& operation, const Shape& input) {
  const int64_t kernel = operation.sizes[0];
  const int64_t stride = operation.sizes[1];
  const int64_t padding = operation.sizes[2];
  // LibTorch refuses more: a window could lie wholly in the padding.
  if (padding > kernel / 2) return {};
  OperationFacts facts;
  facts.output = {input[0], Slide(input[1], kernel, stride, padding),
                  Slide(input[2], kernel, stride, padding)};
  const int64_t elements = NumElements(facts.output);
  facts.flops = 1.0 * kernel * kernel * elements;
  facts.kept_elements = 3 * elements;  // the output and 64-bit indices
  return facts;
}

OperationFacts AdaptiveAvgPool2d(const Operation& operation,
                                 const Shape& input) {
  const int64_t edge = operation.sizes[0];
  OperationFacts facts = Keeping({input[0], edge, edge});
  facts.flops = std::max(NumElements(input), facts.kept_elements);
  return facts;
}

OperationFacts PatchEmbedding(const Operation& operation, const Shape& input) {
  const int64_t channels = operation.sizes[0];
  const int64_t width = operation.sizes[1];
  const int64_t patch = operation.sizes[2];
  if (input[1] % patch != 0 || input[2] % patch != 0) return {};
  OperationFacts facts =
      Keeping({(input[1] / patch) * (input[2] / patch), width});
  facts.parameters =
      WeightAndBias(operation.name, {width, channels, patch, patch}, width);
  facts.flops = 2.0 * NumElements(input) * width;
  return facts;
}

OperationFacts ClassToken(const Operation& operation, const Shape& input) {
  const int64_t width = operation.sizes[0];
  OperationFacts facts = Keeping({input[0] + 1, width});
  facts.parameters = {{operation.name, {1, 1, width}}};
  return facts;
}

OperationFacts PositionEmbedding(const Operation& operation,
                                 const Shape& input) {
  if (input != operation.sizes) return {};
  OperationFacts facts = SameShape(input, 1, 1);
  facts.parameters = {{operation.name, {1, input[0], input[1]}}};
  return facts;
}

// The facts of four projections, of queries times keys, and of weights times
// values.  Heads are width / heads wide where the operation has no third size.
OperationFacts AttentionFacts(const Operation& operation, const Shape& input) {
  const int64_t tokens = input[0];
  const int64_t width = operation.sizes[0];
  const int64_t heads = operation.sizes[1];
  const int64_t inner =
      operation.sizes.size() > 2 ? heads * operation.sizes[2] : width;
  OperationFacts facts;
  facts.output = input;
  facts.flops = 8.0 * tokens * width * inner + 4.0 * tokens * tokens * inner;
  // Queries, keys and values, each also in parts by heads; scores, masked
  // scores and weights; the mixed values and the output.
  const int64_t scores = heads * tokens * tokens;
  facts.kept_elements = tokens * (7 * inner + width) + 3 * scores;
  if (operation.probability > 0) facts.kept_elements += 2 * scores;
  return facts;
}

// The parts "weight" and "bias" of the projections `in` and `out`; queries,
// keys and values are one projection, whose weight has the shape `fused`.
//   inner  numbers of a token in all heads
void AddFusedProjections(const Operation& operation, const char* in,
                         const char* out, Shape fused, int64_t inner,
                         OperationFacts& facts) {
  const int64_t width = operation.sizes[0];
  facts.parameters = {
      {absl::StrCat(operation.name, in, "weight"), std::move(fused)},
      {absl::StrCat(operation.name, in, "bias"), {3 * inner}},
      {absl::StrCat(operation.name, out, "weight"), {width, inner}},
      {absl::StrCat(operation.name, out, "bias"), {width}},
  };
}

OperationFacts Attention(const Operation& operation, const Shape& input) {
  const int64_t width = operation.sizes[0];
  const int64_t inner = operation.sizes[1] * operation.sizes[2];
  OperationFacts facts = AttentionFacts(operation, input);
  // Nothing is masked.
  facts.kept_elements -= operation.sizes[1] * input[0] * input[0];
  const bool torch_names = operation.kind == "multihead_attention";
  AddFusedProjections(operation, torch_names ? ".in_proj_" : ".qkv.",
                      torch_names ? ".out_proj." : ".proj.", {3 * inner, width},
                      inner, facts);
  return facts;
}

OperationFacts ResidualBegin(const Operation&, const Shape& input) {
  return SameShape(input, 0, 0);
}

OperationFacts ResidualProject(const Operation& operation, const Shape& input) {
  const int64_t out = operation.sizes[1];
  const std::string& name = operation.name;
  const OperationFacts convolution = Conv2dNoBias(
      {"", name + ".0", {operation.sizes[0], out, 1, operation.sizes[2], 0}},
      input);
  OperationFacts facts =
      BatchNorm2d({"", name + ".1", {out}}, convolution.output);
  facts.output = input;
  facts.parameters.insert(facts.parameters.begin(),
                          convolution.parameters.begin(),
                          convolution.parameters.end());
  facts.flops += convolution.flops;
  facts.kept_elements += convolution.kept_elements;
  return facts;
}

OperationFacts TakeToken(const Operation& operation, const Shape& input) {
  if (operation.sizes[0] >= input[0]) return {};
  return Keeping({input[1]});
}

// --- Language models ---

// Adds a row of a table to every token: the first one, or that of its position.
// Masked positions begin behind the padding token's number.
OperationFacts AddedRows(const Operation& operation, const Shape& input) {
  const int64_t rows = operation.sizes[0];
  const int64_t before =
      operation.kind == "masked_positions" ? operation.sizes[2] + 1 : 0;
  if (operation.kind != "first_type" && before + input[0] > rows) return {};
  OperationFacts facts;
  facts.output = input;
  facts.parameters = {{operation.name + ".weight", {rows, input[1]}}};
  facts.flops = static_cast<double>(NumElements(input));
  // The rows that are taken, and the sum.
  facts.kept_elements = 2 * NumElements(input);
  return facts;
}

OperationFacts PaddingMask(const Operation&, const Shape& input) {
  OperationFacts facts = Keeping(input);
  facts.beside = {{DType::kU8, input}};
  return facts;
}

OperationFacts TokenEmbedding(const Operation& operation, const Shape& input) {
  const int64_t vocabulary = operation.sizes[0];
  const int64_t width = operation.sizes[1];
  OperationFacts facts = Keeping({input[0], width});
  facts.parameters = {{operation.name + ".weight", {vocabulary, width}}};
  return facts;
}

OperationFacts CausalAttention(const Operation& operation, const Shape& input) {
  const int64_t width = operation.sizes[0];
  OperationFacts facts = AttentionFacts(operation, input);
  AddFusedProjections(operation, ".c_attn.", ".c_proj.", {width, 3 * width},
                      width, facts);
  return facts;
}

OperationFacts MaskedAttention(const Operation& operation, const Shape& input) {
  const int64_t tokens = input[0];
  const int64_t width = operation.sizes[0];
  OperationFacts facts = AttentionFacts(operation, input);
  // One projection less.
  facts.flops -= 2.0 * tokens * width * width;
  facts.kept_elements -= tokens * width;
  for (const char* part : {".query", ".key", ".value"}) {
    for (Parameter& parameter :
         WeightAndBias(operation.name + part, {width, width}, width)) {
      facts.parameters.push_back(std::move(parameter));
    }
  }
  return facts;
}

// --- Models of sentence pairs ---

// About ten operations an exponential.
constexpr double kFlopsAnExponential = 10;

// Adds one direction of an LSTM; the caller sets the output.
void AddDirection(const Operation& operation, int64_t tokens,
                  const std::string& suffix, OperationFacts& facts) {
  const int64_t in = operation.sizes[0];
  const int64_t width = operation.sizes[1];
  const int64_t gates = 4 * width;
  const std::pair<const char*, Shape> parameters[] = {
      {".weight_ih_l0", {gates, in}},
      {".weight_hh_l0", {gates, width}},
      {".bias_ih_l0", {gates}},
      {".bias_hh_l0", {gates}}};
  for (const auto& [name, shape] : parameters) {
    facts.parameters.push_back(
        {absl::StrCat(operation.name, name, suffix), shape});
  }
  facts.flops += 2.0 * tokens * gates * (in + width) +
                 (kFlopsAnExponential + 2) * tokens * gates;
  // The input in the order of time, the gates, the cells and what was before
  // them, their tanh, and the output.
  facts.kept_elements += tokens * (in + gates + 3 * width);
}

OperationFacts SplitPair(const Operation&, const Shape& input) {
  if (input[0] % 2 != 0) return {};
  OperationFacts facts;
  facts.output = {input[0] / 2};
  facts.beside = {{DType::kU8, facts.output}, {DType::kI64, facts.output}};
  // Both halves, eight bytes each; and the mask.
  facts.kept_elements = 2 * input[0] + facts.output[0];
  return facts;
}

// One direction or two; the output is kept again, a sample after the other.
OperationFacts Lstm(const Operation& operation, const Shape& input) {
  const bool both = operation.kind == "bidirectional_lstm";
  OperationFacts facts =
      Keeping({input[0], (both ? 2 : 1) * operation.sizes[1]});
  AddDirection(operation, input[0], "", facts);
  if (both) AddDirection(operation, input[0], "_reverse", facts);
  return facts;
}

OperationFacts TakeTarget(const Operation&, const Shape& input) {
  OperationFacts facts;
  facts.output = {input[0]};
  facts.taken = {{DType::kI64, facts.output}};
  facts.beside = {{DType::kF32, input}};
  return facts;
}

OperationFacts AdditiveAttention(const Operation& operation,
                                 const Shape& input) {
  const int64_t width = operation.sizes[0];
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

OperationFacts JoinLastContext(const Operation&, const Shape& input) {
  OperationFacts facts = Keeping({input[0], 2 * input[1]});
  facts.taken = {{DType::kF32, input}};
  return facts;
}

OperationFacts JoinContext(const Operation& operation, const Shape& input) {
  OperationFacts facts = JoinLastContext(operation, input);
  facts.beside = facts.taken;
  return facts;
}

// The form that an input must have.
struct Form {
  size_t rank = 0;         // 0: any
  int size = -1;           // the operation's, which a dimension equals
  bool is_first = false;   // that dimension; else it is the last
  bool has_heads = false;  // sizes[1] of them divide the width
};

constexpr Form kAny = {};
constexpr Form kWide = {.size = 0};                  // [..., sizes[0]]
constexpr Form kImage = {3};                         // [channels, h, w]
constexpr Form kPlanes = {3, 0, /*is_first=*/true};  // [sizes[0], h, w]
constexpr Form kTokens = {2, 0};                     // [tokens, sizes[0]]
constexpr Form kHeads = {2, 0, false, true};         // the same
constexpr Form kRows = {2, 1};                       // [tokens, sizes[1]]
constexpr Form kVectors = {2};                       // [tokens, width]
constexpr Form kNumbers = {1};                       // [tokens]

bool HasForm(const Form& form, const std::vector<int64_t>& sizes,
             const Shape& input) {
  if (form.rank > 0 && input.size() != form.rank) return false;
  if (form.size < 0) return true;
  if (input.empty()) return false;
  const int64_t dimension = form.is_first ? input.front() : input.back();
  return dimension == sizes[form.size] &&
         (!form.has_heads || sizes[0] % sizes[1] == 0);
}

struct Kind {
  const char* name;
  size_t sizes;  // how many
  Form form;
  Examine examine;
  int traits = 0;  // OperationTrait
};

constexpr Kind kKinds[] = {
    {"flatten", 0, kAny, Flatten},
    {"linear", 2, kWide, Linear,
     kMultiplies | kHasLinearMaps | kIsOverwritable},
    {"relu", 0, kAny, Elementwise},
    {"gelu", 0, kAny, Gelu},
    {"conv2d", 5, kPlanes, Conv2d,
     kMultiplies | kIsOverwritable | kLastMayBeZero},
    {"conv2d_no_bias", 5, kPlanes, Conv2dNoBias,
     kIsOverwritable | kLastMayBeZero},
    {"batch_norm2d", 1, kPlanes, BatchNorm2d, kIsOverwritable},
    {"max_pool2d", 3, kImage, MaxPool2d, kLastMayBeZero},
    {"adaptive_avg_pool2d", 1, kImage, AdaptiveAvgPool2d},
    {"dropout", 0, kAny, Dropout},
    {"layer_norm", 1, kWide, LayerNorm},
    {"patch_embedding", 3, kPlanes, PatchEmbedding, kMultiplies},
    {"class_token", 1, kTokens, ClassToken, kIsTable},
    {"position_embedding", 2, kRows, PositionEmbedding, kIsTable},
    {"attention", 3, kTokens, Attention, kMultiplies | kHasLinearMaps},
    {"multihead_attention", 3, kTokens, Attention, kHasLinearMaps},
    {"residual_begin", 0, kAny, ResidualBegin},
    {"residual_project", 3, kPlanes, ResidualProject},
    {"residual_end", 0, kAny, Elementwise, kIsOverwritable},
    {"take_token", 1, kVectors, TakeToken, kLastMayBeZero},
    {"tanh", 0, kAny, Gelu},
    {"gelu_new", 0, kAny, Gelu},
    {"layer_norm_e5", 1, kWide, LayerNorm},
    {"layer_norm_e12", 1, kWide, LayerNorm},
    {"padding_mask", 1, kNumbers, PaddingMask, kLastMayBeZero},
    {"token_embedding", 2, kNumbers, TokenEmbedding, kIsTable},
    {"padded_embedding", 3, kNumbers, TokenEmbedding,
     kIsTable | kLastMayBeZero},
    {"learned_positions", 2, kRows, AddedRows, kIsTable},
    {"masked_positions", 3, kRows, AddedRows, kIsTable | kLastMayBeZero},
    {"first_type", 2, kRows, AddedRows, kIsTable},
    {"conv1d", 2, kTokens, Conv1d, kMultiplies | kHasLinearMaps | kIsInFirst},
    {"causal_attention", 2, kHeads, CausalAttention,
     kMultiplies | kHasLinearMaps | kIsInFirst},
    {"masked_attention", 2, kHeads, MaskedAttention,
     kMultiplies | kHasLinearMaps},
    {"tied_linear", 2, kTokens, TiedLinear, kMultiplies},
    {"split_pair", 1, kNumbers, SplitPair, kLastMayBeZero},
    {"lstm", 2, kTokens, Lstm, kMultiplies | kIsRecurrent},
    {"bidirectional_lstm", 2, kTokens, Lstm, kMultiplies | kIsRecurrent},
    {"take_target", 1, kTokens, TakeTarget},
    {"additive_attention", 1, kTokens, AdditiveAttention, kMultiplies},
    {"join_context", 1, kTokens, JoinContext},
    {"join_last_context", 1, kTokens, JoinLastContext},
    {"score_tokens", 2, kTokens, ScoreTokens, kMultiplies},
};

// Null when there is no such kind.
const Kind* FindKind(const std::string& name) {
  return FindNamed(kKinds, name, &Kind::name);
}

void AddAdapters(const Operation& operation, const Shape& input,
                 OperationFacts& facts) {
  const auto& [beside, rank, scale] = operation.adapters;
  if (beside.empty()) return;
  const int64_t rows = NumElements(input) / input.back();
  for (const LinearMap& map : LinearMapsOf(operation, facts.parameters)) {
    if (std::ranges::find(beside, map.weight) == beside.end()) {
      continue;
    }
    facts.parameters.push_back({map.name + kAdapterIn, {rank, map.in}});
    facts.parameters.push_back({map.name + kAdapterOut, {map.out, rank}});
    facts.flops += 2.0 * rows * rank * (map.in + map.out);
    facts.kept_elements += rows * rank;
  }
}

bool SizesArePossible(const Kind& kind, const Operation& operation) {
  for (size_t i = 0; i < kind.sizes; ++i) {
    const bool may_be_zero =
        kind.traits & kLastMayBeZero && i + 1 == kind.sizes;
    if (operation.sizes[i] < (may_be_zero ? 0 : 1)) return false;
  }
  return operation.probability >= 0 && operation.probability < 1;
}

}  // namespace

bool HasTrait(const std::string& kind, OperationTrait trait) {
  const Kind* const found = FindKind(kind);
  return found != nullptr && (found->traits & trait) != 0;
}

std::vector<LinearMap> LinearMapsOf(const Operation& operation,
                                    const std::vector<Parameter>& parameters) {
  const bool in_first = HasTrait(operation.kind, kIsInFirst);
  std::vector<LinearMap> maps;
  if (!HasTrait(operation.kind, kHasLinearMaps)) return maps;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto& [name, shape, trainable, dtype, frozen] = parameters[i];
    if (shape.size() != 2 || IsOfAdapter(parameters[i])) continue;
    // Without ".weight" or "_weight".
    maps.push_back({name.substr(0, name.size() - 7), static_cast<int>(i),
                    shape[in_first ? 0 : 1], shape[in_first ? 1 : 0],
                    in_first});
  }
  return maps;
}

bool IsOfAdapter(const Parameter& parameter) {
  return absl::EndsWith(parameter.name, kAdapterIn) ||
         absl::EndsWith(parameter.name, kAdapterOut);
}

bool Owns(const Operation& operation, const Parameter& parameter) {
  return !operation.name.empty() &&
         (parameter.name == operation.name ||
          absl::StartsWith(parameter.name, operation.name + "."));
}

const Operation& OwnerOf(const Layer& layer, const Parameter& parameter) {
  const auto owner = std::ranges::find_if(
      layer.operations,
      [&](const Operation& each) { return Owns(each, parameter); });
  PACELINE_CHECK(owner != layer.operations.end(), parameter.name);
  return *owner;
}

bool IsInPlace(const Operation& operation, const Operation& before) {
  return operation.kind == "relu" && HasTrait(before.kind, kIsOverwritable);
}

absl::StatusOr<OperationFacts> ExamineOperation(const Operation& operation,
                                                const Shape& input) {
  const Kind* const kind = FindKind(operation.kind);
  if (kind == nullptr) {
    return InvalidArgument("unknown operation '", operation.kind, "'");
  }
  if (operation.sizes.size() != kind->sizes) {
    return InvalidArgument(operation.kind, " takes ", kind->sizes,
                           " sizes, got ", operation.sizes.size());
  }
  if (NumElements(input) < 1 || !SizesArePossible(*kind, operation) ||
      !HasForm(kind->form, operation.sizes, input)) {
    return DoesNotFit(operation, input);
  }
  OperationFacts facts = kind->examine(operation, input);
  if (facts.output.empty() || NumElements(facts.output) < 1) {
    return DoesNotFit(operation, input);
  }
  AddAdapters(operation, input, facts);
  return facts;
}

}  // namespace paceline
