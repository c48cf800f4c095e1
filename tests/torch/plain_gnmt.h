// A translator of LibTorch's own modules, as anyone would write one: whole
// sequences, packed where a direction begins behind the padding.
#pragma once

#include "tests/torch/plain_models.h"

namespace paceline {

class PlainAdditiveAttention final : public torch::nn::Module {
 public:
  explicit PlainAdditiveAttention(int64_t width)
      : query_(torch::nn::LinearOptions(width, width).bias(false)),
        key_(torch::nn::LinearOptions(width, width).bias(false)),
        vector_(torch::nn::LinearOptions(width, 1).bias(false)) {
    register_module("linear_q", query_);
    register_module("linear_k", key_);
    register_module("linear_att", vector_);
    scalar_ = register_parameter("normalize_scalar", torch::zeros({1}));
    bias_ = register_parameter("normalize_bias", torch::zeros({width}));
  }

  // real: [n, s], true where a token of the memory is no padding.
  torch::Tensor Run(const torch::Tensor& queries, const torch::Tensor& memory,
                    const torch::Tensor& real) {
    const torch::Tensor sums = query_->forward(queries).unsqueeze(2) +
                               key_->forward(memory).unsqueeze(1) + bias_;
    const torch::Tensor vector =
        vector_->weight[0] / vector_->weight[0].norm() * scalar_;
    const torch::Tensor scores = (torch::tanh(sums) * vector).sum(-1);
    return torch::softmax(scores.masked_fill(~real.unsqueeze(1), -1e30), -1)
        .matmul(memory);
  }

 private:
  torch::nn::Linear query_;
  torch::nn::Linear key_;
  torch::nn::Linear vector_;
  torch::Tensor scalar_;
  torch::Tensor bias_;
};

class PlainGnmt final : public PlainModel {
 public:
  explicit PlainGnmt(const Experiment& experiment)
      : source_(Table(experiment)),
        target_(Table(experiment)),
        first_(Lstm(experiment.job.model.width, experiment.job.model.width,
                    /*both=*/false)),
        attention_(std::make_shared<PlainAdditiveAttention>(
            experiment.job.model.width)),
        scores_(experiment.job.model.width, experiment.job.model.vocabulary) {
    const ModelSpec& spec = experiment.job.model;
    const int64_t width = spec.width;
    for (int i = 0; i < spec.depth; ++i) {
      encoder_->push_back(Lstm(i == 1 ? 2 * width : width, width, i == 0));
      if (i > 0) decoder_->push_back(Lstm(2 * width, width, false));
    }
    const auto encoder = Child(*this, "encoder");
    encoder->register_module("embedder", source_);
    encoder->register_module("rnn_layers", encoder_);
    const auto decoder = Child(*this, "decoder");
    decoder->register_module("embedder", target_);
    const auto first = Child(*decoder, "att_rnn");
    first->register_module("rnn", first_);
    first->register_module("attn", attention_);
    decoder->register_module("rnn_layers", decoder_);
    Child(*decoder, "classifier")->register_module("classifier", scores_);
  }

  torch::Tensor Forward(torch::Tensor pairs, const SeedLayer&) override {
    const auto halves = pairs.chunk(2, 1);
    const torch::Tensor real = halves[0] != kPaddingToken;
    const torch::Tensor memory = Encode(halves[0], real.sum(1));
    torch::Tensor x = std::get<0>(first_->forward(target_->forward(halves[1])));
    const torch::Tensor context = attention_->Run(x, memory, real);
    for (size_t i = 0; i < decoder_->size(); ++i) {
      const torch::Tensor y =
          std::get<0>(decoder_[i]->as<torch::nn::LSTM>()->forward(
              torch::cat({x, context}, -1)));
      x = i == 0 ? y : x + y;
    }
    return scores_->forward(x);
  }

 private:
  static torch::nn::Embedding Table(const Experiment& experiment) {
    return torch::nn::Embedding(
        torch::nn::EmbeddingOptions(experiment.job.model.vocabulary,
                                    experiment.job.model.width)
            .padding_idx(kPaddingToken));
  }
  static torch::nn::LSTM Lstm(int64_t in, int64_t width, bool both) {
    return torch::nn::LSTM(
        torch::nn::LSTMOptions(in, width).batch_first(true).bidirectional(
            both));
  }
  static std::shared_ptr<torch::nn::Module> Child(torch::nn::Module& parent,
                                                  const std::string& name) {
    return parent.register_module(name, std::make_shared<torch::nn::Module>());
  }

  torch::Tensor Encode(const torch::Tensor& tokens,
                       const torch::Tensor& lengths) {
    namespace rnn = torch::nn::utils::rnn;
    const auto packed = rnn::pack_padded_sequence(source_->forward(tokens),
                                                  lengths, /*batch_first=*/true,
                                                  /*enforce_sorted=*/false);
    const auto both = encoder_[0]->as<torch::nn::LSTM>();
    torch::Tensor x = std::get<0>(rnn::pad_packed_sequence(
        std::get<0>(both->forward_with_packed_input(packed)),
        /*batch_first=*/true, /*padding_value=*/0.0, tokens.size(1)));
    for (size_t i = 1; i < encoder_->size(); ++i) {
      const torch::Tensor y =
          std::get<0>(encoder_[i]->as<torch::nn::LSTM>()->forward(x));
      x = i == 1 ? y : x + y;
    }
    return x;
  }

  torch::nn::Embedding source_;
  torch::nn::Embedding target_;
  torch::nn::ModuleList encoder_;
  torch::nn::LSTM first_;
  std::shared_ptr<PlainAdditiveAttention> attention_;
  torch::nn::ModuleList decoder_;
  torch::nn::Linear scores_;
};

}  // namespace paceline
