// Makes memory resident while others work.

#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

namespace octavo {

// Has the pages of a range touched from first to last, by a thread that takes only time that nobody else wants: what
// must not be refused later need not be waited for now. The range may be used meanwhile; nothing in it changes.
class Population {
  public:
    // The memory must be new and outlive this object. Where the system offers no way to touch pages that are in use
    // (Linux before 5.14, other systems), all are touched before this returns.
    Population(void* memory, int64_t num_bytes);
    ~Population();  // leaves untouched what is left
    Population(const Population&) = delete;
    Population& operator=(const Population&) = delete;

  private:
    void run(char* memory, int64_t num_bytes);

    std::atomic<bool> is_stopping_{false};
    std::thread thread_;
};

}  // namespace octavo
