// A pool of threads for loops whose turns are independent.

#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace octavo {

// The caller of parallel_for is one of the threads; the others spin for some microseconds after a loop, because the
// next one usually follows at once, and then sleep: an idle pool costs nothing.
class ThreadPool {
  public:
    // Throws std::invalid_argument unless num_threads is positive.
    explicit ThreadPool(int num_threads);
    ~ThreadPool();
    ThreadPool(const ThreadPool&) = delete;
    ThreadPool& operator=(const ThreadPool&) = delete;

    int num_threads() const { return static_cast<int>(workers_.size()) + 1; }

    // Calls function(i) for each i in [0, num_tasks), on any thread and in any order; returns when all have returned.
    // The function must neither throw nor start a loop of its own. Loops of several callers run one after the other.
    template <class Function>
    void parallel_for(int64_t num_tasks, Function&& function) {
        if (num_tasks <= 1 || workers_.empty()) {
            for (int64_t i = 0; i < num_tasks; ++i) function(i);
            return;
        }
        using Target = std::remove_reference_t<Function>;
        run(num_tasks, [](const void* f, int64_t i) { (*static_cast<const Target*>(f))(i); }, &function);
    }

    // Calls function(begin, end) for ranges that cover [0, count) once, each of at least min_range but the last.
    template <class Function>
    void parallel_ranges(int64_t count, int64_t min_range, Function&& function) {
        const int64_t most = 4 * static_cast<int64_t>(num_threads());  // some slack, for threads that are late
        const int64_t range = std::max({min_range, (count + most - 1) / most, int64_t{1}});
        parallel_for((count + range - 1) / range,
                     [&](int64_t i) { function(i * range, std::min(count, (i + 1) * range)); });
    }

    // How many tasks of equal size to cut `work` into, each of about min_work or more: so many that all threads are
    // done at the same time, with some slack for threads that are late.
    int64_t num_equal_tasks(int64_t work, int64_t min_work) const {
        const int64_t most = std::max<int64_t>(1, work / min_work), threads = num_threads();
        return most <= threads ? most : std::min<int64_t>(most / threads, 4) * threads;
    }

    // Calls function(first_row, last_row, first_column, last_column) for blocks that cover a grid once, `last` being
    // the first of the next: of at most rows_per_block rows each, and of so many columns that there are about
    // num_blocks.
    template <class Function>
    void parallel_blocks(int64_t num_rows, int64_t num_columns, int64_t rows_per_block, int64_t num_blocks,
                         Function&& function) {
        const int64_t down = (num_rows + rows_per_block - 1) / rows_per_block;
        const int64_t across = std::min((num_blocks + down - 1) / down, num_columns);
        parallel_for(down * across, [&](int64_t i) {
            const int64_t row = i / across, column = i % across;
            function(num_rows * row / down, num_rows * (row + 1) / down, num_columns * column / across,
                     num_columns * (column + 1) / across);
        });
    }

  private:
    using Task = void (*)(const void* function, int64_t i);

    void run(int64_t num_tasks, Task task, const void* function);
    void work();
    bool wait_for_loop(uint64_t last_loop);
    bool join(uint64_t& loop);
    void run_tasks();

    // A loop's number, whether it is open to be joined, and how many workers have joined and not left. One line of the
    // cache holds all that a worker needs, so that joining fetches it once.
    alignas(64) std::atomic<uint64_t> state_{0};
    std::atomic<int64_t> next_task_{0};
    int64_t num_tasks_ = 0;
    Task task_ = nullptr;
    const void* function_ = nullptr;

    alignas(64) std::mutex caller_mutex_;
    uint64_t loop_ = 0;
    std::mutex sleep_mutex_;
    std::condition_variable wake_;
    std::atomic<int> num_asleep_{0};
    std::atomic<bool> is_stopping_{false};
    std::vector<std::thread> workers_;
};

}  // namespace octavo
