// p = softmax(x / temperature), cut by min_p, top_k and top_p, and one draw from what is left; x are the logits as
// logit_rules.h leaves them.
//
// Shares are p / max(p), floats; a cut sets them to zero. The vocabulary is never sorted: top_k partitions what may be
// among the first k, top_p searches for the share of the last token that it keeps.

#include "sampler.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <iterator>
#include <limits>
#include <numeric>
#include <vector>

#include "simd.h"

namespace octavo {
namespace {

constexpr float kGreedyBelow = 1e-5f;  // a temperature below this one chooses the largest logit
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int32_t kNotFinite = -1, kNothingLeft = -2;  // in place of a token, as in ops.py

// A token, in the order of top_k and top_p: larger logit first, then smaller id.
struct Candidate {
    float logit;
    int32_t id;

    bool operator<(const Candidate& other) const { return logit != other.logit ? logit > other.logit : id < other.id; }
};
using Candidates = std::vector<Candidate>;

// The largest value; NaN if there is any NaN.
float max_or_nan(const float* values, int64_t size) {
    Vec most = broadcast(-kInfinity);
    IntVec is_nan = {};
    int64_t i = 0;
    for (; i + kWidth <= size; i += kWidth) {
        const Vec v = load(values + i);
        most = max(v, most);
        is_nan |= v != v;
    }
    float largest = max(most);
    bool has_nan = false;
    for (int lane = 0; lane < kWidth; ++lane) has_nan |= is_nan[lane] != 0;
    for (; i < size; ++i) {
        largest = std::max(largest, values[i]);
        has_nan |= std::isnan(values[i]);
    }
    return has_nan ? std::numeric_limits<float>::quiet_NaN() : largest;
}

// shares[i] = exp((logits[i] - largest) / temperature)
void compute_shares(const float* logits, int64_t size, float largest, float temperature, float* shares) {
    for (int64_t i = 0; i < size; i += kWidth) {
        const int count = static_cast<int>(std::min<int64_t>(kWidth, size - i));
        const Vec v = count == kWidth ? load(logits + i) : load_first(logits + i, count);
        const Vec share = exp((v - largest) / temperature);
        count == kWidth ? store(shares + i, share) : store_first(shares + i, share, count);
    }
}

// A logit that at least k of the logits reach: the k-th largest of the maxima of as many parts.
float reached_by(const float* logits, int64_t size, int64_t k) {
    constexpr int64_t kPart = 64;
    const int64_t num_parts = (size + kPart - 1) / kPart;
    if (k > num_parts) return -kInfinity;
    std::vector<float> maxima(num_parts);
    for (int64_t i = 0; i < num_parts; ++i)
        maxima[i] = max_or_nan(logits + i * kPart, std::min(kPart, size - i * kPart));
    std::nth_element(maxima.begin(), maxima.begin() + k - 1, maxima.end(), std::greater<>());
    return maxima[k - 1];
}

void cut_min_p(std::vector<float>& shares, float min_p) {
    for (float& share : shares) share = share >= min_p ? share : 0.0f;
}

// Leaves the first k in Candidate's order.
void cut_top_k(std::vector<float>& shares, const float* logits, int64_t k) {
    const float reached = reached_by(logits, static_cast<int64_t>(shares.size()), k);
    Candidates candidates;
    for (size_t i = 0; i < shares.size(); ++i) {
        if (logits[i] >= reached && shares[i] > 0) {
            candidates.push_back({logits[i], static_cast<int32_t>(i)});
        } else {
            shares[i] = 0.0f;
        }
    }
    if (k >= static_cast<int64_t>(candidates.size())) return;
    std::nth_element(candidates.begin(), candidates.begin() + k, candidates.end());
    for (size_t i = k; i < candidates.size(); ++i) shares[candidates[i].id] = 0.0f;
}

// The sum of the shares that are at least `lowest`: four vectors at a time as floats, these as doubles.
double sum_from(const std::vector<float>& shares, float lowest) {
    typedef double DoubleVec __attribute__((vector_size(kWidth * sizeof(double))));
    const int64_t size = shares.size();
    DoubleVec sums = {};
    for (int64_t i = 0; i < size; i += 4 * kWidth) {
        Vec four = {};
        for (int64_t j = i; j < std::min(i + 4 * kWidth, size); j += kWidth) {
            const Vec share = j + kWidth <= size ? load(&shares[j]) : load_first(&shares[j], size - j);
            four += share >= lowest ? share : Vec{};
        }
        sums += __builtin_convertvector(four, DoubleVec);
    }
    double sum = 0.0;
    for (int lane = 0; lane < kWidth; ++lane) sum += sums[lane];
    return sum;
}

float float_of(int32_t bits) {
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

int32_t bits_of(float value) {
    int32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}

// Leaves the shortest beginning, in Candidate's order, whose part of the sum of shares reaches top_p.
void cut_top_p(std::vector<float>& shares, const float* logits, float top_p) {
    const double whole = sum_from(shares, 0.0f), wanted = top_p * whole;
    // Shares below this one sum to less than half of what is cut off, so the search is among the others.
    const float least = static_cast<float>(0.5 * (1.0 - top_p) * whole / static_cast<double>(shares.size()));
    std::vector<float> large;
    std::copy_if(shares.begin(), shares.end(), std::back_inserter(large), [&](float share) { return share >= least; });
    // The largest share from which on the shares suffice. Floats above zero are in the order of their bits.
    int32_t enough = bits_of(least), too_few = bits_of(1.0f) + 1;
    while (too_few - enough > 1) {
        const int32_t middle = enough + (too_few - enough) / 2;
        (sum_from(large, float_of(middle)) >= wanted ? enough : too_few) = middle;
    }
    const float lowest = float_of(enough);
    // Of equal shares there may be more than are needed; one token is kept in any case.
    double sum = sum_from(large, float_of(too_few));
    Candidates equals;
    for (size_t i = 0; i < shares.size(); ++i) {
        if (shares[i] == lowest) equals.push_back({logits[i], static_cast<int32_t>(i)});
        if (shares[i] < lowest) shares[i] = 0.0f;
    }
    std::sort(equals.begin(), equals.end());
    for (const Candidate& candidate : equals) {
        if (sum >= wanted && sum > 0) shares[candidate.id] = 0.0f;
        sum += lowest;
    }
}

// The first id at which the running sum of shares exceeds u times their sum.
int32_t draw(const std::vector<float>& shares, double u) {
    const double wanted = u * std::accumulate(shares.begin(), shares.end(), 0.0);
    double running = 0.0;
    size_t i = 0;
    while (i + 1 < shares.size() && (running += shares[i]) <= wanted) ++i;
    return static_cast<int32_t>(i);
}

// Chooses one token a row. A thread keeps it, and its memory, from row to row.
class RowSampler {
  public:
    void run(ConstMatrix logits, const SamplingBatch& sampling, const SampledBatch& sampled, int64_t row);

  private:
    int32_t choose(const float* logits, const SamplingBatch& sampling, int64_t row);
    void report(const float* logits, const SamplingBatch& sampling, const SampledBatch& sampled, int64_t row);

    std::vector<float> changed_, shares_;
    std::vector<int32_t> ids_;
};

int32_t RowSampler::choose(const float* logits, const SamplingBatch& sampling, int64_t row) {
    const int64_t size = sampling.vocab_size;
    float largest = max_or_nan(logits, size);
    if (!std::isfinite(largest)) return kNotFinite;
    const float* x = apply_rules(sampling.rules, row, logits, size, changed_);
    if (x != logits) largest = max_or_nan(x, size);
    if (!std::isfinite(largest)) return largest == -kInfinity ? kNothingLeft : kNotFinite;
    const float temperature = sampling.temperature[row];
    if (temperature < kGreedyBelow) return static_cast<int32_t>(std::find(x, x + size, largest) - x);

    shares_.resize(size);
    compute_shares(x, size, largest, temperature, shares_.data());
    if (sampling.min_p[row] > 0) cut_min_p(shares_, sampling.min_p[row]);
    if (sampling.top_k[row] > 0) cut_top_k(shares_, x, sampling.top_k[row]);
    if (sampling.top_p[row] < 1) cut_top_p(shares_, x, sampling.top_p[row]);
    return draw(shares_, philox_uniform(sampling.seed[row], sampling.output_index[row]));
}

// Rank and log-probabilities under the raw distribution of a row whose token is chosen.
void RowSampler::report(const float* logits, const SamplingBatch& sampling, const SampledBatch& sampled, int64_t row) {
    const int64_t size = sampling.vocab_size;
    const int32_t token_id = sampled.token_ids[row];
    const float largest = max_or_nan(logits, size);
    shares_.resize(size);
    compute_shares(logits, size, largest, 1.0f, shares_.data());
    const double log_sum = std::log(std::accumulate(shares_.begin(), shares_.end(), 0.0));
    const auto logprob = [&](int32_t id) {
        return static_cast<float>(static_cast<double>(logits[id]) - largest - log_sum);
    };
    sampled.logprob[row] = logprob(token_id);
    int32_t rank = 1;
    for (int64_t i = 0; i < size; ++i) rank += logits[i] > logits[token_id];
    sampled.rank[row] = rank;

    ids_.resize(size);
    std::iota(ids_.begin(), ids_.end(), 0);
    const auto top_end = ids_.begin() + std::min<int64_t>(sampling.num_logprobs[row], size);
    std::partial_sort(ids_.begin(), top_end, ids_.end(),
                      [&](int32_t a, int32_t b) { return logits[a] != logits[b] ? logits[a] > logits[b] : a < b; });
    const int64_t first = row * sampled.max_logprobs;
    std::copy(ids_.begin(), top_end, sampled.top_ids + first);
    std::transform(ids_.begin(), top_end, sampled.top_logprobs + first, logprob);
}

void RowSampler::run(ConstMatrix logits, const SamplingBatch& sampling, const SampledBatch& sampled, int64_t row) {
    sampled.token_ids[row] = choose(logits.row(row), sampling, row);
    if (sampled.token_ids[row] >= 0 && sampling.num_logprobs[row] >= 0) report(logits.row(row), sampling, sampled, row);
}

}  // namespace

void sample(ThreadPool& pool, ConstMatrix logits, const SamplingBatch& sampling, const SampledBatch& sampled) {
    pool.parallel_for(logits.num_rows, [&](int64_t row) {
        static thread_local RowSampler sampler;
        sampler.run(logits, sampling, sampled, row);
    });
}

double philox_uniform(uint64_t seed, uint64_t output_index) {
    uint32_t counter[4] = {static_cast<uint32_t>(output_index), static_cast<uint32_t>(output_index >> 32), 0, 0};
    uint32_t key[2] = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
    for (int round = 0; round < 10; ++round) {
        const uint64_t product_0 = uint64_t{0xD2511F53} * counter[0], product_1 = uint64_t{0xCD9E8D57} * counter[2];
        const uint32_t next_0 = static_cast<uint32_t>(product_1 >> 32) ^ counter[1] ^ key[0];
        const uint32_t next_2 = static_cast<uint32_t>(product_0 >> 32) ^ counter[3] ^ key[1];
        counter[0] = next_0;
        counter[1] = static_cast<uint32_t>(product_1);
        counter[2] = next_2;
        counter[3] = static_cast<uint32_t>(product_0);
        key[0] += 0x9E3779B9;
        key[1] += 0xBB67AE85;
    }
    return static_cast<double>((uint64_t{counter[1]} << 32 | counter[0]) >> 11) * 0x1p-53;
}

}  // namespace octavo
