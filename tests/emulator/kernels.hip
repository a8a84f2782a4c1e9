// Kernels for test_emulator_hip.py, without HIP's headers, which take seconds to compile.

#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))

typedef _Float16 half2 __attribute__((ext_vector_type(2)));
typedef _Float16 half4 __attribute__((ext_vector_type(4)));
typedef _Float16 half8 __attribute__((ext_vector_type(8)));
typedef _Float16 half16 __attribute__((ext_vector_type(16)));
typedef float float4 __attribute__((ext_vector_type(4)));
typedef float float8 __attribute__((ext_vector_type(8)));

#define LANE ((int)__builtin_amdgcn_workitem_id_x())
#define GROUP ((int)__builtin_amdgcn_workgroup_id_x())
#define GROUP_SIZE ((int)__builtin_amdgcn_workgroup_size_x())
// what HIP's gridDim.x reads
#define GROUPS (*(__attribute__((address_space(4))) const int *)__builtin_amdgcn_implicitarg_ptr())

extern "C" __global__ void add(const float *x, const float *y, float *output, int count) {
  int place = GROUP * GROUP_SIZE + LANE;
  if (place < count) output[place] = x[place] + y[place];
}

// Local memory and barriers: each work-group writes the sum of its share.
extern "C" __global__ void sum(const float *x, float *output, int count) {
  __shared__ float parts[256];
  float total = 0;
  for (int place = GROUP * GROUP_SIZE + LANE; place < count; place += GROUPS * GROUP_SIZE) total += x[place];
  parts[LANE] = total;
  for (int half = GROUP_SIZE / 2; half; half /= 2) {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
#ifdef WITH_BARRIER
    __builtin_amdgcn_s_barrier();
#endif
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
    if (LANE < half) parts[LANE] += parts[LANE + half];
  }
  if (!LANE) output[GROUP] = parts[0];
}

// A product of 16 x 16 matrices by the matrix instruction of the arch, in one wave; gfx1030 has dot products only.
extern "C" __global__ void multiply(const _Float16 *a, const _Float16 *b, float *output) {
  int column = LANE % 16, part = LANE / 16;
#if defined(__gfx90a__) || defined(__gfx942__)
  half4 left = *(half4 *)(a + column * 16 + part * 4), right;
  for (int k = 0; k < 4; k++) right[k] = b[(part * 4 + k) * 16 + column];
  float4 product = __builtin_amdgcn_mfma_f32_16x16x16f16(left, right, (float4)0, 0, 0, 0);
  for (int row = 0; row < 4; row++) output[(part * 4 + row) * 16 + column] = product[row];
#elif defined(__gfx1100__)
  half16 left = *(half16 *)(a + column * 16), right;
  for (int k = 0; k < 16; k++) right[k] = b[k * 16 + column];
  float8 product = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(left, right, (float8)0);
  for (int row = 0; row < 8; row++) output[(row * 2 + part) * 16 + column] = product[row];
#elif defined(__gfx1201__)
  half8 left = *(half8 *)(a + column * 16 + part * 8), right;
  for (int k = 0; k < 8; k++) right[k] = b[(part * 8 + k) * 16 + column];
  float8 product = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(left, right, (float8)0);
  for (int row = 0; row < 8; row++) output[(part * 8 + row) * 16 + column] = product[row];
#else
  for (int row = part; row < 16; row += 2) {
    float total = 0;
    for (int k = 0; k < 16; k += 2) {
      half2 left = *(half2 *)(a + row * 16 + k), right = {b[k * 16 + column], b[(k + 1) * 16 + column]};
      total = __builtin_amdgcn_fdot2(left, right, total, false);
    }
    output[row * 16 + column] = total;
  }
#endif
}

// More live numbers than registers: they are spilled into scratch memory. 64 threads.
extern "C" __global__ __attribute__((amdgpu_num_vgpr(24))) void spill(const float *x, float *output) {
  float numbers[64];
#pragma unroll
  for (int each = 0; each < 64; each++) numbers[each] = x[each * 64 + LANE];
#pragma unroll
  for (int turn = 0; turn < 3; turn++)
#pragma unroll
    for (int each = 0; each < 64; each++) numbers[each] = numbers[each] * 0.5f + numbers[(each * 7 + 3) % 64];
#pragma unroll
  for (int each = 0; each < 64; each++) output[each * 64 + LANE] = numbers[each];
}

// Atomic additions, and divisions, for which the hardware has no instruction.
extern "C" __global__ void count(const unsigned *x, unsigned *counts, long *remainders, int divisor) {
  int place = GROUP * GROUP_SIZE + LANE;
  __atomic_fetch_add(counts + x[place] % divisor, 1, __ATOMIC_RELAXED);
  remainders[place] = (long)x[place] * -1000003 % (divisor * 1000003L);
}
