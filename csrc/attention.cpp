// out = softmax(scale q K^T) V, by the online softmax (Milakov & Gimelshein 2018; Dao et al. 2022).
//
// The keys of a sequence are cut at fixed positions, counted from 0, whatever the batch is:
//   page    16: keys whose scores are computed side by side
//   chunk   64: between two updates of a row's running maximum
//   split  512: reduced on its own; a row's splits are folded together in order
// Within these a row adds one product after the other, so it has the same bits in whichever tile of rows it is
// computed, and whether its splits ran one after the other or on many threads.

#include "attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

#include "attention_task.h"
#include "buffer.h"
#include "panel.h"

namespace octavo {
namespace {

constexpr int kChunk = 64;
constexpr int kChunkPages = kChunk / kPage;

// What a row knows of the keys it has seen: the largest score, the sums of exp(score - largest) over keys equal modulo
// 16, and the sum of exp(score - largest) V.
struct RowState {
    float* data;

    static int64_t size(const KvShape& shape) { return 2 * kPanel + shape.value_stride(); }
    float& largest() const { return data[0]; }
    float* sums() const { return data + kPanel; }  // [16], followed by the values
    float* values() const { return data + 2 * kPanel; }
};

// Computes one task; a thread keeps it, and its memory, from task to task.
template <class Element>
class RowReducer {
  public:
    void start(const AttentionProblem& problem, const AttentionTask& task);
    // The state of each row, one after the other, over the keys of one split. Needs start.
    void reduce(int64_t split, float* states);
    // Takes what `states` knows of a split into `totals`, which knows all splits before it. Needs start.
    void fold(int64_t split, const float* states, float* totals) const;
    void write(const float* totals) const;
    float* states() { return states_.data(); }
    float* totals() { return totals_.data(); }

  private:
    // The row sees keys [begin, end) of the chunk, if begin < end.
    int64_t begin(int64_t row, int64_t chunk) const { return std::max<int64_t>(0, first_key_[row] - chunk); }
    int64_t end(int64_t row, int64_t chunk) const { return std::min<int64_t>(kChunk, num_keys_[row] - chunk); }
    int num_tile_rows(int64_t tile) const {
        return static_cast<int>(std::min<int64_t>(kTileRows, task_.num_rows - tile));
    }
    void find_pages(int64_t chunk);
    RowState state(float* states, int64_t row) const { return {states + row * state_size_}; }

    template <int ROWS>
    void reduce_chunk(int64_t tile, int64_t chunk, float* states);
    template <int ROWS>
    void score(int64_t tile, int64_t chunk);
    void weigh(int64_t row, int64_t chunk, RowState state);
    template <int ROWS>
    void add_values(int64_t row, int64_t begin, int64_t end, float* states);

    const AttentionProblem* problem_;
    AttentionTask task_;
    int64_t state_size_;
    int64_t first_key_[kTaskRows];
    int64_t num_keys_[kTaskRows];
    float scores_[kTaskRows * kChunk];            // then weights
    KvPage<Element> key_pages_[2 * kChunkPages];  // of a chunk and of the next
    KvPage<Element> value_pages_[2 * kChunkPages];
    Buffer queries_;  // tiles of rows, packed [D][rows]
    Buffer states_, totals_;
};

template <class Element>
void RowReducer<Element>::start(const AttentionProblem& problem, const AttentionTask& task) {
    problem_ = &problem;
    task_ = task;
    state_size_ = RowState::size(problem.kv.shape);
    states_.reserve(kTaskRows * state_size_);
    totals_.reserve(kTaskRows * state_size_);
    const int64_t size = problem.head_dim(), group = problem.group();
    float* queries = queries_.reserve(kTaskRows * size);
    for (int64_t i = 0; i < task.num_rows; ++i) {
        const int64_t row = task.first_row + i, token = problem.batch.query_start_loc[task.request] + row / group;
        const float* q = problem.q.row(token) + (task.kv_head * group + row % group) * size;
        num_keys_[i] = problem.batch.positions[token] + 1;
        first_key_[i] = problem.first_key(problem.batch.positions[token]);
        const int64_t tile = i / kTileRows * kTileRows, rows = num_tile_rows(tile);
        for (int64_t d = 0; d < size; ++d) queries[tile * size + d * rows + i - tile] = problem.params.scale * q[d];
    }
}

// Where the chunk's pages are and, to be fetched ahead, the keys of the next one.
template <class Element>
void RowReducer<Element>::find_pages(int64_t chunk) {
    const KvShape& shape = problem_->kv.shape;
    const int32_t* blocks = problem_->batch.block_table + task_.request * problem_->batch.block_table_stride;
    for (int64_t i = 0; i < 2 * kChunkPages; ++i) {
        const int64_t position = std::clamp(chunk + i * kPage, task_.first_key, task_.num_keys - 1);
        const int64_t block_id = blocks[position / shape.block_size];
        const int64_t page = block_id * shape.pages_per_block() + position % shape.block_size / kPage;
        key_pages_[i] = problem_->kv.key_page<Element>(page, task_.kv_head);
        value_pages_[i] = problem_->kv.value_page<Element>(page, task_.kv_head);
        if (kHasScales<Element> && i >= kChunkPages) {
            __builtin_prefetch(key_pages_[i].scales);
            __builtin_prefetch(value_pages_[i].scales);
        }
    }
}

template <class Element>
void RowReducer<Element>::reduce(int64_t split, float* states) {
    for (int64_t row = 0; row < task_.num_rows; ++row) {
        std::fill_n(states + row * state_size_, state_size_, 0.0f);
        state(states, row).largest() = -std::numeric_limits<float>::infinity();
    }
    const int64_t first = std::max(split * kSplit, task_.first_key / kChunk * kChunk);
    const int64_t last = std::min((split + 1) * kSplit, task_.num_keys) - 1;
    for (int64_t chunk = first; chunk <= last; chunk += kChunk) {
        find_pages(chunk);
        for (int64_t tile = 0; tile < task_.num_rows; tile += kTileRows) {
            const int num_rows = num_tile_rows(tile);
            if (begin(tile, chunk) >= end(tile + num_rows - 1, chunk)) continue;
            with_rows(num_rows, [&](auto constant) { reduce_chunk<decltype(constant)::value>(tile, chunk, states); });
        }
    }
}

template <class Element>
template <int ROWS>
void RowReducer<Element>::reduce_chunk(int64_t tile, int64_t chunk, float* states) {
    score<ROWS>(tile, chunk);
    for (int64_t row = tile; row < tile + ROWS; ++row)
        if (begin(row, chunk) < end(row, chunk)) weigh(row, chunk, state(states, row));
    // Together what all rows see: windows end with the first row's and begin with the last row's. The keys before and
    // after that each row on its own.
    const int64_t shared_begin = begin(tile + ROWS - 1, chunk);
    const int64_t shared_end = std::max(shared_begin, end(tile, chunk));
    for (int64_t row = tile; row < tile + ROWS - 1; ++row)
        add_values<1>(row, begin(row, chunk), std::min(shared_begin, end(row, chunk)), states);
    add_values<ROWS>(tile, shared_begin, shared_end, states);
    for (int64_t row = tile + 1; row < tile + ROWS; ++row)
        add_values<1>(row, std::max(shared_end, begin(row, chunk)), end(row, chunk), states);
}

// Scores of a tile of rows against the pages of a chunk of which the tile sees anything.
template <class Element>
template <int ROWS>
void RowReducer<Element>::score(int64_t tile, int64_t chunk) {
    constexpr int PAGES = tile_panels(ROWS);
    const int64_t size = problem_->head_dim();
    const int end_page = static_cast<int>((end(tile + ROWS - 1, chunk) + kPage - 1) / kPage);
    const float* queries = queries_.data() + tile * size;
    const auto score_pages = [&](auto constant, int page) {
        constexpr int NUM = decltype(constant)::value;
        const Element *keys[NUM], *ahead[NUM];
        for (int i = 0; i < NUM; ++i) {
            keys[i] = key_pages_[page + i].elements;
            ahead[i] = value_pages_[page + i].elements;
        }
        Vec sums[ROWS][NUM * kPanelVecs] = {};
        multiply_panels<ROWS, NUM, 1, ROWS>(queries, keys, ahead, kPage, size, sums);
#pragma GCC unroll 16
        for (int r = 0; r < ROWS; ++r) {
#pragma GCC unroll 16
            for (int c = 0; c < NUM * kPanelVecs; ++c) {
                if constexpr (kHasScales<Element>)
                    sums[r][c] *= load(key_pages_[page + c / kPanelVecs].scales + c % kPanelVecs * kWidth);
                store(scores_ + (tile + r) * kChunk + page * kPage + c * kWidth, sums[r][c]);
            }
        }
    };
    int page = static_cast<int>(begin(tile, chunk) / kPage);
    for (; page + PAGES <= end_page; page += PAGES) score_pages(std::integral_constant<int, PAGES>{}, page);
    for (; page < end_page; ++page) score_pages(std::integral_constant<int, 1>{}, page);
}

// Turns a row's scores into weights exp(score - largest), and what the row has so far into terms of a new maximum.
template <class Element>
void RowReducer<Element>::weigh(int64_t row, int64_t chunk, RowState state) {
    float* scores = scores_ + row * kChunk;
    const int64_t first = begin(row, chunk) / kPage * kPage, last = (end(row, chunk) + kPage - 1) / kPage * kPage;
    if (const float cap = problem_->params.soft_cap; cap != 0)
        for (int64_t i = first; i < last; i += kWidth) store(scores + i, cap * tanh(load(scores + i) / cap));
    std::fill(scores + first, scores + begin(row, chunk), -std::numeric_limits<float>::infinity());
    std::fill(scores + end(row, chunk), scores + last, -std::numeric_limits<float>::infinity());
    Vec most = broadcast(state.largest());
    for (int64_t i = first; i < last; i += kWidth) most = max(load(scores + i), most);
    const float largest = max(most);
    if (largest != state.largest()) {
        const Vec factor = exp(broadcast(state.largest()) - largest);
        for (int64_t i = kPanel; i < state_size_; i += kWidth) store(state.data + i, load(state.data + i) * factor);
        state.largest() = largest;
    }
    for (int64_t lane = 0; lane < kPanel; lane += kWidth) {
        Vec total = load(state.sums() + lane);
        for (int64_t i = first + lane; i < last; i += kPanel) {
            Vec weight = exp(load(scores + i) - largest);
            total += weight;
            if constexpr (kHasScales<Element>) weight *= load(value_pages_[i / kPage].scales + lane);
            store(scores + i, weight);
        }
        store(state.sums() + lane, total);
    }
}

// Adds weight * V of keys [begin, end) of a chunk to ROWS rows.
template <class Element>
template <int ROWS>
void RowReducer<Element>::add_values(int64_t row, int64_t begin, int64_t end, float* states) {
    constexpr int PANELS = tile_panels(ROWS);
    const int64_t stride = problem_->kv.shape.value_stride();
    const auto add_panels = [&](auto constant, int64_t column) {
        constexpr int NUM = decltype(constant)::value;
        Vec sums[ROWS][NUM * kPanelVecs];
        const auto at = [&](int r, int c) { return state(states, row + r).values() + column + c * kWidth; };
        for (int r = 0; r < ROWS; ++r)
            for (int c = 0; c < NUM * kPanelVecs; ++c) sums[r][c] = load(at(r, c));
        for (int64_t i = begin; i < end;) {
            const int64_t next = std::min(end, (i / kPage + 1) * kPage);
            const int64_t offset = i % kPage * stride + column;
            const Element *values[NUM], *ahead[NUM];
            for (int p = 0; p < NUM; ++p) {
                values[p] = value_pages_[i / kPage].elements + offset + p * kPanel;
                ahead[p] = key_pages_[kChunkPages + i / kPage].elements + offset + p * kPanel;
            }
            multiply_panels<ROWS, NUM, kChunk, 1>(scores_ + row * kChunk + i, values, ahead, stride, next - i, sums);
            i = next;
        }
        for (int r = 0; r < ROWS; ++r)
            for (int c = 0; c < NUM * kPanelVecs; ++c) store(at(r, c), sums[r][c]);
    };
    if (begin >= end) return;
    int64_t column = 0;
    for (; column + PANELS * kPanel <= stride; column += PANELS * kPanel)
        add_panels(std::integral_constant<int, PANELS>{}, column);
    for (; column < stride; column += kPanel) add_panels(std::integral_constant<int, 1>{}, column);
}

template <class Element>
void RowReducer<Element>::fold(int64_t split, const float* states, float* totals) const {
    for (int64_t row = 0; row < task_.num_rows; ++row) {
        const int64_t first_split = first_key_[row] / kSplit;
        if (split < first_split || num_keys_[row] <= split * kSplit) continue;
        const float* state = states + row * state_size_;
        float* total = totals + row * state_size_;
        if (split == first_split) {
            std::copy_n(state, state_size_, total);
            continue;
        }
        const float largest = std::max(state[0], total[0]);
        const Vec total_factor = exp(broadcast(total[0] - largest)), factor = exp(broadcast(state[0] - largest));
        for (int64_t i = kPanel; i < state_size_; i += kWidth)
            store(total + i, load(total + i) * total_factor + load(state + i) * factor);
        total[0] = largest;
    }
}

template <class Element>
void RowReducer<Element>::write(const float* totals) const {
    const int64_t size = problem_->head_dim(), group = problem_->group();
    for (int64_t i = 0; i < task_.num_rows; ++i) {
        const RowState total = state(const_cast<float*>(totals), i);
        Vec sums = {};
        for (int c = 0; c < kPanelVecs; ++c) sums = sums + load(total.sums() + c * kWidth);
        const int64_t row = task_.first_row + i, token = problem_->batch.query_start_loc[task_.request] + row / group;
        const int64_t head = task_.kv_head * group + row % group;
        float weight = sum(sums), factor = 1;
        if (const float* sinks = problem_->params.sinks; sinks != nullptr) {
            const float largest = std::max(total.largest(), sinks[head]);
            factor = exp(broadcast(total.largest() - largest))[0];
            weight = weight * factor + exp(broadcast(sinks[head] - largest))[0];
        }
        const float* values = total.values();
        float* __restrict out = problem_->out.row(token) + head * size;
        for (int64_t d = 0; d < size; ++d) out[d] = values[d] * factor / weight;
    }
}

template <class Element>
RowReducer<Element>& thread_reducer() {
    static thread_local RowReducer<Element> reducer;
    return reducer;
}

template <class Element>
void run_task(const AttentionProblem& problem, const AttentionTask& task) {
    RowReducer<Element>& reducer = thread_reducer<Element>();
    reducer.start(problem, task);
    for (int64_t split = task.first_split(); split < task.end_split(); ++split) {
        reducer.reduce(split, reducer.states());
        reducer.fold(split, reducer.states(), reducer.totals());
    }
    reducer.write(reducer.totals());
}

// Each split on its own, then each task's splits together: for fewer tasks than would keep all threads busy.
template <class Element>
void run_splits(ThreadPool& pool, const AttentionProblem& problem, const std::vector<AttentionTask>& tasks) {
    struct Part {
        const AttentionTask* task;
        int64_t split;
        int64_t states;  // where they begin
    };
    std::vector<Part> parts;
    std::vector<int64_t> first_part;
    int64_t size = 0;
    for (const AttentionTask& task : tasks) {
        first_part.push_back(static_cast<int64_t>(parts.size()));
        for (int64_t split = task.first_split(); split < task.end_split(); ++split) {
            parts.push_back({&task, split, size});
            size += task.num_rows * RowState::size(problem.kv.shape);
        }
    }
    static thread_local Buffer buffer;
    float* states = buffer.reserve(size);
    pool.parallel_for(static_cast<int64_t>(parts.size()), [&](int64_t i) {
        RowReducer<Element>& reducer = thread_reducer<Element>();
        reducer.start(problem, *parts[i].task);
        reducer.reduce(parts[i].split, states + parts[i].states);
    });
    pool.parallel_for(static_cast<int64_t>(tasks.size()), [&](int64_t i) {
        RowReducer<Element>& reducer = thread_reducer<Element>();
        reducer.start(problem, tasks[i]);
        const Part* part = parts.data() + first_part[i];
        for (int64_t split = tasks[i].first_split(); split < tasks[i].end_split(); ++split, ++part)
            reducer.fold(split, states + part->states, reducer.totals());
        reducer.write(reducer.totals());
    });
}

template <class Element>
void run_tasks(ThreadPool& pool, const AttentionProblem& problem, const std::vector<AttentionTask>& tasks) {
    const bool is_long = !tasks.empty() && tasks.front().end_split() - tasks.front().first_split() > 1;
    if (is_long && tasks.size() < 4 * static_cast<size_t>(pool.num_threads()))
        return run_splits<Element>(pool, problem, tasks);
    pool.parallel_for(static_cast<int64_t>(tasks.size()), [&](int64_t i) { run_task<Element>(problem, tasks[i]); });
}

}  // namespace

void attend(ThreadPool& pool, ConstMatrix q, const KvLayer& kv, const AttentionBatch& batch,
            const AttentionParams& params, Matrix out) {
    const AttentionProblem problem{q, kv, batch, params, out};
    const std::vector<AttentionTask> tasks = make_attention_tasks(problem);
    with_element(kv.shape.type, [&](auto element) { run_tasks<decltype(element)>(pool, problem, tasks); });
}

}  // namespace octavo
