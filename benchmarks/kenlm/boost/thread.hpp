// What KenLM uses of Boost.Thread, by the standard library; arguments are unwrapped as
// boost::bind does. The package of the headers of Boost brings no compiled libraries.
#pragma once
#include <boost/ref.hpp>
#include <mutex>
#include <thread>

namespace boost {

using std::mutex;
using std::unique_lock;

class thread {
 public:
  template <class F, class... Arguments>
  explicit thread(reference_wrapper<F> function, Arguments... arguments)
      : running_([function, arguments...]() mutable { function.get()(unwrap_ref(arguments)...); }) {}
  void join() { running_.join(); }

 private:
  std::thread running_;
};

}  // namespace boost
