// Products of activations with weights that are not quantised, for the deterministic mode: an output depends on its own
// row alone, to the bit. Libraries choose their order of summing by the number of rows.
//
// Weights lie in panels of 16 outputs, [inputs, 16] each, in their own type.

#include <algorithm>
#include <cstdint>

#include "cpu_multiply.h"

namespace {

constexpr int64_t kOutputs = 16;
constexpr int64_t kRowsTogether = 32;  // go through a panel while it is in the cache
constexpr int64_t kParallelWork = 1 << 15;

template <class T>
void product(const float* x, int64_t stride, int64_t rows, int64_t inputs, const T* panels, int64_t outputs,
             const float* bias, float* out) {
    const int64_t num_panels = (outputs + kOutputs - 1) / kOutputs, parts = (rows + kRowsTogether - 1) / kRowsTogether;
#pragma omp parallel for schedule(static) collapse(2) if (rows * inputs * outputs >= kParallelWork)
    for (int64_t part = 0; part < parts; ++part)
        for (int64_t panel = 0; panel < num_panels; ++panel) {
            const int64_t begin = part * kRowsTogether, count = std::min(rows - begin, kRowsTogether);
            const int64_t first = panel * kOutputs, width = std::min(outputs - first, kOutputs);
            float sums[kRowsTogether * kOutputs] = {};
            multiply(x + begin * stride, stride, panels + first * inputs, kOutputs, inputs, sums, kOutputs, count,
                     kOutputs);
            for (int64_t r = 0; r < count; ++r)
                for (int64_t o = 0; o < width; ++o)
                    out[(begin + r) * outputs + first + o] =
                        sums[r * kOutputs + o] + (bias == nullptr ? 0.0f : bias[first + o]);
        }
}

}  // namespace

extern "C" {

// x [rows, inputs] with `stride` numbers from row to row; out [rows, outputs], without gaps.
int mindserve_float_product(int type, const float* x, int64_t stride, int64_t rows, int64_t inputs, const void* panels,
                            int64_t outputs, const float* bias, float* out) {
    FOR_TYPE(type, (product<T>(x, stride, rows, inputs, IN(panels), outputs, bias, out)))
}
}
