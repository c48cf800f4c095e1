#include "worker/torch/pair_computations.h"

#include <limits>
#include <vector>

#include "torch/torch.h"
#include "worker/torch/recurrence.h"

namespace paceline {
namespace {

// What a softmax turns into 0, unless all of a row is that.
constexpr float kNever = std::numeric_limits<float>::lowest();

// The last of what goes beside the activation, which it leaves.
at::Tensor Take(const OperationCall& call) {
  TORCH_CHECK(call.beside != nullptr && !call.beside->empty(),
              call.operation.kind, " without what goes beside");
  const at::Tensor taken = call.beside->back();
  call.beside->pop_back();
  return taken;
}

// One direction with the operation's parameters from `first` on:
// [tokens, samples, in] -> [tokens, samples, width].
at::Tensor Direction(const OperationCall& call, int first,
                     const at::Tensor& x) {
  const at::Tensor gates = AsFloat(call.products.Linear(
      x, call.parameter(first), call.parameter(first + 2)));
  return RunLstm(gates, call.parameter(first + 1), call.parameter(first + 3),
                 call.products);
}

// A sample after the other or a token after the other.
at::Tensor Swap(const at::Tensor& x) { return x.transpose(0, 1).contiguous(); }

// Where each row of [tokens, samples, ...] goes when the first tokens of a
// sample, as many as its mask [samples, tokens] has, change their order; the
// same once more puts all back.
at::Tensor ReverseOrder(const at::Tensor& mask) {
  const int64_t samples = mask.size(0);
  const int64_t tokens = mask.size(1);
  const at::Tensor lengths = mask.sum(1);  // int64
  const at::Tensor at = at::arange(tokens).unsqueeze(1);
  const at::Tensor from = at::where(at < lengths, lengths - 1 - at, at);
  return (from * samples + at::arange(samples)).flatten();
}

at::Tensor Reorder(const at::Tensor& x, const at::Tensor& order) {
  return x.flatten(0, 1).index_select(0, order).view(x.sizes());
}

}  // namespace

at::Tensor ComputeSplitPair(const OperationCall& call, const at::Tensor& x) {
  TORCH_CHECK(call.beside != nullptr, "a pair that nobody takes");
  const int64_t block = x.size(1) / 2;
  const at::Tensor source = x.narrow(1, 0, block).contiguous();
  call.beside->push_back(source.ne(call.size(0)).to(at::kByte));
  call.beside->push_back(x.narrow(1, block, block).contiguous());
  return source;
}

at::Tensor ComputeLstm(const OperationCall& call, const at::Tensor& x) {
  return Swap(Direction(call, 0, Swap(x)));
}

at::Tensor ComputeBidirectionalLstm(const OperationCall& call,
                                    const at::Tensor& x) {
  constexpr int kParametersOfADirection = 4;
  TORCH_CHECK(call.beside != nullptr && !call.beside->empty(),
              call.operation.kind, " without a mask");
  const at::Tensor order = ReverseOrder(call.beside->front());
  const at::Tensor by_token = Swap(x);
  const at::Tensor there = Direction(call, 0, by_token);
  const at::Tensor back = Reorder(
      Direction(call, kParametersOfADirection, Reorder(by_token, order)),
      order);
  return Swap(at::cat({there, back}, -1));
}

at::Tensor ComputeTakeTarget(const OperationCall& call, const at::Tensor& x) {
  const at::Tensor target = Take(call);
  call.beside->push_back(x);
  return target;
}

// Normalised (Luong's TensorFlow tutorial and MLPerf's GNMT): a query q looks
// at a key k by scalar * v/|v| . tanh(W q + U k + bias).
at::Tensor ComputeAdditiveAttention(const OperationCall& call,
                                    const at::Tensor& x) {
  const at::Tensor memory = Take(call);
  const at::Tensor mask = Take(call);
  const at::Tensor& vector = call.parameter(2);  // [1, width]
  Products& products = call.products;
  const at::Tensor queries =
      products.Linear(x, call.parameter(0), call.parameter(4));
  const at::Tensor keys =
      products.Linear(memory, call.parameter(1), at::Tensor());
  const at::Tensor sums =
      (queries.unsqueeze(2) + keys.unsqueeze(1)).tanh_();  // [n, t, s, width]
  const at::Tensor direction = call.parameter(3) * vector / vector.norm();
  const at::Tensor scores =
      AsFloat(products.Matmul(sums, direction.t()).squeeze(-1));
  const at::Tensor weights =
      at::softmax(scores.masked_fill(mask.eq(0).unsqueeze(1), kNever), -1);
  call.beside->push_back(products.Matmul(weights, memory));
  return x;
}

at::Tensor ComputeJoinContext(const OperationCall& call, const at::Tensor& x) {
  return at::cat({x, call.beside->back()}, -1);
}

at::Tensor ComputeJoinLastContext(const OperationCall& call,
                                  const at::Tensor& x) {
  return at::cat({x, Take(call)}, -1);
}

}  // namespace paceline
