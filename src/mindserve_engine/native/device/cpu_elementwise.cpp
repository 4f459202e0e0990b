// What a decoder layer does between its products and its attention, each as one pass over memory: norms, rotary
// embedding, activation. Numbers are float, bfloat16 or float16 in memory and float in registers; a row never depends
// on its neighbours in the batch.

#include <cmath>
#include <cstdint>

#include "cpu_numbers.h"

namespace {

constexpr int64_t kParallelFrom = 1 << 14;  // numbers: below, waking the threads costs more than the work

// ---- norms --------------------------------------------------------------------------------------------------------

// x [rows, heads, dim] with `stride` numbers from row to row; weight [weights, dim], weights being 1 or heads.
// With a residual [rows, heads * dim]: total = residual + x is stored, and normed instead of x.
template <class T>
void norm(const T* x, int64_t stride, const T* residual, T* total, const T* weight, int64_t weights, T* out,
          int64_t rows, int64_t heads, int64_t dim, float eps) {
#pragma omp parallel for schedule(static) if (rows * heads * dim >= kParallelFrom)
    for (int64_t row = 0; row < rows; ++row) {
        for (int64_t head = 0; head < heads; ++head) {
            const T* source = x + row * stride + head * dim;
            const int64_t place = (row * heads + head) * dim;
            if (residual != nullptr) {
#pragma omp simd
                for (int64_t i = 0; i < dim; ++i) store(total + place + i, load(residual[place + i]) + load(source[i]));
                source = total + place;
            }
            float squares = 0;
#pragma omp simd reduction(+ : squares)
            for (int64_t i = 0; i < dim; ++i) squares += load(source[i]) * load(source[i]);
            const float factor = 1.0f / std::sqrt(squares / static_cast<float>(dim) + eps);
            const T* factors = weight + (weights == 1 ? 0 : head * dim);
#pragma omp simd
            for (int64_t i = 0; i < dim; ++i) store(out + place + i, load(source[i]) * factor * load(factors[i]));
        }
    }
}

// ---- rotary embedding, activation ---------------------------------------------------------------------------------

// x [rows, heads, dim] with `stride` numbers from row to row; cosine and sine [rows, dim], the sine signed so that
// out = x * cosine + (x rolled by half) * sine.
template <class T>
void rotary(const T* x, int64_t stride, const T* cosine, const T* sine, T* out, int64_t rows, int64_t heads,
            int64_t dim) {
    const int64_t half = dim / 2;
#pragma omp parallel for schedule(static) if (rows * heads * dim >= kParallelFrom)
    for (int64_t row = 0; row < rows; ++row) {
        const T *c = cosine + row * dim, *s = sine + row * dim;
        for (int64_t head = 0; head < heads; ++head) {
            const T* from = x + row * stride + head * dim;
            T* to = out + (row * heads + head) * dim;
#pragma omp simd
            for (int64_t i = 0; i < half; ++i) {
                const float low = load(from[i]), high = load(from[half + i]);
                store(to + i, low * load(c[i]) + high * load(s[i]));
                store(to + half + i, high * load(c[half + i]) + low * load(s[half + i]));
            }
        }
    }
}

// gate_up [rows, 2 * inner] -> silu(gate) * up [rows, inner]
template <class T>
void swiglu(const T* gate_up, T* out, int64_t rows, int64_t inner) {
#pragma omp parallel for schedule(static) if (rows * inner >= kParallelFrom)
    for (int64_t row = 0; row < rows; ++row) {
        const T *gate = gate_up + row * 2 * inner, *up = gate + inner;
        T* to = out + row * inner;
#pragma omp simd
        for (int64_t i = 0; i < inner; ++i) {
            const float g = load(gate[i]);
            store(to + i, g / (1.0f + exponential(-g)) * load(up[i]));
        }
    }
}

}  // namespace

// ---- by name and type --------------------------------------------------------------------------------------------

extern "C" {

int mindserve_norm(int type, const void* x, int64_t stride, const void* residual, void* total, const void* weight,
                   int64_t weights, void* out, int64_t rows, int64_t heads, int64_t dim, float eps) {
    FOR_TYPE(type, (norm<T>(IN(x), stride, IN(residual), OUT(total), IN(weight), weights, OUT(out), rows, heads, dim,
                            eps)))
}

int mindserve_rotary(int type, const void* x, int64_t stride, const void* cosine, const void* sine, void* out,
                     int64_t rows, int64_t heads, int64_t dim) {
    FOR_TYPE(type, (rotary<T>(IN(x), stride, IN(cosine), IN(sine), OUT(out), rows, heads, dim)))
}

int mindserve_swiglu(int type, const void* gate_up, void* out, int64_t rows, int64_t inner) {
    FOR_TYPE(type, (swiglu<T>(IN(gate_up), OUT(out), rows, inner)))
}
}
