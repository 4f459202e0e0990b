// What a decoder layer does between its matrix products, each as one pass over memory: norms, rotary embedding,
// activation, cache writes and the attention of single query tokens over the paged cache.
//
// Numbers are float, bfloat16 or float16 in memory and float in registers. The order of every sum depends on a row's own
// length alone, never on its neighbours in the batch. No headers but the standard library's, so that this compiles in
// two seconds wherever a compiler is.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "cpu_numbers.h"

namespace {

// exp(x) = 2^n * exp(r) with |r| <= ln(2) / 2, where seven terms of the series are exact to a rounding. Written without
// branches and calls, so that loops over it are vectorised.
inline float exponential(float x) {
    constexpr float kRounder = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
    x = x > 88.0f ? 88.0f : x;
    x = x < -87.0f ? -87.0f : x;
    const float n = (x * 1.44269504f + kRounder) - kRounder;
    const float r = (x - n * 0.693145752f) - n * 1.42860677e-6f;
    float sum = 1.0f / 5040;
    sum = sum * r + 1.0f / 720;
    sum = sum * r + 1.0f / 120;
    sum = sum * r + 1.0f / 24;
    sum = sum * r + 1.0f / 6;
    sum = sum * r + 0.5f;
    sum = sum * r + 1.0f;
    sum = sum * r + 1.0f;
    const int32_t bits = (static_cast<int32_t>(n) + 127) << 23;
    float power;
    std::memcpy(&power, &bits, sizeof power);
    return sum * power;
}

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

// ---- rotary embedding, activation, cache writes ---------------------------------------------------------------------

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

template <class T, class K>
void copy(const T* from, K* to, int64_t count) {
    if constexpr (std::is_same_v<T, K>) std::memcpy(to, from, count * sizeof(T));
    else {
#pragma omp simd
        for (int64_t i = 0; i < count; ++i) store(to + i, load(from[i]));
    }
}

// The cache of a layer, of the same type or a narrower one: [2, blocks, kv_heads, block_size, dim].
// key and value [rows, kv_heads, dim].
template <class T, class K>
void write_kv(const T* key, int64_t key_stride, const T* value, int64_t value_stride, K* cache, const int64_t* slots,
              int64_t rows, int64_t blocks, int64_t kv_heads, int64_t block_size, int64_t dim) {
    const int64_t values = blocks * kv_heads * block_size * dim;
    for (int64_t row = 0; row < rows; ++row) {
        const int64_t block = slots[row] / block_size, offset = slots[row] % block_size;
        for (int64_t head = 0; head < kv_heads; ++head) {
            K* place = cache + ((block * kv_heads + head) * block_size + offset) * dim;
            copy(key + row * key_stride + head * dim, place, dim);
            copy(value + row * value_stride + head * dim, place + values, dim);
        }
    }
}

// ---- attention of single query tokens -----------------------------------------------------------------------------

constexpr int64_t kChunk = 256;  // tokens that one thread works on at a time: long contexts are shared out
constexpr int64_t kRun = 32;     // tokens widened together

struct Attention {
    int64_t blocks, kv_heads, block_size, dim, groups;  // groups: query heads that share a KV head
    int64_t table_width;
    const int64_t* tables;  // [sequences, table_width]
    float scale, softcap;   // softcap 0: none
    int64_t window;         // 0: none
    const float* sinks;     // [kv_heads * groups] or null
};

// The keys or values of tokens first..first+count of one block and head as floats.
template <class T>
const float* widened(const T* from, int64_t count, float* buffer) {
    if constexpr (std::is_same_v<T, float>) return from;
    else {
#pragma omp simd
        for (int64_t i = 0; i < count; ++i) buffer[i] = load(from[i]);
        return buffer;
    }
}

// Calls use(token, count, pointer) for runs of tokens begin..end that lie side by side in the cache.
template <class T, class Use>
void each_run(const Attention& a, const T* half, int64_t sequence, int64_t head, int64_t begin, int64_t end, Use use) {
    for (int64_t token = begin; token < end;) {
        const int64_t offset = token % a.block_size;
        const int64_t count = std::min({kRun, a.block_size - offset, end - token});
        const int64_t block = a.tables[sequence * a.table_width + token / a.block_size];
        use(token, count, half + ((block * a.kv_heads + head) * a.block_size + offset) * a.dim);
        token += count;
    }
}

// Eight floats in a register. Heads are worked on in stripes of 64 numbers, which fit the registers of AVX2.
typedef float Eight __attribute__((vector_size(32), aligned(4), may_alias));
constexpr int64_t kStripe = 64;
constexpr int kEights = kStripe / 8;

// scores[t] += query . keys[t], for `count` keys of `dim` numbers, one stripe of them
inline void score_stripe(const float* query, const float* keys, int64_t dim, int64_t count, float* scores) {
    Eight q[kEights];
    for (int i = 0; i < kEights; ++i) q[i] = reinterpret_cast<const Eight*>(query)[i];
    for (int64_t t = 0; t < count; ++t) {
        const Eight* key = reinterpret_cast<const Eight*>(keys + t * dim);
        Eight even = q[0] * key[0], odd = q[1] * key[1];
#pragma GCC unroll 8
        for (int i = 2; i < kEights; i += 2) {
            even += q[i] * key[i];
            odd += q[i + 1] * key[i + 1];
        }
        even += odd;
        scores[t] += ((even[0] + even[4]) + (even[2] + even[6])) + ((even[1] + even[5]) + (even[3] + even[7]));
    }
}

// mixed += weights . values, one stripe of the values' numbers
inline void mix_stripe(const float* weights, const float* values, int64_t dim, int64_t count, float* mixed) {
    Eight sum[kEights];
    for (int i = 0; i < kEights; ++i) sum[i] = reinterpret_cast<const Eight*>(mixed)[i];
    for (int64_t t = 0; t < count; ++t) {
        const Eight* value = reinterpret_cast<const Eight*>(values + t * dim);
#pragma GCC unroll 8
        for (int i = 0; i < kEights; ++i) sum[i] += weights[t] * value[i];
    }
    for (int i = 0; i < kEights; ++i) reinterpret_cast<Eight*>(mixed)[i] = sum[i];
}

// scores [count] of one query for keys [count, dim]
inline void score(const float* query, const float* keys, int64_t dim, int64_t count, float* scores) {
    std::fill(scores, scores + count, 0.0f);
    int64_t done = 0;
    for (; done + kStripe <= dim; done += kStripe) score_stripe(query + done, keys + done, dim, count, scores);
    for (int64_t t = 0; t < count && done < dim; ++t) {
        float dot = 0;
#pragma omp simd reduction(+ : dot)
        for (int64_t i = done; i < dim; ++i) dot += query[i] * keys[t * dim + i];
        scores[t] += dot;
    }
}

// mixed [dim] += weights [count] . values [count, dim]
inline void mix(const float* weights, const float* values, int64_t dim, int64_t count, float* mixed) {
    int64_t done = 0;
    for (; done + kStripe <= dim; done += kStripe) mix_stripe(weights, values + done, dim, count, mixed + done);
    for (int64_t t = 0; t < count && done < dim; ++t)
#pragma omp simd
        for (int64_t i = done; i < dim; ++i) mixed[i] += weights[t] * values[t * dim + i];
}

// One head and tokens begin..end: the scores' maximum, the sum of exponentials and the weighted values of each group.
template <class T>
void attend(const Attention& a, const float* query, const T* cache, int64_t sequence, int64_t head, int64_t begin,
            int64_t end, float* maxima, float* sums, float* mixed, float* scores, float* buffer) {
    const int64_t dim = a.dim;
    each_run(a, cache, sequence, head, begin, end, [&](int64_t token, int64_t count, const T* from) {
        const float* keys = widened(from, count * dim, buffer);
        for (int64_t g = 0; g < a.groups; ++g)
            score(query + g * dim, keys, dim, count, scores + g * kChunk + token - begin);
    });
    const int64_t length = end - begin;
    for (int64_t g = 0; g < a.groups; ++g) {
        float* row = scores + g * kChunk;
        for (int64_t t = 0; t < length; ++t) row[t] *= a.scale;
        if (a.softcap != 0)
            for (int64_t t = 0; t < length; ++t) row[t] = std::tanh(row[t] / a.softcap) * a.softcap;
        float top = row[0], sum = 0;
#pragma omp simd reduction(max : top)
        for (int64_t t = 0; t < length; ++t) top = row[t] > top ? row[t] : top;
#pragma omp simd reduction(+ : sum)
        for (int64_t t = 0; t < length; ++t) sum += row[t] = exponential(row[t] - top);
        maxima[g] = top;
        sums[g] = sum;
    }
    std::fill(mixed, mixed + a.groups * dim, 0.0f);
    each_run(a, cache + a.blocks * a.kv_heads * a.block_size * dim, sequence, head, begin, end,
             [&](int64_t token, int64_t count, const T* from) {
                 const float* values = widened(from, count * dim, buffer);
                 for (int64_t g = 0; g < a.groups; ++g)
                     mix(scores + g * kChunk + token - begin, values, dim, count, mixed + g * dim);
             });
}

// The parts of one head's context, in order, as one softmax.
template <class T>
void merge(const Attention& a, const float* parts, int64_t num_parts, int64_t head, T* out) {
    const int64_t stride = a.groups * (a.dim + 2);
    for (int64_t g = 0; g < a.groups; ++g) {
        float top = parts[g];
        for (int64_t p = 1; p < num_parts; ++p) top = std::max(top, parts[p * stride + g]);
        float sum = 0;
        if (a.sinks != nullptr) {
            const float sink = a.sinks[head * a.groups + g];
            top = std::max(top, sink);
            sum = exponential(sink - top);
        }
        for (int64_t p = 0; p < num_parts; ++p)
            sum += parts[p * stride + a.groups + g] * exponential(parts[p * stride + g] - top);
        for (int64_t i = 0; i < a.dim; ++i) {
            float value = 0;
            for (int64_t p = 0; p < num_parts; ++p) {
                const float* part = parts + p * stride;
                value += part[2 * a.groups + g * a.dim + i] * exponential(part[g] - top);
            }
            store(out + g * a.dim + i, value / sum);
        }
    }
}

struct Unit {
    int64_t sequence, head, begin, end;
};

// query and out [T, kv_heads * groups, dim]; rows [sequences] are their rows in T; lengths [sequences] tokens cached.
template <class T, class K>
void decode(const Attention& a, const T* query, int64_t query_stride, const K* cache, const int64_t* rows,
            const int64_t* lengths, int64_t sequences, T* out) {
    std::vector<Unit> units;
    for (int64_t s = 0; s < sequences; ++s) {
        const int64_t first = a.window ? std::max<int64_t>(0, lengths[s] - a.window) : 0;
        for (int64_t head = 0; head < a.kv_heads; ++head)
            for (int64_t begin = first; begin < lengths[s]; begin = (begin / kChunk + 1) * kChunk)
                units.push_back({s, head, begin, std::min((begin / kChunk + 1) * kChunk, lengths[s])});
    }
    const int64_t num_units = static_cast<int64_t>(units.size()), stride = a.groups * (a.dim + 2);
    std::vector<float> parts(num_units * stride);
#pragma omp parallel
    {
        std::vector<float> scratch(a.groups * (a.dim + kChunk) + kRun * a.dim);
        float *wide = scratch.data(), *scores = wide + a.groups * a.dim, *buffer = scores + a.groups * kChunk;
#pragma omp for schedule(dynamic)
        for (int64_t u = 0; u < num_units; ++u) {
            const Unit& unit = units[u];
            const T* from = query + rows[unit.sequence] * query_stride + unit.head * a.groups * a.dim;
            for (int64_t i = 0; i < a.groups * a.dim; ++i) wide[i] = load(from[i]);
            float* part = parts.data() + u * stride;
            attend(a, wide, cache, unit.sequence, unit.head, unit.begin, unit.end, part, part + a.groups,
                part + 2 * a.groups, scores, buffer);
        }
    }
    for (int64_t u = 0; u < num_units;) {
        int64_t end = u + 1;
        while (end < num_units && units[end].sequence == units[u].sequence && units[end].head == units[u].head) ++end;
        const int64_t place = (rows[units[u].sequence] * a.kv_heads + units[u].head) * a.groups * a.dim;
        merge(a, parts.data() + u * stride, end - u, units[u].head, out + place);
        u = end;
    }
}

}  // namespace

// ---- by name and type --------------------------------------------------------------------------------------------

// Activations and cache: of one type, or floats over a narrower cache.
#define FOR_TYPES(type, cache_type, call)                                         \
    switch (3 * (type) + (cache_type)) {                                          \
        case 0: { using T = float; using K = float; call; break; }                \
        case 1: { using T = float; using K = BFloat16; call; break; }             \
        case 2: { using T = float; using K = Half; call; break; }                 \
        case 4: { using T = BFloat16; using K = BFloat16; call; break; }          \
        case 8: { using T = Half; using K = Half; call; break; }                  \
        default: return 1;                                                        \
    }                                                                             \
    return 0;

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

int mindserve_write_kv(int type, int cache_type, const void* key, int64_t key_stride, const void* value,
                       int64_t value_stride, void* cache, const int64_t* slots, int64_t rows, int64_t blocks,
                       int64_t kv_heads, int64_t block_size, int64_t dim) {
    FOR_TYPES(type, cache_type,
              (write_kv<T, K>(IN(key), key_stride, IN(value), value_stride, static_cast<K*>(cache), slots, rows, blocks,
                              kv_heads, block_size, dim)))
}

int mindserve_decode(int type, int cache_type, const void* query, int64_t query_stride, const void* cache,
                     const int64_t* rows, const int64_t* lengths, const int64_t* tables, int64_t table_width, int64_t sequences,
                     int64_t blocks, int64_t kv_heads, int64_t groups, int64_t block_size, int64_t dim, float scale,
                     int64_t window, float softcap, const float* sinks, void* out) {
    const Attention a{blocks, kv_heads, block_size, dim, groups, table_width, tables, scale, softcap, window, sinks};
    FOR_TYPES(type, cache_type,
              (decode<T, K>(a, IN(query), query_stride, static_cast<const K*>(cache), rows, lengths, sequences,
                            OUT(out))))
}
}
