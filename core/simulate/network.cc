#include "core/simulate/network.h"

#include <algorithm>
#include <cstddef>

namespace paceline {

Network::Network(const PlanProblem& problem)
    : problem_(problem),
      out_(problem.devices.size()),
      in_(problem.devices.size()),
      links_(problem.devices.size()) {
  for (size_t from = 0; from < out_.size(); ++from) {
    for (size_t to = 0; to < in_.size(); ++to) {
      if (from == to) continue;
      const double rate = problem.links[from][to].bytes_per_second;
      out_[from].bytes_per_second = std::max(out_[from].bytes_per_second, rate);
      in_[to].bytes_per_second = std::max(in_[to].bytes_per_second, rate);
    }
  }
}

Network::Departure Network::Send(int from, int to, double bytes, double now) {
  Port& port = out_[from];
  const double start = std::max(now, port.free_seconds);
  port.free_seconds = start + egress_seconds(from, bytes);

  std::vector<BusyLink>& links = links_[from];
  auto link = std::find_if(links.begin(), links.end(),
                           [&](const BusyLink& l) { return l.to == to; });
  if (link == links.end()) link = links.insert(link, {to, 0});
  const LinkCost& cost = problem_.links[from][to];
  const double begin = std::max(start, link->free_seconds);
  const double end = begin + bytes / cost.bytes_per_second;
  link->free_seconds = end;
  // It comes at the link's rate and is taken in at the port's: the port need
  // not begin before the last moment at which it still keeps up.
  return {
      begin, end,
      std::max(now, end + cost.latency_seconds - ingress_seconds(to, bytes))};
}

double Network::Receive(int to, double bytes, double now) {
  Port& port = in_[to];
  port.free_seconds =
      std::max(now, port.free_seconds) + ingress_seconds(to, bytes);
  return port.free_seconds;
}

void Network::Clear() {
  for (Port& port : out_) port.free_seconds = 0;
  for (Port& port : in_) port.free_seconds = 0;
  for (std::vector<BusyLink>& links : links_) links.clear();
}

}  // namespace paceline
