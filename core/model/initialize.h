// The first values of a model's parameters: drawn from (seed, layer) by our
// own arithmetic (+ * / sqrt only), so that every cut of the chain, every CPU
// and every engine starts from the same bytes.  Pure.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "core/model/description.h"

namespace paceline {

inline constexpr int kHypercubeStarts = 16;

// Fills the parameters of layer number `index` of a model.
//
//   parameters  one a layer.parameters, same order, of its NumElements floats;
//               those that are not float32 are passed over: they begin as 0
//
// Weights that a relu follows: uniform, variance 2 / fan_in (He et al. 2015).
// Other weights: uniform, variance 2 / (fan_in + fan_out) (Glorot and Bengio
// 2010); queries, keys and values count as three matrices, the gates of an lstm
// as four.  Tokens and positions: close to normal (a sum of four uniforms),
// deviation 0.02, as timm does, and so the tables and the [in, out] weights of
// language models, as GPT-2 does.  Scales of a normalisation and variances: 1.
// Biases and means: 0.  Adapters: A uniform, variance 1 / (3 fan_in), as
// Hugging Face's PEFT draws it; B 0.
//
// That is `auto`.  Layer.init can name another way for weights that multiply;
// tables stay as they are:
//   uniform     variance 1 / (3 fan_in), as PyTorch's own layers
//   xavier      Glorot's variance, whatever follows
//   kaiming     He's variance, whatever follows
//   orthogonal  rows or columns, whichever are fewer, are orthonormal; times
//               sqrt(2) before a relu (Saxe et al. 2014).  Costs their number
//               squared times the length of each
//   latin-hypercube  `auto`, times a factor in [0.5, 2) that each layer draws.
//               That range has kHypercubeStarts equal parts; as many seeds in a
//               row use each part once
void InitializeLayer(const Layer& layer, int64_t seed, int index,
                     absl::Span<const absl::Span<float>> parameters);

// Fills what layer number `index` borrows with its owners' first values.
//   parameters  one a layer.borrowed, same order, of its NumElements floats
void InitializeBorrowed(const ModelDescription& model, int index, int64_t seed,
                        absl::Span<const absl::Span<float>> parameters);

// Returns the seed of a layer's dropout for the forward of one micro-batch.  It
// is the same wherever the layer is placed.
uint64_t DropoutSeed(int64_t seed, int64_t step, int micro_batch, int layer);

}  // namespace paceline
