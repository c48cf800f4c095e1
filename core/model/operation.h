// The operations that layers are made of: what each takes, gives, owns and
// costs.  This table is the one interpretation of `Operation`: worker/torch
// computes exactly what is written here.
//
// kind                sizes                           input -> output
// ------------------  ------------------------------  -----------------------
// flatten             -                               [...] -> [product]
// linear              in, out                         [..., in] -> [..., out]
// relu                -                               same shape
// gelu                - (the exact one, with erf)     same shape
// gelu_new            - (its approximation by tanh)   same shape
// conv2d              in, out, kernel, stride, pad    [in, h, w] ->
//                                                     [out, h', w']
// conv2d_no_bias      as conv2d                       the same
// batch_norm2d        channels (epsilon 1e-5)         [channels, h, w], same
// max_pool2d          kernel, stride, pad             [c, h, w] -> [c, h', w']
// adaptive_avg_pool2d edge                            [c, h, w] ->
//                                                     [c, edge, edge]
// dropout             - (`probability`; identity      same shape
//                        in evaluation)
// tanh                -                               same shape
// layer_norm          width (epsilon 1e-6)            [..., width], same shape
// layer_norm_e5       width (epsilon 1e-5)            the same
// layer_norm_e12      width (epsilon 1e-12)           the same
// patch_embedding     channels, width, patch          [channels, h, w] ->
//                                                     [h/patch * w/patch,
//                                                     width]
// class_token         width                           [t, width] ->
//                                                     [1 + t, width]
// position_embedding  tokens, width                   [tokens, width], same
// attention           width, heads, numbers a head    [t, width], same shape
// multihead_attention the same, with other names      [t, width], same shape
// residual_begin      - (remembers its input)         same shape
// residual_project    in, out, stride (remembers a    [in, h, w], same shape
//                        1x1 convolution of its
//                        input, normalised)
// residual_end        - (adds what was remembered)    same shape
// take_token          index                           [t, width] -> [width]
//
// And for samples that are tokens [t], int64:
//
// padding_mask        padding (adds a mask beside:    [t], same
//                        uint8 [t], 0 at that token)
// token_embedding     vocabulary, width               [t] -> [t, width]
// padded_embedding    vocabulary, width, padding (no  [t] -> [t, width]
//                        gradient for that token)
// learned_positions   positions, width (t <=          [t, width], same shape
//                        positions)
// masked_positions    positions, width, padding       [t, width], same shape
//                        (those after the mask count
//                        from padding + 1, others
//                        have padding)
// first_type          types, width (adds row 0)       [t, width], same shape
// conv1d              in, out                         [t, in] -> [t, out]
// causal_attention    width, heads (`probability` of  [t, width], same shape
//                        dropout of its weights)
// masked_attention    width, heads (as above; looks   [t, width], same shape
//                        at the mask, projects no
//                        result)
// tied_linear         in, out (borrows a lower        [t, in] -> [t, out]
//                        layer's embedding)
//
// And for pairs of sentences, [2 t] tokens: the source and, behind it, the
// target as the decoder takes it in.  `taken` goes from beside the activation,
// `given` comes there:
//
// split_pair          padding (given: uint8 [t], 0    [2 t] -> [t], the source
//                        where the source is that
//                        token; the target, int64 [t])
// lstm                in, width                       [t, in] -> [t, width]
// bidirectional_lstm  in, width (looks at the mask:   [t, in] -> [t, 2 width]
//                        the way back begins with
//                        the last token of each)
// take_target         width (taken: the target;       [t, width] -> [t]
//                        given: its input)
// additive_attention  width (taken: mask and what     [t, width], same shape
//                        take_target gave; given:
//                        float32 [t, width], that
//                        mixed for each token)
// join_context        width (puts behind each token   [t, width] ->
//                        what attention gave for it)  [t, 2 width]
// join_last_context   width (the same; taken: that)   the same
// score_tokens        in, out (a linear map whose     [t, in] -> [t, out]
//                        output is the loss's input)
//
// Shapes are those of one sample.  Parameters, in this order, are named
// `name`.weight and `name`.bias; batch_norm2d owns three buffers more,
// .running_mean, .running_var and .num_batches_tracked (int64, a scalar);
// residual_project owns `name`.0.weight of its convolution and `name`.1, a
// batch_norm2d; class_token and position_embedding own
// one that is called `name`; attention owns `name`.qkv.weight, .qkv.bias,
// .proj.weight and .proj.bias, as timm calls them, and multihead_attention
// .in_proj_weight, .in_proj_bias, .out_proj.weight and .out_proj.bias, as
// torch.nn.MultiheadAttention does.  conv1d is Hugging Face's linear map, whose
// weight is [in, out]; causal_attention owns two of them, `name`.c_attn and
// `name`.c_proj, and masked_attention the linear maps `name`.query, .key and
// .value.  Embeddings and positions own `name`.weight; tied_linear borrows one,
// [out, in], and owns nothing.  An lstm owns `name`.weight_ih_l0,
// .weight_hh_l0, .bias_ih_l0 and .bias_hh_l0 with gates in the order of
// torch.nn.LSTM, and a bidirectional one the same again with _reverse behind;
// additive_attention owns `name`.linear_q.weight, .linear_k.weight,
// .linear_att.weight, .normalize_scalar and .normalize_bias.  No operation's
// name and a dot begin a name of another in its layer.  A residual begins and
// ends in the same layer, and residuals do not nest.  Behind its own parameters
// an operation has those of its adapters, for each map its name and
// .lora_A.weight [rank, in], .lora_B.weight [out, rank].
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/tensor.h"
#include "core/model/description.h"

namespace paceline {

struct OperationFacts {
  Shape output;                       // of one sample
  std::vector<Parameter> parameters;  // in order
  std::vector<Parameter> borrowed;    // a lower layer's
  // The last of what goes beside the input, and not beside the output.
  std::vector<SampleTensor> taken;
  std::vector<SampleTensor> beside;  // added to what goes beside the output
  double flops = 0;                  // a sample, forward
  int64_t kept_elements = 0;  // float32 a sample, kept for backward; without
                              // the input
};

// A linear map inside an operation that an adapter may stand beside.
struct LinearMap {
  // Its weight's, without ".weight"; multihead_attention's ".in_proj_weight"
  // gives ".in_proj".
  std::string name;
  int weight = 0;  // its place among the operation's parameters
  int64_t in = 0;
  int64_t out = 0;
  bool in_first = false;  // the weight is [in, out], else [out, in]
};

// Differences between kinds of operations, beside their sizes; a bit each.
enum OperationTrait : uint8_t {
  kMultiplies = 1,       // multiplies matrices: has most of a layer's FLOPs
  kIsTable = 2,          // all that it owns are rows for tokens or positions
  kHasLinearMaps = 4,    // an adapter may stand beside its weights
  kIsInFirst = 8,        // its weights are [in, out]
  kIsRecurrent = 16,     // an LSTM
  kIsOverwritable = 32,  // its backward does not look at its own result
  kLastMayBeZero = 64,   // its last size: a padding, an index or a token
};

// False for a kind that there is not.
bool HasTrait(const std::string& kind, OperationTrait trait);

// Those of linear, conv1d and of attentions but additive_attention.
//   parameters  the operation's, in order
std::vector<LinearMap> LinearMapsOf(const Operation& operation,
                                    const std::vector<Parameter>& parameters);

// Behind a map's name: the parameters of its adapter.
inline constexpr char kAdapterIn[] = ".lora_A.weight";
inline constexpr char kAdapterOut[] = ".lora_B.weight";
// Whether it is an adapter's.
bool IsOfAdapter(const Parameter& parameter);

// Errors:
//   InvalidArgument  unknown kind, wrong number of sizes, or an input that
//                    does not fit them
absl::StatusOr<OperationFacts> ExamineOperation(const Operation& operation,
                                                const Shape& input);

// Whether `parameter` of its layer is one of `operation`.
bool Owns(const Operation& operation, const Parameter& parameter);
// The operation that owns `parameter` of `layer`: one does.
const Operation& OwnerOf(const Layer& layer, const Parameter& parameter);

// Whether `operation` overwrites the result of `before`, the one in front of it
// in the same layer: a relu behind an operation whose backward does not look at
// its own result.  It then keeps nothing more.
bool IsInPlace(const Operation& operation, const Operation& before);

}  // namespace paceline
