// Linear layers with quantized weights, for many rows, on the tile registers of AMX.

#pragma once

#include <cstdint>

#include "matrix.h"
#include "quantized_panels.h"
#include "row_source.h"
#include "thread_pool.h"

namespace octavo {

#if defined(__AMX_INT8__)
constexpr int64_t kMinAmxRows = 16;  // with fewer, getting weights ready takes longer than tiles gain

// As LinearWeight::multiply, to the same bits as without tiles.
template <class Codes>
void multiply_amx(ThreadPool& pool, const QuantizedPanels<Codes>& weight, const RowSource& x,
                  const ConstMatrix* residual, Matrix out);
#endif

}  // namespace octavo
