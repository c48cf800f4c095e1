#include "core/simulate/network.h"

#include <algorithm>

namespace paceline {

Network::Network(const PlanProblem& problem, bool machine_ports)
    : problem_(problem),
      machine_ports_(machine_ports),
      links_(problem.devices.size()) {
  const int devices = static_cast<int>(problem.devices.size());
  int machines = 0;
  for (const Device& device : problem.devices) {
    machines = std::max(machines, device.machine + 1);
  }
  out_.resize(devices + (machine_ports ? machines : 0));
  in_.resize(out_.size());
  for (int from = 0; from < devices; ++from) {
    for (int to = 0; to < devices; ++to) {
      if (from == to) continue;
      const double rate = problem.links[from][to].bytes_per_second;
      for (Port* port : {&out_[PortOf(from, to)], &in_[PortOf(to, from)]}) {
        port->bytes_per_second = std::max(port->bytes_per_second, rate);
      }
    }
  }
}

Network::Departure Network::Send(int from, int to, double bytes, double now) {
  Port& port = out_[PortOf(from, to)];
  const double start = std::max(now, port.free_seconds);
  port.free_seconds = start + egress_seconds(from, to, bytes);

  std::vector<BusyLink>& links = links_[from];
  auto link = std::ranges::find(links, to, &BusyLink::to);
  if (link == links.end()) link = links.insert(link, {to, 0});
  const LinkCost& cost = problem_.links[from][to];
  const double begin = std::max(start, link->free_seconds);
  const double end = begin + bytes / cost.bytes_per_second;
  link->free_seconds = end;
  // It comes at the link's rate and is taken in at the port's: the port need
  // not begin before the last moment at which it still keeps up.
  return {begin, end,
          std::max(now, end + cost.latency_seconds -
                            ingress_seconds(from, to, bytes))};
}

double Network::Receive(int from, int to, double bytes, double now) {
  Port& port = in_[PortOf(to, from)];
  port.free_seconds =
      std::max(now, port.free_seconds) + ingress_seconds(from, to, bytes);
  return port.free_seconds;
}

void Network::Clear() {
  for (Port& port : out_) port.free_seconds = 0;
  for (Port& port : in_) port.free_seconds = 0;
  for (std::vector<BusyLink>& links : links_) links.clear();
}

}  // namespace paceline
