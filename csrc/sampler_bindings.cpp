// The Python face of the sampler: the arrays of a SamplingBatch and of a SampledBatch of src/octavo/backends/ops.py.

#include <string>

#include "bindings.h"
#include "sampler.h"
#include "thread_pool.h"

using namespace nb::literals;

namespace octavo {
namespace {

// The array of `size` entries that `object` holds under `name`.
template <class Scalar>
Scalar* field(nb::handle object, const char* name, int64_t size) {
    Array1<Scalar> array;
    if (!nb::try_cast(object.attr(name), array, false))
        throw nb::type_error((std::string(name) + " must be a contiguous array of the type that ops.py says").c_str());
    require_equal(array.size(), size, (std::string("size of ") + name).c_str());
    return array.data();  // `object` keeps it alive
}

// The lists that `sampling` holds under `name`. Every id must be below `vocab_size`.
IdLists id_lists(nb::handle sampling, const char* name, int64_t num_rows, int64_t vocab_size) {
    const nb::object lists = sampling.attr(name);  // `sampling` keeps it alive
    const int32_t* start = field<const int32_t>(lists, "start", num_rows + 1);
    require(start[0] == 0, std::string(name) + ".start does not begin with 0");
    for (int64_t i = 0; i < num_rows; ++i) require(start[i] <= start[i + 1], std::string(name) + ".start decreases");
    const int32_t* ids = field<const int32_t>(lists, "ids", start[num_rows]);
    for (int32_t i = 0; i < start[num_rows]; ++i)
        require(ids[i] >= 0 && ids[i] < vocab_size, std::string(name) + " has " + std::to_string(ids[i]) +
                                                        ", expected ids below vocab_size, " +
                                                        std::to_string(vocab_size));
    return {start, ids};
}

TokenMasks token_masks(nb::handle sampling, int64_t num_rows, int64_t vocab_size) {
    nb::ndarray<const uint32_t, nb::ndim<2>, nb::c_contig, nb::device::cpu> masks;
    if (!nb::try_cast(sampling.attr("masks"), masks, false))
        throw nb::type_error("masks must be a contiguous array of the type that ops.py says");
    const int64_t num_masks = masks.shape(0), num_words = masks.shape(1);
    require_equal(num_words, (vocab_size + 31) / 32, "width of masks");
    const int32_t* index = field<const int32_t>(sampling, "mask_index", num_rows);
    for (int64_t i = 0; i < num_rows; ++i)
        require(index[i] >= -1 && index[i] < num_masks, "mask_index[" + std::to_string(i) + "] is " +
                                                            std::to_string(index[i]) + ", masks are " +
                                                            std::to_string(num_masks));
    return {index, masks.data(), num_words};  // `sampling` keeps the words alive
}

LogitRules logit_rules(nb::handle sampling, int64_t num_rows, int64_t vocab_size) {
    LogitRules rules{};
    rules.allowed = id_lists(sampling, "allowed", num_rows, vocab_size);
    rules.masks = token_masks(sampling, num_rows, vocab_size);
    rules.banned = id_lists(sampling, "banned", num_rows, vocab_size);
    rules.biased = id_lists(sampling, "biased", num_rows, vocab_size);
    rules.bias = field<const float>(sampling, "bias", rules.biased.start[num_rows]);
    rules.seen = id_lists(sampling, "seen", num_rows, vocab_size);
    rules.output_counts = field<const int32_t>(sampling, "output_counts", rules.seen.start[num_rows]);
    rules.repetition_penalty = field<const float>(sampling, "repetition_penalty", num_rows);
    rules.frequency_penalty = field<const float>(sampling, "frequency_penalty", num_rows);
    rules.presence_penalty = field<const float>(sampling, "presence_penalty", num_rows);
    return rules;
}

SamplingBatch sampling_batch(nb::handle sampling, int64_t num_rows) {
    SamplingBatch batch{};
    batch.temperature = field<const float>(sampling, "temperature", num_rows);
    batch.top_k = field<const int32_t>(sampling, "top_k", num_rows);
    batch.top_p = field<const float>(sampling, "top_p", num_rows);
    batch.min_p = field<const float>(sampling, "min_p", num_rows);
    batch.seed = field<const uint64_t>(sampling, "seed", num_rows);
    batch.output_index = field<const uint64_t>(sampling, "output_index", num_rows);
    batch.num_logprobs = field<const int32_t>(sampling, "num_logprobs", num_rows);
    batch.vocab_size = nb::cast<int64_t>(sampling.attr("vocab_size"));
    batch.rules = logit_rules(sampling, num_rows, batch.vocab_size);
    for (int64_t i = 0; i < num_rows; ++i) require(batch.min_p[i] <= 1, "min_p[" + std::to_string(i) + "] is above 1");
    return batch;
}

}  // namespace

void bind_sampler(nb::module_& m) {
    m.def(
        "sample",
        [](ThreadPool& pool, Rows logits, nb::handle sampling, nb::handle sampled) {
            const int64_t num_rows = logits.shape(0);
            const SamplingBatch batch = sampling_batch(sampling, num_rows);
            require(batch.vocab_size > 0 && batch.vocab_size <= static_cast<int64_t>(logits.shape(1)),
                    "vocab_size is " + std::to_string(batch.vocab_size) + ", logits have " +
                        std::to_string(logits.shape(1)) + " columns");
            const auto top_ids = nb::cast<Array2<int32_t>>(sampled.attr("top_ids"), false);
            const auto top_logprobs = nb::cast<Array2<float>>(sampled.attr("top_logprobs"), false);
            SampledBatch to{};
            to.token_ids = field<int32_t>(sampled, "token_ids", num_rows);
            to.logprob = field<float>(sampled, "logprob", num_rows);
            to.rank = field<int32_t>(sampled, "rank", num_rows);
            to.top_ids = top_ids.data();
            to.top_logprobs = top_logprobs.data();
            to.max_logprobs = static_cast<int64_t>(top_ids.shape(1));
            nb::gil_scoped_release without_gil;
            sample(pool, view(logits, "logits"), batch, to);
        },
        "pool"_a, "logits"_a.noconvert(), "sampling"_a, "sampled"_a);
    m.def("philox_uniform", &philox_uniform, "seed"_a, "output_index"_a);
}

}  // namespace octavo
