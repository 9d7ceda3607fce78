// Rotary position embedding.

#pragma once

#include "matrix.h"
#include "thread_pool.h"

namespace octavo {

// Cosines and sines of each position, [max positions, D / 2] both.
struct RotaryTable {
    ConstMatrix cos;
    ConstMatrix sin;
};

// Rotates each head of each row of x by the row's position, which must be below the table's. x has heads * D columns.
void rotary(ThreadPool& pool, ConstMatrix x, const int32_t* positions, const RotaryTable& table, Matrix out);

}  // namespace octavo
