// The options of `paceline plan`, which a study of plans has as keys.  Values
// and a check.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace paceline {

struct PlanOptions {
  // Where the problem comes from: one of them.
  std::string model = {};
  std::string job_file = {};
  std::string profile = {};

  // With model or job_file.
  std::optional<int64_t> batch = {};  // samples of a micro-batch; with model
  std::vector<std::string> sets = {};

  // With profile; core/plan/machines.h.
  std::string machines = {};   // "4x4"
  std::string bandwidth = {};  // "1e10,1.25e9", bytes a second
  std::string latency = {};    // "1e-4,1e-3", seconds
  std::string speed = {};      // "1,1,0.5,...", one a device or one for all
  std::string memory = {};     // "16e9", bytes of a device; with any source

  std::optional<std::string> policy = {};  // nothing: the job's, else optimal
  bool compare = false;
  std::optional<int64_t> micro_batches = {};  // of a step; 0: endless
  bool inference = false;
  std::optional<int> stages = {};
  bool replicas = false;  // asked for: for a mesh's training they are not else
  bool no_replicas = false;
  bool even_shares = false;
  bool no_overlap = false;
  std::optional<std::string> schedule = {};
  double reserve_bytes = 0;
  uint64_t seed = 1;
  std::string cost_model = "paceline";  // or pipedream
  bool count_transfers = false;         // pipedream only
  std::string save = {};                // file, or empty
};

// Flags, and whether they were given.
using GivenOptions = std::vector<std::pair<const char*, bool>>;
// Errors: InvalidArgument  one was given: names the first one, then says `why`
absl::Status Refuse(const GivenOptions& given, absl::string_view why);

// Errors: InvalidArgument  no source or two, or an option that means nothing
// beside the others; names it.
absl::Status CheckPlanOptions(const PlanOptions& options);

// Sets what a study of plans has under `key`: profile, machines, bandwidth and
// others, named as the flags of `plan`.
// Errors: InvalidArgument  no such key; not a value of its type
absl::Status SetPlanOption(const std::string& key, const std::string& value,
                           PlanOptions& options);

}  // namespace paceline
