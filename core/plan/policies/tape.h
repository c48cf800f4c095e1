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

#include <cstddef>
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
  void Clear();

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
                               size_t columns);

  // Puts the slopes of `result` by the first slopes.size() inputs.
  // O(numbers on the tape).
  void PutSlopes(const Traced& result, std::vector<double>& slopes);

 private:
  struct Product {
    const std::vector<double>* links;
    bool turned;
    size_t columns;
    size_t first;             // its first number
    std::vector<int> values;  // positions of the operands
  };

  void PutSlopesOf(const Product& product);

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
double PowerOf(double x, int exponent);
double RootOf(double x, int exponent);
Traced RootOf(const Traced& x, int exponent);

// Returns (sum weight x^p)^(1/p), p = 2^exponent: a smooth maximum.  No value
// is below 0.  Weights empty: all are 1.
Traced NormOf(const std::vector<Traced>& values, int exponent,
              const std::vector<Traced>& weights = {});

// Returns exp(x) for x <= 0 with an error below 1e-12; 0 below -700.
double ExpOf(double x);

// Returns `count` probabilities proportional to exp(logits / temperature).
std::vector<Traced> Softmax(const Traced* logits, size_t count,
                            double temperature);

}  // namespace paceline
