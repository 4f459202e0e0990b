// Products of floats with matrices of any type, sixteen columns at a time. Every sum is in the order of the inputs,
// whatever the number of rows.
#pragma once

#include <cstdint>
#include <type_traits>
#include <vector>

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

// Memory that is read later: few rows wait for memory, so that it is asked for early, line by line.
struct Region {
    const char* from = nullptr;
    int64_t width = 0, stride = 0, rows = 0;  // bytes
};
class Coming {
  public:
    void clear() { regions_.clear(), now_ = at_ = 0; }
    void add(const Region& region) { regions_.push_back(region); }
    void reached(size_t number) {  // that region is read now
        if (now_ <= number) now_ = number + 1, at_ = 0;
    }
    void ask() {
        if (now_ >= regions_.size()) return;
        Region& region = regions_[now_];
        __builtin_prefetch(region.from + at_, 0, 2);
        at_ += 64;
        if (at_ < region.width) return;
        region.from += region.stride, at_ = 0;
        if (--region.rows <= 0) ++now_;
    }

  private:
    std::vector<Region> regions_;
    size_t now_ = 0;
    int64_t at_ = 0;
};

// sums [rows, 16 * kWide] += left [rows, count] * right [count, 16 * kWide], in the order of `count`
template <int kRows, int kWide, bool kAsks, class K>
inline void strip(const float* left, int64_t left_stride, const K* right, int64_t right_stride, int64_t count,
                  float* sums, int64_t sums_stride, Coming* coming) {
    Eight one[kRows][kWide], other[kRows][kWide];
    for (int r = 0; r < kRows; ++r)
        for (int w = 0; w < kWide; ++w) Sixteen<K>::gather(sums + r * sums_stride + 16 * w, one[r][w], other[r][w]);
    for (int64_t i = 0; i < count; ++i) {
        const K* from = right + i * right_stride;
        if constexpr (kAsks) coming->ask();
#pragma GCC unroll 4
        for (int w = 0; w < kWide; ++w) {
            Eight first, second;
            Sixteen<K>::split(from + 16 * w, first, second);
#pragma GCC unroll 6
            for (int r = 0; r < kRows; ++r) {
                one[r][w] += left[r * left_stride + i] * first;
                other[r][w] += left[r * left_stride + i] * second;
            }
        }
    }
    for (int r = 0; r < kRows; ++r)
        for (int w = 0; w < kWide; ++w) Sixteen<K>::scatter(sums + r * sums_stride + 16 * w, one[r][w], other[r][w]);
}

// The same for any number of rows and columns. Few rows go through whole lines of memory.
// With `kAsks`, memory of `coming` is asked for on the way.
template <class K, bool kAsks = false>
void multiply(const float* left, int64_t left_stride, const K* right, int64_t right_stride, int64_t count, float* sums,
              int64_t sums_stride, int64_t rows, int64_t columns, Coming* coming = nullptr) {
    int64_t column = 0;
    const auto strips = [&](auto rows_and_width, int64_t r) {
        constexpr int kRows = decltype(rows_and_width)::value / 8, kWide = decltype(rows_and_width)::value % 8;
        strip<kRows, kWide, kAsks>(left + r * left_stride, left_stride, right + column, right_stride, count,
                            sums + r * sums_stride + column, sums_stride, coming);
    };
    const auto all = [&](auto rows_and_width) {  // as long as the strips are that wide
        for (constexpr int kColumns = 16 * (decltype(rows_and_width)::value % 8); column + kColumns <= columns;
             column += kColumns)
            strips(rows_and_width, 0);
    };
    switch (rows) {
        case 1: all(std::integral_constant<int, 8 * 1 + 4>()); break;
        case 2: all(std::integral_constant<int, 8 * 2 + 2>()); break;
        case 3: all(std::integral_constant<int, 8 * 3 + 2>()); break;
        default: break;
    }
    for (; column + 16 <= columns; column += 16) {
        int64_t r = 0;
        for (; r + 6 <= rows; r += 6) strips(std::integral_constant<int, 8 * 6 + 1>(), r);
        switch (rows - r) {  // sums, inputs and one factor of six rows: fifteen registers
            case 5: strips(std::integral_constant<int, 8 * 5 + 1>(), r); break;
            case 4: strips(std::integral_constant<int, 8 * 4 + 1>(), r); break;
            case 3: strips(std::integral_constant<int, 8 * 3 + 1>(), r); break;
            case 2: strips(std::integral_constant<int, 8 * 2 + 1>(), r); break;
            case 1: strips(std::integral_constant<int, 8 * 1 + 1>(), r); break;
            default: break;
        }
    }
    for (; column < columns; ++column)
        for (int64_t r = 0; r < rows; ++r) {
            float sum = sums[r * sums_stride + column];
            for (int64_t i = 0; i < count; ++i) sum += left[r * left_stride + i] * load(right[i * right_stride + column]);
            sums[r * sums_stride + column] = sum;
        }
}

}  // namespace
