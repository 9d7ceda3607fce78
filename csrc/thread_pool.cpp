#include "thread_pool.h"

#include <chrono>
#include <stdexcept>
#include <string>

namespace octavo {
namespace {

constexpr std::chrono::microseconds kSpin{40};  // how long a worker waits awake for the next loop
constexpr int kSpinsPerLook = 32;               // between two looks at the clock
constexpr int kSpinsPerYield = 1000;            // then whoever holds a task up may need this CPU

// The state of a loop.
constexpr uint64_t kNumJoined = (uint64_t{1} << 15) - 1;
constexpr uint64_t kIsOpen = uint64_t{1} << 15;
constexpr uint64_t kLoop = uint64_t{1} << 16;  // a loop's number counts in these

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
    loop_ += kLoop;
    state_.store(loop_ | kIsOpen);
    // A worker counts itself asleep before it looks at state_ for the last time, so one of us sees the other.
    if (num_asleep_.load() > 0) {
        {
            std::lock_guard lock(sleep_mutex_);
        }
        wake_.notify_all();
    }
    run_tasks();
    // Closed: who has not joined by now never sees this loop, so nobody waits for a late waker.
    uint64_t state = state_.fetch_and(~kIsOpen);
    for (int spins = 1; (state & kNumJoined) > 0; ++spins) {
        if (spins % kSpinsPerYield > 0) {
            pause();
        } else {
            std::this_thread::yield();
        }
        state = state_.load(std::memory_order_acquire);
    }
}

void ThreadPool::run_tasks() {
    for (int64_t i; (i = next_task_.fetch_add(1, std::memory_order_relaxed)) < num_tasks_;) task_(function_, i);
}

void ThreadPool::work() {
    for (uint64_t loop = 0; wait_for_loop(loop);) {
        if (!join(loop)) continue;
        run_tasks();
        state_.fetch_sub(1, std::memory_order_release);
    }
}

// Counts this worker among those of the loop that is open, if one is. The loop then lives until it has left.
bool ThreadPool::join(uint64_t& loop) {
    uint64_t state = state_.load();
    while ((state & kIsOpen) != 0) {
        if (!state_.compare_exchange_weak(state, state + 1)) continue;
        loop = state / kLoop;
        return true;
    }
    return false;
}

// Returns true when an open loop other than the last one is there, false when the pool stops.
bool ThreadPool::wait_for_loop(uint64_t last_loop) {
    const auto is_due = [&] {
        const uint64_t state = state_.load();
        return is_stopping_.load(std::memory_order_relaxed) || ((state & kIsOpen) != 0 && state / kLoop != last_loop);
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
