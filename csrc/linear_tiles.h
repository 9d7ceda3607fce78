// Linear layers with bfloat16 weights on the tile registers of AMX.

#pragma once

#include <cstdint>

#include "bfloat16.h"
#include "matrix.h"
#include "panel.h"
#include "row_source.h"
#include "thread_pool.h"

#if defined(__AMX_BF16__)

namespace octavo {

// W [N, K] in panels of 16 outputs, [N / 16][K / 2][16][2], padded with zeros. Somebody else owns them.
struct PairedPanels {
    const BFloat16* data;
    int64_t num_outputs;
    int64_t num_k;      // K, padded to whole blocks of 32
    const float* bias;  // padded to whole panels; null: none

    int64_t num_panels() const { return (num_outputs + kPanel - 1) / kPanel; }
    const BFloat16* at(int64_t panel) const { return data + panel * num_k * kPanel; }
};

// As LinearWeight::multiply.
void multiply_in_tiles(ThreadPool& pool, const PairedPanels& weight, const RowSource& x, const ConstMatrix* residual,
                       Matrix out);

}  // namespace octavo

#endif
