// Products of floats with matrices of any type, sixteen columns at a time. Every sum is in the order of the inputs,
// whatever the number of rows.
#pragma once

#include <cstdint>
#include <type_traits>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

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
#if defined(__AVX2__) && defined(__F16C__)  // the compiler would widen them one by one
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
#else
    Eight wide;
    for (int i = 0; i < 8; ++i) wide[i] = static_cast<float>(from[i]);
    return wide;
#endif
}

// Sixteen numbers in two registers, in whatever order costs least: `split` reads numbers of type K, `gather` and
// `scatter` take floats to that order and back.
template <class K>
struct Sixteen {
    static void split(const K* from, Eight& one, Eight& other) { one = eight(from), other = eight(from + 8); }
    static void gather(const float* from, Eight& one, Eight& other) { one = eight(from), other = eight(from + 8); }
    static void scatter(float* to, Eight one, Eight other) {
        *reinterpret_cast<Eight*>(to) = one, *reinterpret_cast<Eight*>(to + 8) = other;
    }
};

#if defined(__AVX2__)
// Two bfloat16 lie in each 32 bits: the lower is a shift away from a float, the upper a mask.
template <>
struct Sixteen<BFloat16> {
    static void split(const BFloat16* from, Eight& one, Eight& other) {
        const __m256i both = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
        one = _mm256_castsi256_ps(_mm256_slli_epi32(both, 16));
        other = _mm256_castsi256_ps(_mm256_and_si256(both, _mm256_set1_epi32(static_cast<int>(0xffff0000))));
    }
    static void gather(const float* from, Eight& one, Eight& other) {  // even and odd ones
        const __m256 low = _mm256_loadu_ps(from), high = _mm256_loadu_ps(from + 8);
        one = ordered(_mm256_shuffle_ps(low, high, 0x88)), other = ordered(_mm256_shuffle_ps(low, high, 0xdd));
    }
    static void scatter(float* to, Eight one, Eight other) {
        const __m256 first = _mm256_unpacklo_ps(one, other), second = _mm256_unpackhi_ps(one, other);
        _mm256_storeu_ps(to, _mm256_permute2f128_ps(first, second, 0x20));
        _mm256_storeu_ps(to + 8, _mm256_permute2f128_ps(first, second, 0x31));
    }

  private:
    // Shuffling works within halves of a register.
    static __m256 ordered(__m256 mixed) {
        return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(mixed), 0xd8));
    }
};
#endif

// sums [rows, 16] += left [rows, count] * right [count, 16], in the order of `count`
template <int kRows, class K>
inline void sixteen(const float* left, int64_t left_stride, const K* right, int64_t right_stride, int64_t count,
                    float* sums, int64_t sums_stride) {
    Eight one[kRows], other[kRows];
    for (int r = 0; r < kRows; ++r) Sixteen<K>::gather(sums + r * sums_stride, one[r], other[r]);
    for (int64_t i = 0; i < count; ++i) {
        Eight first, second;
        Sixteen<K>::split(right + i * right_stride, first, second);
#pragma GCC unroll 6
        for (int r = 0; r < kRows; ++r) {
            one[r] += left[r * left_stride + i] * first;
            other[r] += left[r * left_stride + i] * second;
        }
    }
    for (int r = 0; r < kRows; ++r) Sixteen<K>::scatter(sums + r * sums_stride, one[r], other[r]);
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
        while (r + 6 <= rows) some(std::integral_constant<int, 6>());  // sums, inputs and one factor: fifteen registers
        if (rows - r == 5) some(std::integral_constant<int, 5>());
        else if (rows - r == 4) some(std::integral_constant<int, 4>());
        else if (rows - r == 3) some(std::integral_constant<int, 3>());
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
