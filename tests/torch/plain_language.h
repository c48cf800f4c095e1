// Language models as anyone would write them with LibTorch's own modules, after
// the formulas of Radford et al. 2019 and Devlin et al. 2019.  Without dropout.
#pragma once

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "tests/torch/plain_models.h"
#include "torch/torch.h"

namespace paceline {

// Attention of every token to those for which `allowed`, [n or 1, 1, t or 1, t]
// bool, is true.  All [n, t, width].
inline torch::Tensor PlainAttend(const torch::Tensor& q, const torch::Tensor& k,
                                 const torch::Tensor& v,
                                 const torch::Tensor& allowed, int64_t heads) {
  const int64_t n = q.size(0), t = q.size(1), w = q.size(2);
  const auto split = [&](const torch::Tensor& x) {
    return x.view({n, t, heads, w / heads}).permute({0, 2, 1, 3});
  };
  const torch::Tensor scores =
      torch::matmul(split(q), split(k).transpose(2, 3)) /
      std::sqrt(static_cast<double>(w / heads));
  const torch::Tensor least =
      torch::full({}, std::numeric_limits<float>::lowest());
  const torch::Tensor weights =
      torch::softmax(torch::where(allowed, scores, least), -1);
  return torch::matmul(weights, split(v))
      .permute({0, 2, 1, 3})
      .reshape({n, t, w});
}

class PlainConv1d final : public torch::nn::Module {
 public:
  PlainConv1d(int64_t in, int64_t out)
      : weight_(register_parameter("weight", torch::zeros({in, out}))),
        bias_(register_parameter("bias", torch::zeros({out}))) {}

  torch::Tensor forward(const torch::Tensor& x) {
    return torch::matmul(x, weight_) + bias_;
  }

 private:
  torch::Tensor weight_;
  torch::Tensor bias_;
};

inline torch::nn::LayerNorm NormOf(int64_t width, double epsilon) {
  return torch::nn::LayerNorm(
      torch::nn::LayerNormOptions({width}).eps(epsilon));
}

class PlainGptBlock final : public torch::nn::Module {
 public:
  PlainGptBlock(int64_t width, int64_t heads)
      : heads_(heads), ln_1_(NormOf(width, 1e-5)), ln_2_(NormOf(width, 1e-5)) {
    register_module("ln_1", ln_1_);
    register_module("attn", attention_);
    attention_->register_module("c_attn", c_attn_ = Conv(width, 3 * width));
    attention_->register_module("c_proj", c_proj_ = Conv(width, width));
    register_module("ln_2", ln_2_);
    register_module("mlp", mlp_);
    mlp_->register_module("c_fc", c_fc_ = Conv(width, 4 * width));
    mlp_->register_module("c_proj", c_out_ = Conv(4 * width, width));
  }

  torch::Tensor forward(torch::Tensor x) {
    const auto qkv = c_attn_->forward(ln_1_->forward(x)).chunk(3, 2);
    const int64_t t = x.size(1);
    const torch::Tensor earlier =
        torch::ones({t, t}, torch::kBool).tril().view({1, 1, t, t});
    x = x +
        c_proj_->forward(PlainAttend(qkv[0], qkv[1], qkv[2], earlier, heads_));
    const torch::Tensor h = c_fc_->forward(ln_2_->forward(x));
    // Hendrycks and Gimpel 2016, the approximation by tanh.
    const torch::Tensor gelu =
        0.5 * h *
        (1 + torch::tanh(std::sqrt(2 / M_PI) * (h + 0.044715 * h.pow(3))));
    return x + c_out_->forward(gelu);
  }

 private:
  static std::shared_ptr<PlainConv1d> Conv(int64_t in, int64_t out) {
    return std::make_shared<PlainConv1d>(in, out);
  }

  const int64_t heads_;
  torch::nn::LayerNorm ln_1_;
  torch::nn::LayerNorm ln_2_;
  std::shared_ptr<torch::nn::Module> attention_ =
      std::make_shared<torch::nn::Module>();
  std::shared_ptr<torch::nn::Module> mlp_ =
      std::make_shared<torch::nn::Module>();
  std::shared_ptr<PlainConv1d> c_attn_, c_proj_, c_fc_, c_out_;
};

class PlainGpt final : public PlainModel {
 public:
  explicit PlainGpt(const Experiment& experiment)
      : ln_f_(NormOf(experiment.job.model.width, 1e-5)),
        wte_(experiment.job.model.vocabulary, experiment.job.model.width),
        wpe_(experiment.job.model.positions, experiment.job.model.width) {
    const ModelSpec& spec = experiment.job.model;
    const auto transformer = std::make_shared<torch::nn::Module>();
    register_module("transformer", transformer);
    transformer->register_module("wte", wte_);
    transformer->register_module("wpe", wpe_);
    for (int i = 0; i < spec.depth; ++i) {
      h_->push_back(std::make_shared<PlainGptBlock>(spec.width, spec.heads));
    }
    transformer->register_module("h", h_);
    transformer->register_module("ln_f", ln_f_);
  }

  torch::Tensor Forward(torch::Tensor tokens, const SeedLayer&) override {
    torch::Tensor x =
        wte_->forward(tokens) + wpe_->forward(torch::arange(tokens.size(1)));
    for (const auto& block : *h_) x = block->as<PlainGptBlock>()->forward(x);
    return torch::matmul(ln_f_->forward(x), wte_->weight.t());
  }

 private:
  torch::nn::LayerNorm ln_f_;
  torch::nn::Embedding wte_;
  torch::nn::Embedding wpe_;
  torch::nn::ModuleList h_;
};

class PlainBertLayer final : public torch::nn::Module {
 public:
  PlainBertLayer(int64_t width, int64_t heads, double epsilon)
      : heads_(heads),
        query_(width, width),
        key_(width, width),
        value_(width, width),
        dense_(width, width),
        norm_(NormOf(width, epsilon)),
        intermediate_(width, 4 * width),
        output_(4 * width, width),
        output_norm_(NormOf(width, epsilon)) {
    const auto attention = Child(*this, "attention");
    const auto self = Child(*attention, "self");
    self->register_module("query", query_);
    self->register_module("key", key_);
    self->register_module("value", value_);
    const auto mixed = Child(*attention, "output");
    mixed->register_module("dense", dense_);
    mixed->register_module("LayerNorm", norm_);
    Child(*this, "intermediate")->register_module("dense", intermediate_);
    const auto output = Child(*this, "output");
    output->register_module("dense", output_);
    output->register_module("LayerNorm", output_norm_);
  }

  torch::Tensor Run(torch::Tensor x, const torch::Tensor& allowed) {
    const torch::Tensor q = query_->forward(x);
    const torch::Tensor k = key_->forward(x);
    const torch::Tensor v = value_->forward(x);
    const torch::Tensor mixed = PlainAttend(q, k, v, allowed, heads_);
    x = norm_->forward(x + dense_->forward(mixed));
    const torch::Tensor h = torch::gelu(intermediate_->forward(x));
    return output_norm_->forward(x + output_->forward(h));
  }

  static std::shared_ptr<torch::nn::Module> Child(torch::nn::Module& parent,
                                                  const std::string& name) {
    return parent.register_module(name, std::make_shared<torch::nn::Module>());
  }

 private:
  const int64_t heads_;
  torch::nn::Linear query_, key_, value_, dense_;
  torch::nn::LayerNorm norm_;
  torch::nn::Linear intermediate_, output_;
  torch::nn::LayerNorm output_norm_;
};

// Or RoBERTa, by the name of the experiment's model.
class PlainBert final : public PlainModel {
 public:
  explicit PlainBert(const Experiment& experiment)
      : roberta_(experiment.job.model.name == "roberta"),
        padding_(roberta_ ? 1 : 0),
        words_(Table(experiment.job.model.vocabulary, experiment)),
        positions_(Table(experiment.job.model.positions, experiment)),
        types_(roberta_ ? 1 : 2, experiment.job.model.width),
        norm_(NormOf(experiment.job.model.width, Epsilon())),
        dense_(experiment.job.model.width, experiment.job.model.width),
        out_(experiment.job.model.width, experiment.set.classes) {
    const ModelSpec& spec = experiment.job.model;
    const auto encoder =
        PlainBertLayer::Child(*this, roberta_ ? "roberta" : "bert");
    const auto embeddings = PlainBertLayer::Child(*encoder, "embeddings");
    embeddings->register_module("word_embeddings", words_);
    embeddings->register_module("position_embeddings", positions_);
    embeddings->register_module("token_type_embeddings", types_);
    embeddings->register_module("LayerNorm", norm_);
    for (int i = 0; i < spec.depth; ++i) {
      layers_->push_back(
          std::make_shared<PlainBertLayer>(spec.width, spec.heads, Epsilon()));
    }
    PlainBertLayer::Child(*encoder, "encoder")
        ->register_module("layer", layers_);
    if (roberta_) {
      const auto head = PlainBertLayer::Child(*this, "classifier");
      head->register_module("dense", dense_);
      head->register_module("out_proj", out_);
    } else {
      PlainBertLayer::Child(*encoder, "pooler")
          ->register_module("dense", dense_);
      register_module("classifier", out_);
    }
  }

  torch::Tensor Forward(torch::Tensor tokens, const SeedLayer&) override {
    const torch::Tensor real = tokens != padding_;
    torch::Tensor at = torch::arange(tokens.size(1));
    if (roberta_) {
      at = torch::where(real, real.to(torch::kLong).cumsum(1) + padding_,
                        torch::full_like(tokens, padding_));
    }
    torch::Tensor x =
        words_->forward(tokens) + positions_->forward(at) + types_->weight[0];
    x = norm_->forward(x);
    const torch::Tensor allowed = real.unsqueeze(1).unsqueeze(1);
    for (const auto& layer : *layers_) {
      x = layer->as<PlainBertLayer>()->Run(x, allowed);
    }
    return out_->forward(torch::tanh(dense_->forward(x.select(1, 0))));
  }

 private:
  double Epsilon() const { return roberta_ ? 1e-5 : 1e-12; }
  // BERT's positions have no padding.
  torch::nn::Embedding Table(int64_t rows, const Experiment& experiment) const {
    torch::nn::EmbeddingOptions options(rows, experiment.job.model.width);
    const bool words = rows == experiment.job.model.vocabulary;
    if (words || roberta_) options.padding_idx(padding_);
    return torch::nn::Embedding(options);
  }

  const bool roberta_;
  const int64_t padding_;
  torch::nn::Embedding words_;
  torch::nn::Embedding positions_;
  torch::nn::Embedding types_;
  torch::nn::LayerNorm norm_;
  torch::nn::Linear dense_;
  torch::nn::Linear out_;
  torch::nn::ModuleList layers_;
};

}  // namespace paceline
