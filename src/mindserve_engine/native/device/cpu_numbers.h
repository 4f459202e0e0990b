// Numbers as they lie in memory: all arithmetic is done in float.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

namespace {

struct BFloat16 {
    uint16_t bits;
};
using Half = _Float16;

inline float load(float x) { return x; }
inline float load(Half x) { return static_cast<float>(x); }
inline float load(BFloat16 x) {
    const uint32_t wide = static_cast<uint32_t>(x.bits) << 16;
    float value;
    std::memcpy(&value, &wide, sizeof value);
    return value;
}

inline void store(float* place, float value) { *place = value; }
inline void store(Half* place, float value) { *place = static_cast<Half>(value); }
inline void store(BFloat16* place, float value) {  // to the nearest, ties to even
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    place->bits = static_cast<uint16_t>(value == value ? rounded : 0x7fc0);
}

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

}  // namespace

// A call for the type of that number: 0 float, 1 bfloat16, 2 float16. Returns 1 for any other.
#define FOR_TYPE(type, call)                     \
    switch (type) {                              \
        case 0: { using T = float; call; break; }    \
        case 1: { using T = BFloat16; call; break; } \
        case 2: { using T = Half; call; break; }     \
        default: return 1;                       \
    }                                            \
    return 0;

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

#define IN(pointer) static_cast<const T*>(pointer)
#define OUT(pointer) static_cast<T*>(pointer)
