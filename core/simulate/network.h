// Ports and links between devices.
#pragma once

#include <cstddef>
#include <vector>

#include "core/plan/problem.h"

namespace paceline {

// A device has one port for all its links, which sends and receives at the same
// time: the rate of a port and direction is that of its fastest link.  Frames
// pass one at a time, whole, in the order in which they come to the port; a
// frame for a slower link leaves the port at the port's rate and then trickles
// over the link, so that it does not hold up frames for others.  Alone, a frame
// takes bytes / bandwidth of its link + latency.  Thread-compatible.
class Network {
 public:
  // problem: CheckProblem is OK; outlives the network.  O(devices^2).
  // machine_ports: SimulationOptions has it.
  explicit Network(const PlanProblem& problem, bool machine_ports = false);

  struct Departure {
    double begin_seconds = 0;  // on the link
    double end_seconds = 0;
    // When the frame asks for the receiver's port.
    double reach_seconds = 0;
  };
  // A frame comes to the sender's port now.  Calls must not go back in time.
  Departure Send(int from, int to, double bytes, double now);

  // A frame asks for the receiver's port now; returns when all of it is there.
  double Receive(int from, int to, double bytes, double now);

  double latency_seconds(int from, int to) const {
    return from == to ? 0 : problem_.links[from][to].latency_seconds;
  }
  double egress_seconds(int from, int to, double bytes) const {
    return bytes / out_[PortOf(from, to)].bytes_per_second;
  }
  double ingress_seconds(int from, int to, double bytes) const {
    return bytes / in_[PortOf(to, from)].bytes_per_second;
  }

  // Nothing is under way any more.
  void Clear();

 private:
  struct Port {
    double bytes_per_second = 0;
    double free_seconds = 0;
  };
  struct BusyLink {
    int to = 0;
    double free_seconds = 0;
  };

  // The port that `device` has for frames to and from `other`.
  size_t PortOf(int device, int other) const {
    const int machine = problem_.devices[device].machine;
    const bool far =
        machine_ports_ && machine != problem_.devices[other].machine;
    return far ? problem_.devices.size() + machine : device;
  }

  const PlanProblem& problem_;
  const bool machine_ports_;
  // [devices], and behind them [machines] where they have ports.
  std::vector<Port> out_;
  std::vector<Port> in_;
  // [devices]: the links that were used; a device sends to few.
  std::vector<std::vector<BusyLink>> links_;
};

}  // namespace paceline
