/* What the C code made of PTX uses: bit patterns, rounding, and instructions without a C operator.

   Two ways to be unkind: `perturbation` moves the result of every approximate instruction to the
   error that the PTX ISA allows, in a direction that depends on the operands; `fusion` lets every
   other sum absorb a product, chosen by this seed, as a compiler may. 0 switches them off. */

#include <fenv.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int8_t s8;
typedef int16_t s16;
typedef int32_t s32;
typedef int64_t s64;
typedef unsigned __int128 u128;
typedef __int128 s128;

u64 perturbation = 0;
u64 fusion = 0;

static inline float as_f32(u32 x) { float y; memcpy(&y, &x, 4); return y; }
static inline u32 bits_f32(float x) { u32 y; memcpy(&y, &x, 4); return y; }
static inline double as_f64(u64 x) { double y; memcpy(&y, &x, 8); return y; }
static inline u64 bits_f64(double x) { u64 y; memcpy(&y, &x, 8); return y; }

/* A subnormal number becomes zero. */
static inline float flushed(float x) { return fabsf(x) < 0x1p-126f ? copysignf(0.0f, x) : x; }

static u64 hash(u64 x) {
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccdULL;
  x ^= x >> 33;
  x *= 0xc4ceb9fe1a85ec53ULL;
  return x ^ (x >> 33);
}
static inline double direction(u64 key) { return hash(key + perturbation) & 1 ? 1.0 : -1.0; }
static inline int is_fused(u64 place) { return fusion && (hash(place ^ hash(fusion)) & 1); }

/* x rounded to float; perturbed, it is wrong by `ulps` units in the last place, rounding included */
static float within_ulps(double x, double ulps, u64 key) {
  if (perturbation && isfinite(x) && x != 0.0) {
    x += direction(key) * (ulps - 0.5) * ldexp(1.0, ilogb(x) - 23);
  }
  return (float)x;
}
/* the same with a relative error */
static float within_share(double x, double share, u64 key) {
  return (float)(perturbation && isfinite(x) ? x * (1.0 + direction(key) * share) : x);
}
/* the same with an absolute error */
static float within(double x, double error, u64 key) {
  return (float)(perturbation && isfinite(x) ? x + direction(key) * error : x);
}

static float __attribute__((noinline)) fma_downward(float a, float b, float c) {
  const int before = fegetround();
  fesetround(FE_DOWNWARD);
  volatile float x = a, y = b, z = c;
  volatile float result = fmaf(x, y, z);
  fesetround(before);
  return result;
}

static float __attribute__((noinline)) add_toward_zero(float a, float b) {
  const int before = fegetround();
  fesetround(FE_TOWARDZERO);
  volatile float x = a, y = b;
  volatile float result = x + y;
  fesetround(before);
  return result;
}

static inline u32 permuted(u32 a, u32 b, u32 selectors) {
  const u64 bytes = ((u64)b << 32) | a;
  u32 result = 0;
  for (int i = 0; i < 4; i++) {
    const u32 selector = (selectors >> (4 * i)) & 15;
    u8 byte = (u8)(bytes >> (8 * (selector & 7)));
    if (selector & 8) byte = byte & 0x80 ? 0xff : 0;
    result |= (u32)byte << (8 * i);
  }
  return result;
}

/* Conversions saturate. */
static inline s32 to_s32(double x) {
  return x != x ? 0 : x >= 0x1p31 ? INT32_MAX : x <= -0x1p31 ? INT32_MIN : (s32)x;
}
static inline s64 to_s64(double x) {
  return x != x ? INT64_MIN : x >= 0x1p63 ? INT64_MAX : x <= -0x1p63 ? INT64_MIN : (s64)x;
}
static inline u32 to_u32(double x) { return x != x || x <= 0.0 ? 0 : x >= 0x1p32 ? UINT32_MAX : (u32)x; }
static inline u64 to_u64(double x) { return x != x || x <= 0.0 ? 0 : x >= 0x1p64 ? UINT64_MAX : (u64)x; }
