#include "attention_task.h"

namespace octavo {

std::vector<AttentionTask> make_attention_tasks(const AttentionProblem& problem) {
    std::vector<AttentionTask> tasks;
    const AttentionBatch& batch = problem.batch;
    const int64_t group = problem.group();
    for (int64_t request = 0; request < batch.num_reqs; ++request) {
        const int64_t first_token = batch.query_start_loc[request];
        const int64_t num_rows = (batch.query_start_loc[request + 1] - first_token) * group;
        for (int64_t row = 0; row < num_rows; row += kTaskRows) {
            const int64_t task_rows = std::min(kTaskRows, num_rows - row);
            const int64_t first_key = problem.first_key(batch.positions[first_token + row / group]);
            const int64_t num_keys = batch.positions[first_token + (row + task_rows - 1) / group] + 1;
            for (int64_t head = 0; head < problem.kv.shape.num_kv_heads; ++head)
                tasks.push_back({request, head, row, task_rows, first_key, num_keys});
        }
    }
    // The longest first, so that no thread starts one when the others are about to finish.
    std::stable_sort(tasks.begin(), tasks.end(),
                     [](const AttentionTask& a, const AttentionTask& b) { return a.work() > b.work(); });
    return tasks;
}

}  // namespace octavo
