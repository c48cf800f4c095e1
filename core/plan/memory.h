// Counts the bytes that layers keep and that a member of a round group needs,
// and writes byte counts for people.  Pure.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "core/job/spec/job_spec.h"
#include "core/model/description.h"
#include "core/plan/problem.h"

namespace paceline {

// A number of bytes, at least 0.  A sum or product that does not fit becomes
// INT64_MAX, so that a hostile spec cannot wrap it around to a number that
// fits.
struct Bytes {
  // Implicit: formulas mix both.
  Bytes(int64_t count = 0) : count(count) {}

  friend Bytes operator+(Bytes a, Bytes b) {
    int64_t sum = 0;
    return __builtin_add_overflow(a.count, b.count, &sum) ? kMost : sum;
  }
  friend Bytes operator*(Bytes a, Bytes b) {
    int64_t product = 0;
    return __builtin_mul_overflow(a.count, b.count, &product) ? kMost : product;
  }
  Bytes& operator+=(Bytes other) { return *this = *this + other; }
  friend auto operator<=>(Bytes, Bytes) = default;

  static constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  int64_t count;
};

// "512 B", "1.5 GiB": the largest binary unit that gives at least 1, one
// decimal, rounded down so that a bound never reads larger than it is.
// bytes >= 0.
std::string BytesText(int64_t bytes);
// BytesText of a sum; a larger sum than an int64_t holds reads as the largest.
std::string BytesTextOfSum(double bytes);

// Counts the parameters' values that steps change.
int64_t TrainableElements(const Layer& layer);
int64_t TrainableElements(const ModelDescription& model);

// Bytes of a layer's weights and buffers, by the memory that training keeps for
// each besides.
struct WeightBytes {
  int64_t own = 0;       // a gradient and optimizer state
  int64_t borrowed = 0;  // a gradient
  int64_t frozen = 0;    // nothing; own and borrowed ones
};
WeightBytes WeightBytesOf(const Layer& layer);

// Returns the bytes of a sample's input to a layer of a model.
int64_t InputBytes(const ModelDescription& model, int layer);

// Returns the bytes of a sample that a layer keeps from forward to backward,
// its input included.
int64_t KeptBytes(const ModelDescription& model, int layer,
                  Precision precision);

// Bytes that a member needs for the rounds, in addition to those for training.
struct RoundBytes {
  int64_t gradient = 0;  // all trainable parameters' gradients, as sent
  // Its own part; 0 where the gradient's own memory is sent (fp32).
  int64_t part = 0;
  int64_t held = 0;    // the result that it holds until commit
  int64_t kept = 0;    // earlier results: kKeptResults of them
  int64_t served = 0;  // others' parts of the shards it serves at once
  int64_t trial = 0;   // zeno: weights for trying a part's step
};

// members: at least 1.
RoundBytes RoundBytesOf(const JobSpec& spec, const ModelDescription& model,
                        int64_t members);

// Returns the most bytes that one of `members` members needs: for the whole
// model as one stage, with one micro-batch at a time, and for the rounds.  A
// joiner needs JoinerBytes() for a while.  INT64_MAX when the sum does not fit.
// MakePlan() counts these bytes for a data-parallel spec; the caller asks it
// for each member alone, with pipeline.stages 1.
int64_t MemberBytes(const JobSpec& spec, const ModelDescription& model,
                    int64_t members);

// Returns the bytes of an epoch's order of `train_samples` samples, and of the
// table of their members.  Inference needs neither.
int64_t OrderBytes(const JobSpec& spec, int64_t train_samples);
// Returns the bytes that each reader of the job's data keeps while the job
// runs, if the number of samples is known.  Members and the workers with the
// first layer read data.
int64_t DataBytes(const JobSpec& spec);

// Returns the bytes of the state of these layers: parameters, buffers and the
// optimizer's state.
int64_t StateBytes(const JobSpec& spec, const ModelDescription& model,
                   const LayerRange& layers);
// Returns the bytes of the state of all layers, which a joiner receives.
int64_t GroupStateBytes(const JobSpec& spec, const ModelDescription& model);

// Returns the most bytes that a joiner needs to become one of `members`:
// MemberBytes(), or more while it receives the state and has a copy of it.
int64_t JoinerBytes(const JobSpec& spec, const ModelDescription& model,
                    int64_t members);

// Gives each need a place of its own that holds it: the place of the same index
// if it does, else the first free one.  Larger needs come first, so that all
// find places if they can at all; else the result is empty.
//   sizes  0: not known, holds anything
std::vector<int> PlacesFor(const std::vector<double>& needs,
                           const std::vector<double>& sizes);

// Returns the least number of members that the spec allows.
int64_t LeastMembers(const AggregationSpec& aggregation);

}  // namespace paceline
