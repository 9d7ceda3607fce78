// The Python face of the kernels. It checks what the kernels take on trust, shapes and ids, so that a mistake is an
// error and not a crash, and lets other Python threads run meanwhile. Only the files named after bindings know Python.

#include "bindings.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <optional>
#include <stdexcept>
#include <string>

#include "attention.h"
#include "cpu.h"
#include "dequantize.h"
#include "elementwise.h"
#include "kv_cache.h"
#include "limits.h"
#include "linear.h"
#include "norm.h"
#include "rotary.h"
#include "thread_pool.h"

#define OCTAVO_STRING_OF(x) #x
#define OCTAVO_STRING(x) OCTAVO_STRING_OF(x)
#define OCTAVO_CONCAT_OF(a, b) a##b
#define OCTAVO_CONCAT(a, b) OCTAVO_CONCAT_OF(a, b)

using namespace nb::literals;

namespace octavo {
namespace {

constexpr nb::call_guard<nb::gil_scoped_release> kWithoutGil{};

void bind_layers(nb::module_& m) {
    m.def(
        "linear",
        [](ThreadPool& pool, Rows x, const LinearWeight& weight, OutRows out) {
            require_equal(x.shape(1), weight.num_inputs(), "columns of x");
            linear(pool, view(x, "x"), weight, view_out(out, x.shape(0), weight.num_outputs()));
        },
        "pool"_a, "x"_a.noconvert(), "weight"_a, "out"_a.noconvert(), kWithoutGil);
    m.def(
        "embed",
        [](ThreadPool& pool, Ids token_ids, const LinearWeight& weight, OutRows out) {
            require_all_in(token_ids, 0, weight.num_outputs(), "token_ids");
            embed(pool, token_ids.data(), weight, view_out(out, token_ids.size(), weight.num_inputs()));
        },
        "pool"_a, "token_ids"_a.noconvert(), "weight"_a, "out"_a.noconvert(), kWithoutGil);
    m.def(
        "rms_norm",
        [](ThreadPool& pool, Rows x, Array1<const float> weight, float eps, OutRows out) {
            const int64_t size = weight.size();
            require(size > 0 && x.shape(1) % size == 0, "columns of x are " + std::to_string(x.shape(1)) +
                                                            ", expected a multiple of the weight's " +
                                                            std::to_string(size));
            rms_norm(pool, view(x, "x"), weight.data(), size, eps, view_out(out, x.shape(0), x.shape(1)));
        },
        "pool"_a, "x"_a.noconvert(), "weight"_a.noconvert(), "eps"_a, "out"_a.noconvert(), kWithoutGil);
    m.def(
        "rotary",
        [](ThreadPool& pool, Rows x, Ids positions, Rows cos, Rows sin, OutRows out) {
            const int64_t head_dim = 2 * cos.shape(1);
            require(head_dim > 0 && x.shape(1) % head_dim == 0, "columns of x are " + std::to_string(x.shape(1)) +
                                                                    ", expected a multiple of the head size " +
                                                                    std::to_string(head_dim));
            require_equal(sin.shape(0), cos.shape(0), "rows of sin");
            require_equal(sin.shape(1), cos.shape(1), "columns of sin");
            require_equal(positions.size(), x.shape(0), "size of positions");
            require_all_in(positions, 0, cos.shape(0), "positions");
            rotary(pool, view(x, "x"), positions.data(), {view(cos, "cos"), view(sin, "sin")},
                   view_out(out, x.shape(0), x.shape(1)));
        },
        "pool"_a, "x"_a.noconvert(), "positions"_a.noconvert(), "cos"_a.noconvert(), "sin"_a.noconvert(),
        "out"_a.noconvert(), kWithoutGil);
}

void bind_elementwise(nb::module_& m) {
    m.def(
        "add",
        [](ThreadPool& pool, Rows x, Rows y, OutRows out) {
            require_equal(y.shape(0), x.shape(0), "rows of y");
            require_equal(y.shape(1), x.shape(1), "columns of y");
            add(pool, view(x, "x"), view(y, "y"), view_out(out, x.shape(0), x.shape(1)));
        },
        "pool"_a, "x"_a.noconvert(), "y"_a.noconvert(), "out"_a.noconvert(), kWithoutGil);
    m.def(
        "silu_mul",
        [](ThreadPool& pool, Rows gate_up, OutRows out) {
            require_equal(gate_up.shape(1) % 2, 0, "columns of gate_up modulo 2");
            silu_mul(pool, view(gate_up, "gate_up"), view_out(out, gate_up.shape(0), gate_up.shape(1) / 2));
        },
        "pool"_a, "gate_up"_a.noconvert(), "out"_a.noconvert(), kWithoutGil);
    m.def(
        "gather_rows",
        [](ThreadPool& pool, Rows x, Ids rows, OutRows out) {
            require_all_in(rows, 0, x.shape(0), "rows");
            gather_rows(pool, view(x, "x"), rows.data(), view_out(out, rows.size(), x.shape(1)));
        },
        "pool"_a, "x"_a.noconvert(), "rows"_a.noconvert(), "out"_a.noconvert(), kWithoutGil);
}

KvType find_kv_type(const std::string& dtype) {
    if (dtype == "float32") return KvType::kFloat32;
    if (dtype == "bfloat16") return KvType::kBFloat16;
    require(dtype == "int8", "the dtype of the KV cache is " + dtype + ", expected float32, bfloat16 or int8");
    return KvType::kInt8;
}

KvShape make_kv_shape(int64_t num_layers, int64_t num_blocks, int64_t block_size, int64_t num_kv_heads,
                      int64_t head_dim, const std::string& dtype) {
    require(num_layers > 0 && num_blocks > 0 && num_kv_heads > 0, "layers, blocks and KV heads must be positive");
    require(block_size > 0 && block_size % kPage == 0,
            "block_size is " + std::to_string(block_size) + ", expected a multiple of " + std::to_string(kPage));
    require(
        head_dim > 0 && head_dim <= kMaxHeadDim && head_dim % 8 == 0,
        "head_dim is " + std::to_string(head_dim) + ", expected a multiple of 8 up to " + std::to_string(kMaxHeadDim));
    return {num_layers, num_blocks, block_size, num_kv_heads, head_dim, find_kv_type(dtype)};
}

void bind_kv_cache(nb::module_& m) {
    nb::class_<KvLayer>(m, "KVLayer", "Keys and values of one layer of a KVCache.")
        .def_prop_ro("num_columns", [](const KvLayer& kv) { return kv.shape.num_kv_heads * kv.shape.head_dim; });
    nb::class_<KvCache>(m, "KVCache", "Keys and values of all layers.")
        .def(
            "__init__",
            [](KvCache* self, ThreadPool&, int64_t num_layers, int64_t num_blocks, int64_t block_size,
               int64_t num_kv_heads, int64_t head_dim, const std::string& dtype) {
                new (self) KvCache(make_kv_shape(num_layers, num_blocks, block_size, num_kv_heads, head_dim, dtype));
            },
            "pool"_a, nb::kw_only(), "num_layers"_a, "num_blocks"_a, "block_size"_a, "num_kv_heads"_a, "head_dim"_a,
            "dtype"_a, kWithoutGil)
        .def(
            "layer",
            [](KvCache& self, int64_t i) {
                require(i >= 0 && i < self.shape().num_layers, "no layer " + std::to_string(i));
                return self.layer(i);
            },
            "i"_a, nb::keep_alive<0, 1>())
        .def(
            "copy_blocks",
            [](KvCache& self, ThreadPool& pool, Ids pairs) {
                require_equal(pairs.size() % 2, 0, "size of pairs modulo 2");
                require_all_in(pairs, 0, self.shape().num_blocks, "pairs");
                self.copy_blocks(pool, pairs.data(), static_cast<int64_t>(pairs.size()) / 2);
            },
            "pool"_a, "pairs"_a.noconvert(), "pairs holds source, target, source, target, ...", kWithoutGil);
    m.def(
        "write_kv",
        [](ThreadPool& pool, Rows k, Rows v, const KvLayer& kv, Ids slot_mapping) {
            const int64_t num_columns = kv.shape.num_kv_heads * kv.shape.head_dim;
            require_equal(k.shape(1), num_columns, "columns of k");
            require_equal(v.shape(1), num_columns, "columns of v");
            require_equal(v.shape(0), k.shape(0), "rows of v");
            require_equal(slot_mapping.size(), k.shape(0), "size of slot_mapping");
            require_all_in(slot_mapping, -1, kv.shape.num_blocks * kv.shape.block_size, "slot_mapping");
            write_kv(pool, view(k, "k"), view(v, "v"), kv, slot_mapping.data());
        },
        "pool"_a, "k"_a.noconvert(), "v"_a.noconvert(), "kv"_a, "slot_mapping"_a.noconvert(), kWithoutGil);
}

void bind_attention(nb::module_& m) {
    m.def(
        "attend",
        [](ThreadPool& pool, Rows q, const KvLayer& kv, Ids query_start_loc, Ids positions,
           Array2<const int32_t> block_table, nb::handle params, OutRows out) {
            const int64_t kv_columns = kv.shape.num_kv_heads * kv.shape.head_dim;
            require(q.shape(1) > 0 && q.shape(1) % kv_columns == 0,
                    "columns of q are " + std::to_string(q.shape(1)) +
                        ", expected a multiple of KV heads x head_dim, " + std::to_string(kv_columns));
            require_equal(positions.size(), q.shape(0), "size of positions");
            const AttentionBatch batch = attention_batch(query_start_loc, positions, block_table, kv.shape);
            const AttentionParams checked = attention_params(params, q.shape(1) / kv.shape.head_dim);
            const Matrix result = view_out(out, q.shape(0), q.shape(1));
            nb::gil_scoped_release without_gil;
            attend(pool, view(q, "q"), kv, batch, checked, result);
        },
        "pool"_a, "q"_a.noconvert(), "kv"_a, "query_start_loc"_a.noconvert(), "positions"_a.noconvert(),
        "block_table"_a.noconvert(), "params"_a, "out"_a.noconvert());
}

void bind_dequantize(nb::module_& m) {
    m.def(
        "dequantize",
        [](ThreadPool& pool, Array1<const uint8_t> data, const std::string& type_name, Array1<float> out) {
            const QuantFormat& format = find_quant_format(type_name);
            const int64_t num_blocks = static_cast<int64_t>(out.size()) / format.block_size;
            require_equal(out.size() % format.block_size, 0, "elements beyond whole blocks");
            require_equal(data.size(), num_blocks * format.block_bytes, "bytes of data");
            dequantize(pool, format, data.data(), num_blocks, out.data());
        },
        "pool"_a, "data"_a.noconvert(), "type_name"_a, "out"_a.noconvert(), kWithoutGil);
}

void bind_limits(nb::module_& m) {
    m.def("run_multiply_adds", &run_multiply_adds, "pool"_a, "num_rounds"_a, kWithoutGil);
    m.def(
        "read_floats",
        [](ThreadPool& pool, Array1<const float> data) { return read_floats(pool, data.data(), data.size()); },
        "pool"_a, "data"_a.noconvert(), kWithoutGil);
}

}  // namespace

AttentionParams attention_params(nb::handle params, int64_t num_heads) {
    AttentionParams checked{nb::cast<float>(params.attr("scale"))};
    if (const nb::object window = params.attr("window"); !window.is_none()) checked.window = nb::cast<int64_t>(window);
    if (const nb::object cap = params.attr("soft_cap"); !cap.is_none()) checked.soft_cap = nb::cast<float>(cap);
    if (const nb::object sinks = params.attr("sinks"); !sinks.is_none()) {
        const auto array = nb::cast<Array1<const float>>(sinks, false);
        require_equal(array.size(), num_heads, "size of sinks");
        checked.sinks = array.data();
    }
    return checked;
}

// Checks everything that attend looks up: each request's rows, their positions and the blocks up to these.
AttentionBatch attention_batch(const Ids& query_start_loc, const Ids& positions,
                               const Array2<const int32_t>& block_table, const KvShape& shape) {
    require(query_start_loc.size() > 0, "query_start_loc is empty");
    require_equal(block_table.shape(0), query_start_loc.size() - 1, "rows of block_table");
    require(block_table.stride(1) == 1 || block_table.shape(1) <= 1, "block_table: a row must be contiguous");
    const AttentionBatch batch{static_cast<int64_t>(block_table.shape(0)), query_start_loc.data(), positions.data(),
                               block_table.data(), block_table.stride(0)};
    const int64_t max_blocks = block_table.shape(1);
    require_equal(batch.query_start_loc[0], 0, "query_start_loc[0]");
    require_equal(batch.query_start_loc[batch.num_reqs], positions.size(), "the last query_start_loc");
    for (int64_t request = 0; request < batch.num_reqs; ++request) {
        const int64_t first = batch.query_start_loc[request], last = batch.query_start_loc[request + 1] - 1;
        const std::string name = "request " + std::to_string(request);
        require(first <= last + 1, name + ": query_start_loc decreases");
        if (first > last) continue;
        for (int64_t t = first; t <= last; ++t)
            require(batch.positions[t] == batch.positions[first] + (t - first),
                    name + ": positions are not consecutive");
        require(batch.positions[first] >= 0, name + ": a position is negative");
        const int64_t num_blocks = batch.positions[last] / shape.block_size + 1;
        require(num_blocks <= max_blocks, name + ": position " + std::to_string(batch.positions[last]) + " needs " +
                                              std::to_string(num_blocks) + " blocks, block_table has " +
                                              std::to_string(max_blocks));
        const int32_t* blocks = batch.block_table + request * batch.block_table_stride;
        for (int64_t i = 0; i < num_blocks; ++i)
            require(blocks[i] >= 0 && blocks[i] < shape.num_blocks, name + ": block " + std::to_string(i) + " is " +
                                                                        std::to_string(blocks[i]) + ", the cache has " +
                                                                        std::to_string(shape.num_blocks));
    }
    return batch;
}

}  // namespace octavo

// OCTAVO_ISA is the name of this build, without quotes: baseline, avx2 or avx512 (CMakeLists.txt).
NB_MODULE(OCTAVO_CONCAT(_, OCTAVO_ISA), m) {
    m.attr("isa") = OCTAVO_STRING(OCTAVO_ISA);
    m.def("cpu_supports", &octavo::cpu_supports, nb::arg("isa"),
          "True if this CPU and its operating system can run the build named `isa`; False for an unknown name.");
    nb::class_<octavo::ThreadPool>(m, "ThreadPool", "The threads that kernels run on; the caller is one of them.")
        .def(nb::init<int>(), "num_threads"_a)
        .def_prop_ro("num_threads", &octavo::ThreadPool::num_threads);
    octavo::bind_linear(m);
    octavo::bind_layers(m);
    octavo::bind_elementwise(m);
    octavo::bind_kv_cache(m);
    octavo::bind_attention(m);
    octavo::bind_plan(m);
    octavo::bind_sampler(m);
    octavo::bind_dequantize(m);
    octavo::bind_limits(m);
}
