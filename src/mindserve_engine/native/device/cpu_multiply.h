// Products of floats with matrices of any type, sixteen columns at a time. Every sum is in the order of the inputs,
// whatever the number of rows.
#pragma once

#include <cstdint>
#include <type_traits>

#include "cpu_numbers.h"

namespace {

typedef float Eight __attribute__((vector_size(32), aligned(4), may_alias));
typedef uint32_t EightBits __attribute__((vector_size(32)));
typedef uint16_t EightShorts __attribute__((vector_size(16), aligned(2), may_alias));

inline Eight eight(const float* from) { return *reinterpret_cast<const Eight*>(from); }
inline Eight eight(const BFloat16* from) {
    const EightShorts bits = *reinterpret_cast<const EightShorts*>(from);
    return reinterpret_cast<Eight>(__builtin_convertvector(bits, EightBits) << 16);
}
inline Eight eight(const Half* from) {
    Eight wide;
    for (int i = 0; i < 8; ++i) wide[i] = static_cast<float>(from[i]);
    return wide;
}

// sums [rows, 16] += left [rows, count] * right [count, 16], in the order of `count`
template <int kRows, class K>
inline void sixteen(const float* left, int64_t left_stride, const K* right, int64_t right_stride, int64_t count,
                    float* sums, int64_t sums_stride) {
    Eight low[kRows], high[kRows];
    for (int r = 0; r < kRows; ++r) low[r] = eight(sums + r * sums_stride), high[r] = eight(sums + r * sums_stride + 8);
    for (int64_t i = 0; i < count; ++i) {
        const Eight first = eight(right + i * right_stride), second = eight(right + i * right_stride + 8);
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) {
            low[r] += left[r * left_stride + i] * first;
            high[r] += left[r * left_stride + i] * second;
        }
    }
    for (int r = 0; r < kRows; ++r) {
        *reinterpret_cast<Eight*>(sums + r * sums_stride) = low[r];
        *reinterpret_cast<Eight*>(sums + r * sums_stride + 8) = high[r];
    }
}

// The same for any number of rows and columns.
template <class K>
void multiply(const float* left, int64_t left_stride, const K* right, int64_t right_stride, int64_t count, float* sums,
              int64_t sums_stride, int64_t rows, int64_t columns) {
    int64_t column = 0;
    for (; column + 16 <= columns; column += 16) {
        int64_t r = 0;
        const K* from = right + column;
        const auto some = [&](auto how_many) {
            constexpr int kRows = decltype(how_many)::value;
            sixteen<kRows>(left + r * left_stride, left_stride, from, right_stride, count,
                           sums + r * sums_stride + column, sums_stride);
            r += kRows;
        };
        while (r + 4 <= rows) some(std::integral_constant<int, 4>());
        if (rows - r == 3) some(std::integral_constant<int, 3>());
        else if (rows - r == 2) some(std::integral_constant<int, 2>());
        else if (rows - r == 1) some(std::integral_constant<int, 1>());
    }
    for (; column < columns; ++column)
        for (int64_t r = 0; r < rows; ++r) {
            float sum = sums[r * sums_stride + column];
            for (int64_t i = 0; i < count; ++i) sum += left[r * left_stride + i] * load(right[i * right_stride + column]);
            sums[r * sums_stride + column] = sum;
        }
}

}  // namespace
