// Builds a ModelDescription operation by operation, so that a model's file
// says what it is made of and nothing is counted by hand.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/model/catalog.h"
#include "core/model/description.h"
#include "core/model/operation.h"

namespace paceline {

// Thread-compatible.  The first error wins; Build() returns it.
class Chain {
 public:
  Chain(std::string model, Shape input, int32_t classes);

  // Samples are tokens [block], numbers below `vocabulary`.
  //   labels  of one sample; the last layer's output is [...labels, classes]
  Chain& TakeTokens(int64_t vocabulary, Shape labels = {});

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

  // Adds an operation to the layer that was begun last.
  Chain& Add(std::string kind, std::string name = "",
             std::vector<int64_t> sizes = {}, double probability = 0);

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
                            int64_t value, int64_t most, int64_t least = 1);

// Errors: InvalidArgument  unless samples are images [channels, height, width]
//                          of at least `edge` x `edge` pixels
absl::Status CheckImages(const ModelSpec& spec, const Shape& input,
                         int64_t edge);

// --- the models ---
//
// One function a kind of model, one file a family.  DescribeModel() has checked
// the input, the classes and the dropout.

// The largest width, hidden size or head count: two of them multiplied stay
// far below any overflow.
constexpr int64_t kLargestSize = 65536;

// Fully connected: flatten, then linear and relu for each of `hidden`, then
// the classes.  Any input.
DescribeFunction DescribeMlp;

// The convolutional network of the quickstart, after LeCun et al. 1998, for
// images [channels, height, width] of at least 4 x 4.
DescribeFunction DescribeLenet;

// A vision transformer (Dosovitskiy et al. 2021), pre-norm, with a class
// token, for images whose height and width `patch` divides.  vit_b_16 has the
// parameter names of torchvision, all others those of timm.
DescribeFunction DescribeVit;

// A residual network (He et al. 2016) for images of at least 2 x 2: resnet50
// has bottlenecks, resnet18 has not.  Each block is a layer.  Normalises over
// the micro-batch, so that its size is a part of what is trained.
DescribeFunction DescribeResnet;

// A convolutional network of 3x3 kernels (Simonyan and Zisserman 2015) for
// images of at least 32 x 32: vgg11 or vgg16.  Each convolution is a layer.
DescribeFunction DescribeVgg;

// A language model after GPT-2 (Radford et al. 2019): pre-norm, causal
// attention, the embedding tied to the scores.  Samples are tokens [block], and
// each has the next one as its label; `classes` counts the data's tokens.
DescribeFunction DescribeGpt;

// A classifier of texts after BERT (Devlin et al. 2019) or, with a name that
// begins with it, RoBERTa (Liu et al. 2019): post-norm, attention to all tokens
// but those that fill a sample up.  Samples are tokens [block].
DescribeFunction DescribeBert;

// A translator after GNMT (Wu et al. 2016), as MLPerf trained it: an encoder
// and a decoder of `depth` LSTM layers each, the encoder's first in both
// directions, from the third on with residuals; normalised additive attention
// (Bahdanau et al. 2015) of the decoder's first layer to the encoder's output,
// whose result goes into each further layer of the decoder, but not back into
// the first. Samples are pairs of sentences [2 x block]: the source, and behind
// it the target as the decoder takes it in, of whose tokens each has the next
// one as its label; `classes` counts the data's tokens, which both share.
//
// Parameters, as torch.nn.LSTM and torch.nn.Linear would write them (N.* of an
// lstm: weight_ih_l0, weight_hh_l0, bias_ih_l0, bias_hh_l0):
//   encoder.embedder.weight           [vocabulary, width]
//   encoder.rnn_layers.0.*            of width; and with _reverse behind
//   encoder.rnn_layers.1.*            of 2 x width
//   encoder.rnn_layers.{2,...}.*      of width
//   decoder.embedder.weight           [vocabulary, width]
//   decoder.att_rnn.rnn.*             of width
//   decoder.att_rnn.attn.{linear_q,linear_k}.weight  [width, width]
//   decoder.att_rnn.attn.linear_att.weight           [1, width]
//   decoder.att_rnn.attn.normalize_scalar            [1]
//   decoder.att_rnn.attn.normalize_bias              [width]
//   decoder.rnn_layers.{0,...}.*      of 2 x width; depth - 1 of them
//   decoder.classifier.classifier.{weight,bias}      [vocabulary, width]
DescribeFunction DescribeGnmt;

// A TorchScript file, out of spec.script, which a worker has filled in: each
// child of its root is a layer of one operation `script`.
//
// Errors (besides): FailedPrecondition  no worker has filled it in yet
DescribeFunction DescribeScript;

}  // namespace paceline
