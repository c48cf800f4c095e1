// Reverse-mode differentiation (Linnainmaa 1976): numbers record their
// operations on a tape, which then yields the slope of a result by each input.
// Thread-compatible.
//
//   y = a * b + a, with a = 3 and b = 2:
//
//   tape   at      1      2      3            4
//          value   a=3    b=2    c=a*b=6      y=c+a=9
//          by_a                  dc/da=2      dy/dc=1      forward  ->
//          by_b                  dc/db=3      dy/da=1
//   slope of y     1+2=3  3      1            1            backward <-
//
// Walking backward, each number adds slope x by_a to the slope of its first
// operand, and slope x by_b to that of its second.
//
// All functions are made of + - * / and square roots alone.  These round alike
// on every machine; the C library's exp does not.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace paceline {

class Tape;

// A number on a tape, or a constant.
struct Traced {
  // Implicit: formulas mix both.
  Traced(double number = 0) : value(number) {}

  double value;
  Tape* tape = nullptr;  // null: a constant
  int at = 0;            // its position on the tape
};

class Tape {
 public:
  Tape() { Clear(); }

  // Forgets all numbers.
  void Clear() {
    steps_.assign(1, {});
    products_.clear();
  }

  // Inputs come before all other numbers.
  Traced Input(double value) { return Put(value, {}); }

  // One number: it changes by `by_a` when the number at `a` changes by 1, and
  // by `by_b` when the number at `b` does.
  struct Step {
    int a = 0;
    int b = 0;
    double by_a = 0;
    double by_b = 0;
  };
  Traced Put(double value, const Step& step) {
    Traced traced(value);
    traced.tape = this;
    traced.at = static_cast<int>(steps_.size());
    steps_.push_back(step);
    return traced;
  }

  // Returns links x values, [rows][columns], with links [rows][rows],
  // transposed if `turned`.  `links` must stay until Clear().  It records one
  // product, not one step for each operation.
  std::vector<Traced> Multiply(const std::vector<double>& links, bool turned,
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

  // Puts the slopes of `result` by the first slopes.size() inputs.
  // O(numbers on the tape).
  void PutSlopes(const Traced& result, std::vector<double>& slopes) {
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

 private:
  struct Product {
    const std::vector<double>* links;
    bool turned;
    size_t columns;
    size_t first;             // its first number
    std::vector<int> values;  // positions of the operands
  };

  // Adds links x in to `out`.
  static void AddProduct(const std::vector<double>& links, bool turned,
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

  void PutSlopesOf(const Product& product) {
    const auto first =
        slopes_.begin() + static_cast<std::ptrdiff_t>(product.first);
    const std::vector<double> out(
        first, first + static_cast<std::ptrdiff_t>(product.values.size()));
    std::vector<double> in(out.size(), 0);
    AddProduct(*product.links, !product.turned, out, product.columns, in);
    for (size_t i = 0; i < in.size(); ++i) slopes_[product.values[i]] += in[i];
  }

  // Entry 0 is unused: constants have position 0.
  std::vector<Step> steps_;
  std::vector<Product> products_;
  std::vector<double> slopes_;  // scratch
};

inline Traced Joined(double value, const Traced& a, double by_a,
                     const Traced& b = {}, double by_b = 0) {
  Tape* const tape = a.tape != nullptr ? a.tape : b.tape;
  if (tape == nullptr) return value;
  return tape->Put(value, {a.at, b.at, by_a, by_b});
}

inline Traced operator+(const Traced& a, const Traced& b) {
  return Joined(a.value + b.value, a, 1, b, 1);
}
inline Traced operator-(const Traced& a, const Traced& b) {
  return Joined(a.value - b.value, a, 1, b, -1);
}
inline Traced operator*(const Traced& a, const Traced& b) {
  return Joined(a.value * b.value, a, b.value, b, a.value);
}
inline Traced operator/(const Traced& a, const Traced& b) {
  const double ratio = a.value / b.value;
  return Joined(ratio, a, 1 / b.value, b, -ratio / b.value);
}
inline Traced& operator+=(Traced& a, const Traced& b) { return a = a + b; }
inline Traced& operator/=(Traced& a, const Traced& b) { return a = a / b; }
inline bool operator<(const Traced& a, const Traced& b) {
  return a.value < b.value;
}

// x^(2^exponent) and x^(1 / 2^exponent), x >= 0; the slope needs x > 0.
inline double PowerOf(double x, int exponent) {
  for (int i = 0; i < exponent; ++i) x *= x;
  return x;
}
inline double RootOf(double x, int exponent) {
  for (int i = 0; i < exponent; ++i) x = std::sqrt(x);
  return x;
}
inline Traced RootOf(const Traced& x, int exponent) {
  const double root = RootOf(x.value, exponent);
  return Joined(root, x, root / x.value / (1 << exponent));
}

// Returns (sum weight x^p)^(1/p), p = 2^exponent: a smooth maximum.  No value
// is below 0.  Weights empty: all are 1.
inline Traced NormOf(const std::vector<Traced>& values, int exponent,
                     const std::vector<Traced>& weights = {}) {
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

// Returns exp(x) for x <= 0 with an error below 1e-12; 0 below -700.
// Computes 2^k exp(r) with |r| <= log(2) / 2, exp(r) by its series.
inline double ExpOf(double x) {
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

// Returns `count` probabilities proportional to exp(logits / temperature).
inline std::vector<Traced> Softmax(const Traced* logits, size_t count,
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
