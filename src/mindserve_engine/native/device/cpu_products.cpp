// Products of activations with 4-bit and 8-bit weights, in whole numbers.
//
// A row of activations is rounded to 8 bits with one scale per 32 inputs, as the weights have theirs. Where one input of
// a group outweighs all others together, 8 bits would leave those nothing: such an input is taken out and multiplied as
// the float it is. On the default model that is one group in five; it costs a twentieth of the time and brings the
// divergence of answers from exact ones down from 0.0028 to 0.0005, when bfloat16 has 0.0002.
//
// Products and sums of 32 inputs are exact in integers; those of the groups are added as floats in the order of the
// inputs. So an output depends on its own row alone, never on its neighbours in the batch.
//
// Weights lie in panels: the outputs of one panel side by side, group after group, so that a product reads memory once
// and in order. One group of a panel:
//   4 bits: 16 outputs. 16 scales, 16 minima (float16), then for each 4 inputs 32 bytes: output o in the low halves
//           of bytes 4 o .. 4 o + 3, output 8 + o in the high halves.
//   8 bits: 8 outputs. 8 scales (float16), then for each 4 inputs 32 bytes, output o in bytes 4 o .. 4 o + 3.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#include "cpu_dot.h"

namespace {

constexpr int64_t kGroup = 32;            // inputs that share a scale
constexpr int kQuads = kGroup / 4;        // 4 inputs of 8 outputs fill a register
constexpr int64_t kRowBytes = 48 << 10;  // of rounded activations that are worked on together: they stay in the nearest cache
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int64_t kParallelWork = 1 << 15;  // weights times rows: below, waking the threads costs more than the work

inline __m256i bytes(const uint8_t* from) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)); }
inline __m256 halves(const uint8_t* from) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}
inline __m256i repeated(const int8_t* four_codes) {
    int32_t four;
    std::memcpy(&four, four_codes, sizeof four);
    return _mm256_set1_epi32(four);
}

// Rows of activations as whole numbers: value = code * scale; sums are those of a group's values. The input that was
// taken out of a group has code 0; its value is 0 where there is none.
struct Rounded {
    int64_t inputs;
    int8_t* codes;   // [rows, inputs]
    float* scales;   // [rows, inputs / 32]
    float* sums;     // [rows, inputs / 32]
    float* greats;   // [rows, inputs / 32] values of those taken out
    int8_t* places;  // [rows, inputs / 32] and where they stand in the group
    int64_t groups() const { return inputs / kGroup; }
    Rounded from(int64_t row) const {
        const int64_t group = row * groups();
        return {inputs, codes + row * inputs, scales + group, sums + group, greats + group, places + group};
    }
};

// 32 values, none greater than `top`, as 8 bits; returns the sum of the codes.
inline int round_group(const float* values, float top, int8_t* codes) {
    const __m256 inverse = _mm256_set1_ps(top > 0 ? 127 / top : 0);
    const auto whole = [&](int i) { return _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(values + i), inverse)); };
    const __m256i first = whole(0), second = whole(8), third = whole(16), fourth = whole(24);
    // packing works within halves of a register: the order of fours is put right afterwards
    const __m256i packed = _mm256_packs_epi16(_mm256_packs_epi32(first, second), _mm256_packs_epi32(third, fourth));
    const __m256i ordered = _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(codes), ordered);
    int32_t eight[8], total = 0;
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(eight), _mm256_add_epi32(_mm256_add_epi32(first, second),
                                                                             _mm256_add_epi32(third, fourth)));
    for (int i = 0; i < 8; ++i) total += eight[i];
    return total;
}

inline float greatest(const float* values) {
    float top = 0;
#pragma omp simd reduction(max : top)
    for (int i = 0; i < kGroup; ++i) top = std::fabs(values[i]) > top ? std::fabs(values[i]) : top;
    return top;
}

void round_row(const float* x, const Rounded& to) {
    for (int64_t g = 0; g < to.groups(); ++g) {
        float values[kGroup], squares = 0, nothing = 0;
#pragma omp simd reduction(+ : squares, nothing)
        for (int i = 0; i < kGroup; ++i) {
            const float value = x[g * kGroup + i];
            values[i] = value;
            squares += value * value;
            nothing += value * 0;  // NaN where a value is none or infinite: it must not get lost in a whole number
        }
        float top = greatest(values);
        to.greats[g] = 0;
        if (2 * top * top > squares && top < kInfinity) {
            int place = 0;
            while (std::fabs(values[place]) != top) ++place;
            to.greats[g] = values[place];
            to.places[g] = static_cast<int8_t>(place);
            values[place] = 0;
            top = greatest(values);
        }
        const float scale = top / 127 + nothing;
        to.scales[g] = scale;
        to.sums[g] = scale * static_cast<float>(round_group(values, top, to.codes + g * kGroup));
    }
}

struct FourBits {
    static constexpr int kOutputs = 16;
    static constexpr int64_t kBlock = 4 * kOutputs + 32 * kQuads;

    template <int kRows>
    static void tile(const uint8_t* block, const Rounded& x, float* out) {
        const __m256i low = _mm256_set1_epi8(15);
        const int64_t groups = x.groups();
        __m256 total[kRows][2];
        for (int r = 0; r < kRows; ++r) total[r][0] = total[r][1] = _mm256_setzero_ps();
        for (int64_t g = 0; g < groups; ++g, block += kBlock) {
            __m256i sums[kRows][2];
            for (int r = 0; r < kRows; ++r) sums[r][0] = sums[r][1] = _mm256_setzero_si256();
#pragma GCC unroll 8
            for (int q = 0; q < kQuads; ++q) {
                const __m256i both = bytes(block + 64 + 32 * q);
                const __m256i first = _mm256_and_si256(both, low);
                const __m256i second = _mm256_and_si256(_mm256_srli_epi16(both, 4), low);
#pragma GCC unroll 8
                for (int r = 0; r < kRows; ++r) {
                    const __m256i code = repeated(x.codes + r * x.inputs + g * kGroup + 4 * q);
                    sums[r][0] = SmallSums::add(sums[r][0], first, code);
                    sums[r][1] = SmallSums::add(sums[r][1], second, code);
                }
            }
            const __m256 scale[2] = {halves(block), halves(block + 16)};
            const __m256 minimum[2] = {halves(block + 32), halves(block + 48)};
#pragma GCC unroll 8
            for (int r = 0; r < kRows; ++r) {
                const __m256 factor = _mm256_set1_ps(x.scales[r * groups + g]);
                const __m256 sum = _mm256_set1_ps(x.sums[r * groups + g]);
                for (int half = 0; half < 2; ++half) {
                    const __m256 dot = _mm256_cvtepi32_ps(SmallSums::total(sums[r][half]));
                    total[r][half] = _mm256_fmadd_ps(dot, _mm256_mul_ps(scale[half], factor), total[r][half]);
                    total[r][half] = _mm256_fmadd_ps(minimum[half], sum, total[r][half]);
                }
                const float great = x.greats[r * groups + g];
                if (great == 0) continue;
                const int place = x.places[r * groups + g];
                const __m256i quad = bytes(block + 64 + 32 * (place / 4));
                for (int half = 0; half < 2; ++half) {
                    const __m128i shift = _mm_cvtsi32_si128(8 * (place % 4) + 4 * half);
                    const __m256i code = _mm256_and_si256(_mm256_srl_epi32(quad, shift), _mm256_set1_epi32(15));
                    const __m256 weight = _mm256_fmadd_ps(_mm256_cvtepi32_ps(code), scale[half], minimum[half]);
                    total[r][half] = _mm256_fmadd_ps(weight, _mm256_set1_ps(great), total[r][half]);
                }
            }
        }
        for (int r = 0; r < kRows; ++r)
            for (int half = 0; half < 2; ++half) _mm256_storeu_ps(out + r * kOutputs + 8 * half, total[r][half]);
    }
};

struct EightBits {
    static constexpr int kOutputs = 8;
    static constexpr int64_t kBlock = 2 * kOutputs + 32 * kQuads;

    // The product wants one side without sign: the weight's sign goes over to the activation.
    template <int kRows>
    static void tile(const uint8_t* block, const Rounded& x, float* out) {
        const int64_t groups = x.groups();
        __m256 total[kRows];
        for (int r = 0; r < kRows; ++r) total[r] = _mm256_setzero_ps();
        for (int64_t g = 0; g < groups; ++g, block += kBlock) {
            __m256i sums[kRows];
            for (int r = 0; r < kRows; ++r) sums[r] = _mm256_setzero_si256();
#pragma GCC unroll 8
            for (int q = 0; q < kQuads; ++q) {
                const __m256i weight = bytes(block + 16 + 32 * q), size = _mm256_abs_epi8(weight);
#pragma GCC unroll 8
                for (int r = 0; r < kRows; ++r) {
                    const __m256i code = repeated(x.codes + r * x.inputs + g * kGroup + 4 * q);
                    sums[r] = Sums::add(sums[r], size, _mm256_sign_epi8(code, weight));
                }
            }
            const __m256 scale = halves(block);
#pragma GCC unroll 8
            for (int r = 0; r < kRows; ++r) {
                const __m256 factor = _mm256_mul_ps(scale, _mm256_set1_ps(x.scales[r * groups + g]));
                total[r] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(Sums::total(sums[r])), factor, total[r]);
                const float great = x.greats[r * groups + g];
                if (great == 0) continue;
                const int place = x.places[r * groups + g];
                const __m128i shift = _mm_cvtsi32_si128(24 - 8 * (place % 4));
                const __m256i quad = bytes(block + 16 + 32 * (place / 4));
                const __m256i code = _mm256_srai_epi32(_mm256_sll_epi32(quad, shift), 24);
                const __m256 weight = _mm256_mul_ps(_mm256_cvtepi32_ps(code), scale);
                total[r] = _mm256_fmadd_ps(weight, _mm256_set1_ps(great), total[r]);
            }
        }
        for (int r = 0; r < kRows; ++r) _mm256_storeu_ps(out + r * kOutputs, total[r]);
    }
};

struct Output {
    float* out;         // [rows, outputs]
    int64_t outputs;
    const float* bias;  // [outputs] or null
};

// `count` outputs of one row from output number `first` on.
inline void put(const Output& to, int64_t row, int64_t first, const float* values, int count) {
    float* place = to.out + row * to.outputs + first;
    if (to.bias == nullptr)
        for (int o = 0; o < count; ++o) place[o] = values[o];
    else
        for (int o = 0; o < count; ++o) place[o] = values[o] + to.bias[first + o];
}

// Rows of one panel whose first output is number `first`.
template <class Bits, int kRows>
void panel_rows(const uint8_t* panel, const Rounded& x, int64_t row, int64_t first, const Output& to) {
    constexpr int kOutputs = Bits::kOutputs;
    float tile[kRows * kOutputs];
    Bits::template tile<kRows>(panel, x.from(row), tile);
    const int64_t left = to.outputs - first;
    for (int r = 0; r < kRows; ++r)
        if (left >= kOutputs) put(to, row + r, first, tile + r * kOutputs, kOutputs);
        else put(to, row + r, first, tile + r * kOutputs, static_cast<int>(left));
}

template <class Bits>
void panel_product(const uint8_t* panel, const Rounded& x, int64_t begin, int64_t end, int64_t first,
                   const Output& to) {
    int64_t row = begin;
    for (; row + kTileRows <= end; row += kTileRows) panel_rows<Bits, kTileRows>(panel, x, row, first, to);
    for (; row + 4 <= end; row += 4) panel_rows<Bits, 4>(panel, x, row, first, to);
    switch (end - row) {
        case 3: panel_rows<Bits, 3>(panel, x, row, first, to); break;
        case 2: panel_rows<Bits, 2>(panel, x, row, first, to); break;
        case 1: panel_rows<Bits, 1>(panel, x, row, first, to); break;
        default: break;
    }
}

template <class Bits>
void product(const float* x, int64_t stride, int64_t rows, int64_t inputs, const uint8_t* panels, const Output& to) {
    const int64_t groups = inputs / kGroup, num_panels = (to.outputs + Bits::kOutputs - 1) / Bits::kOutputs;
    // Of the thread that asks; it grows to the largest step's size once.
    static thread_local std::vector<int8_t> codes;
    static thread_local std::vector<float> factors;
    if (static_cast<int64_t>(codes.size()) < rows * (inputs + groups)) codes.resize(rows * (inputs + groups));
    if (static_cast<int64_t>(factors.size()) < 3 * rows * groups) factors.resize(3 * rows * groups);
    float* all = factors.data();
    const Rounded rounded{inputs, codes.data(), all, all + rows * groups, all + 2 * rows * groups,
                          codes.data() + rows * inputs};
    const int64_t together = std::max<int64_t>(4, kRowBytes / inputs / 4 * 4), parts = (rows + together - 1) / together;
#pragma omp parallel if (rows * inputs * to.outputs >= kParallelWork)
    {
#pragma omp for schedule(static)
        for (int64_t row = 0; row < rows; ++row)
            round_row(x + row * stride, rounded.from(row));
#pragma omp for schedule(static) collapse(2)
        for (int64_t part = 0; part < parts; ++part)
            for (int64_t panel = 0; panel < num_panels; ++panel)
                panel_product<Bits>(panels + panel * groups * Bits::kBlock, rounded, part * together,
                                       std::min(rows, (part + 1) * together), panel * Bits::kOutputs, to);
    }
}

}  // namespace

extern "C" {

int mindserve_has_products() { return 1; }

// x [rows, inputs] with `stride` numbers from row to row, inputs a multiple of 32; out [rows, outputs], without gaps.
void mindserve_product(int bits, const float* x, int64_t stride, int64_t rows, int64_t inputs, const uint8_t* panels,
                       int64_t outputs, const float* bias, float* out) {
    if (bits == 4) product<FourBits>(x, stride, rows, inputs, panels, {out, outputs, bias});
    else product<EightBits>(x, stride, rows, inputs, panels, {out, outputs, bias});
}
}

#else

extern "C" {

int mindserve_has_products() { return 0; }
void mindserve_product(int, const float*, int64_t, int64_t, int64_t, const uint8_t*, int64_t, const float*, float*) {}
}

#endif
