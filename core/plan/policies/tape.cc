#include "core/plan/policies/tape.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <utility>

namespace paceline {
namespace {

// Adds links x in to `out`.
void AddProduct(const std::vector<double>& links, bool turned,
                const std::vector<double>& in, size_t columns,
                std::vector<double>& out) {
  const size_t rows = in.size() / columns;
  for (size_t u = 0; u < rows; ++u) {
    double* const to = &out[u * columns];
    for (size_t v = 0; v < rows; ++v) {
      const double link = turned ? links[v * rows + u] : links[u * rows + v];
      if (link == 0) continue;
      const double* const from = &in[v * columns];
      for (size_t c = 0; c < columns; ++c) to[c] += link * from[c];
    }
  }
}

}  // namespace

void Tape::Clear() {
  steps_.assign(1, {});
  products_.clear();
}

std::vector<Traced> Tape::Multiply(const std::vector<double>& links,
                                   bool turned,
                                   const std::vector<Traced>& values,
                                   size_t columns) {
  Product product{&links, turned, columns, steps_.size(), {}};
  std::vector<double> in;
  for (const Traced& value : values) {
    in.push_back(value.value);
    product.values.push_back(value.at);
  }
  products_.push_back(std::move(product));
  std::vector<double> out(in.size(), 0);
  AddProduct(links, turned, in, columns, out);
  std::vector<Traced> result;
  for (const double value : out) result.push_back(Put(value, {}));
  return result;
}

void Tape::PutSlopesOf(const Product& product) {
  const auto first =
      slopes_.begin() + static_cast<std::ptrdiff_t>(product.first);
  const std::vector<double> out(
      first, first + static_cast<std::ptrdiff_t>(product.values.size()));
  std::vector<double> in(out.size(), 0);
  AddProduct(*product.links, !product.turned, out, product.columns, in);
  for (size_t i = 0; i < in.size(); ++i) slopes_[product.values[i]] += in[i];
}

void Tape::PutSlopes(const Traced& result, std::vector<double>& slopes) {
  slopes_.assign(steps_.size(), 0);
  slopes_[result.at] = 1;
  size_t products = products_.size();
  for (size_t at = steps_.size() - 1; at > 0; --at) {
    // All numbers that depend on a product come after it.
    if (products > 0 && products_[products - 1].first == at) {
      PutSlopesOf(products_[--products]);
    }
    const double slope = slopes_[at];
    if (slope == 0) continue;
    const Step& step = steps_[at];
    slopes_[step.a] += slope * step.by_a;
    slopes_[step.b] += slope * step.by_b;
  }
  std::copy_n(slopes_.begin() + 1, slopes.size(), slopes.begin());
}

double PowerOf(double x, int exponent) {
  for (int i = 0; i < exponent; ++i) x *= x;
  return x;
}

double RootOf(double x, int exponent) {
  for (int i = 0; i < exponent; ++i) x = std::sqrt(x);
  return x;
}

Traced RootOf(const Traced& x, int exponent) {
  const double root = RootOf(x.value, exponent);
  return Joined(root, x, root / x.value / (1 << exponent));
}

Traced NormOf(const std::vector<Traced>& values, int exponent,
              const std::vector<Traced>& weights) {
  const auto weight = [&](size_t i) {
    return weights.empty() ? Traced(1) : weights[i];
  };
  // largest of the terms' own norms, so that no power overflows
  double most = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    most = std::max(most, RootOf(weight(i).value, exponent) * values[i].value);
  }
  if (most == 0) return 0;
  Traced sum = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double value = values[i].value;
    if (value == 0 || weight(i).value == 0) continue;
    const double power = PowerOf(value / most, exponent);
    const Traced term =
        Joined(power, values[i], (1 << exponent) * power / value);
    sum += weights.empty() ? term : weights[i] * term;
  }
  return most * RootOf(sum, exponent);
}

// Computes 2^k exp(r) with |r| <= log(2) / 2, exp(r) by its series.
double ExpOf(double x) {
  constexpr double kLog2 = 0.69314718055994530942;
  if (!(x > -700)) return 0;
  const int64_t twos = static_cast<int64_t>(x / kLog2 - 0.5);
  const double rest = x - static_cast<double>(twos) * kLog2;
  double series = 1;
  for (int term = 11; term > 0; --term) series = 1 + series * rest / term;
  // Builds 2^twos from its bits: above -1011, so never subnormal.
  return series *
         std::bit_cast<double>(static_cast<uint64_t>(1023 + twos) << 52);
}

std::vector<Traced> Softmax(const Traced* logits, size_t count,
                            double temperature) {
  const double most = std::max_element(logits, logits + count)->value;
  std::vector<Traced> parts;
  Traced total = 0;
  for (size_t i = 0; i < count; ++i) {
    const double part = ExpOf((logits[i].value - most) / temperature);
    parts.push_back(Joined(part, logits[i], part / temperature));
    total += parts.back();
  }
  for (Traced& part : parts) part = part / total;
  return parts;
}

}  // namespace paceline
