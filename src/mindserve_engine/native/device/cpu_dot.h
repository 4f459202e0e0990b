// Sums of products of bytes, one side without sign: 8 sums of 4 products each at a time (AVX2 and FMA are given).
//
// Processors with VNNI have one instruction for it, others need three. Products are exact either way, so that results are
// the same bits. MINDSERVE_EMULATED_VNNI takes the way of VNNI without the instruction: tests compare the two with it.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace {

// Keeps the compiler from adding a whole group's products up in another order, for which it has not registers enough.
inline __m256i in_order(__m256i sum) {
    asm("" : "+x"(sum));
    return sum;
}

#if defined(__AVX512VNNI__) && defined(__AVX512VL__)
inline __m256i dot(__m256i sum, __m256i plain, __m256i with_sign) { return _mm256_dpbusd_epi32(sum, plain, with_sign); }
#define MINDSERVE_VNNI
#elif defined(__AVXVNNI__)
inline __m256i dot(__m256i sum, __m256i plain, __m256i with_sign) {
    return _mm256_dpbusd_avx_epi32(sum, plain, with_sign);
}
#define MINDSERVE_VNNI
#elif defined(MINDSERVE_EMULATED_VNNI)
inline __m256i dot(__m256i sum, __m256i plain, __m256i with_sign) {
    alignas(32) uint8_t left[32];
    alignas(32) int8_t right[32];
    alignas(32) int32_t sums[8];
    _mm256_store_si256(reinterpret_cast<__m256i*>(left), plain);
    _mm256_store_si256(reinterpret_cast<__m256i*>(right), with_sign);
    _mm256_store_si256(reinterpret_cast<__m256i*>(sums), sum);
    for (int i = 0; i < 32; ++i) sums[i / 4] += left[i] * right[i];
    return _mm256_load_si256(reinterpret_cast<const __m256i*>(sums));
}
#define MINDSERVE_VNNI
#endif

#if defined(MINDSERVE_VNNI)
constexpr int kTileRows = 8;  // 32 registers hold the sums of so many rows (VNNI without AVX-512 spills a few)

struct SmallSums {
    static __m256i add(__m256i sum, __m256i plain, __m256i with_sign) { return dot(sum, plain, with_sign); }
    static __m256i total(__m256i sum) { return sum; }
};
using Sums = SmallSums;
#else
constexpr int kTileRows = 4;

// Of up to 16 products of 15 * 127 at most: they fit 16 bits until the end.
struct SmallSums {
    static __m256i add(__m256i sum, __m256i plain, __m256i with_sign) {
        return in_order(_mm256_add_epi16(sum, _mm256_maddubs_epi16(plain, with_sign)));
    }
    static __m256i total(__m256i sum) { return _mm256_madd_epi16(sum, _mm256_set1_epi16(1)); }
};
// Of any number of pairs of products of 128 * 127 at most: 2 * 128 * 127 fits 16 bits.
struct Sums {
    static __m256i add(__m256i sum, __m256i plain, __m256i with_sign) {
        const __m256i pairs = _mm256_maddubs_epi16(plain, with_sign);
        return in_order(_mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1))));
    }
    static __m256i total(__m256i sum) { return sum; }
};
#endif

}  // namespace
