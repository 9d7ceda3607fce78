#include "thread_pool.h"

#include <chrono>
#include <stdexcept>
#include <string>

namespace octavo {
namespace {

constexpr std::chrono::microseconds kSpin{40};  // how long a worker waits awake for the next loop
constexpr int kSpinsPerLook = 32;               // between two looks at the clock

inline void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

}  // namespace

ThreadPool::ThreadPool(int num_threads) {
    if (num_threads < 1)
        throw std::invalid_argument("num_threads is " + std::to_string(num_threads) + ", but must be at least 1");
    for (int i = 1; i < num_threads; ++i) workers_.emplace_back([this] { work(); });
}

ThreadPool::~ThreadPool() {
    {
        std::lock_guard lock(sleep_mutex_);
        is_stopping_ = true;
    }
    wake_.notify_all();
    for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run(int64_t num_tasks, Task task, const void* function) {
    std::lock_guard one_caller(caller_mutex_);
    task_ = task;
    function_ = function;
    num_tasks_ = num_tasks;
    next_task_.store(0, std::memory_order_relaxed);
    loop_.fetch_add(1);  // open
    // A worker counts itself asleep before it looks at loop_ for the last time, so one of us sees the other.
    if (num_asleep_.load() > 0) {
        {
            std::lock_guard lock(sleep_mutex_);
        }
        wake_.notify_all();
    }
    run_tasks();
    loop_.fetch_add(1);  // closed: who has not joined by now never sees this loop, so nobody waits for a late waker
    for (int spins = 0; num_joined_.load() > 0; ++spins) {
        if (spins < 10000) {
            pause();
        } else {
            std::this_thread::yield();
        }
    }
}

void ThreadPool::run_tasks() {
    for (int64_t i; (i = next_task_.fetch_add(1, std::memory_order_relaxed)) < num_tasks_;) task_(function_, i);
}

void ThreadPool::work() {
    for (uint32_t loop = 0; wait_for_loop(loop);) {
        loop = loop_.load();
        if (join(loop)) run_tasks();
        num_joined_.fetch_sub(1);
    }
}

// Counts this worker among those of the loop, which thereby stays alive, if it is still open.
bool ThreadPool::join(uint32_t loop) {
    num_joined_.fetch_add(1);
    return loop % 2 == 1 && loop_.load() == loop;
}

// Returns true when an open loop other than the last one is there, false when the pool stops.
bool ThreadPool::wait_for_loop(uint32_t last_loop) {
    const auto is_due = [&] {
        const uint32_t loop = loop_.load();
        return is_stopping_.load(std::memory_order_relaxed) || (loop % 2 == 1 && loop != last_loop);
    };
    const auto until = std::chrono::steady_clock::now() + kSpin;
    do {
        for (int i = 0; i < kSpinsPerLook; ++i) {
            if (is_due()) return !is_stopping_;
            pause();
        }
    } while (std::chrono::steady_clock::now() < until);
    std::unique_lock lock(sleep_mutex_);
    num_asleep_.fetch_add(1);
    wake_.wait(lock, is_due);
    num_asleep_.fetch_sub(1);
    return !is_stopping_;
}

}  // namespace octavo
