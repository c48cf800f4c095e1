// A named thread that its owner joins by dropping it.
#pragma once

#include <functional>
#include <string>
#include <thread>

namespace paceline {

// Thread-compatible.  The destructor joins: the owner must first tell the body
// to end.
class Thread {
 public:
  Thread() = default;
  // name: at most 15 characters, as shown by top -H.
  Thread(std::string name, std::function<void()> body);
  ~Thread();
  Thread(Thread&&) = default;
  Thread& operator=(Thread&& other);

  void Join();

 private:
  std::thread thread_;
};

}  // namespace paceline
