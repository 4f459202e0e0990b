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

#define IN(pointer) static_cast<const T*>(pointer)
#define OUT(pointer) static_cast<T*>(pointer)
