/* What TensorFlow alone asks of the runtime: the device as CUDA 12 lays it out, and copies, which are the driver's. */
#include "calls.h"

#include <string.h>

/* As CUDA 12 lays it out; what is not named here is never reported. */
typedef struct {
    char name[256];
    char uuid[16], luid[8];
    unsigned node_mask;
    size_t total_bytes, shared_bytes;
    int registers, warp;
    size_t pitch;
    int block_threads, block[3], grid[3], clock_khz;
    size_t constant_bytes;
    int major, minor;
    size_t texture_alignment, texture_pitch;
    int overlap, multiprocessors, timeout, integrated, can_map, compute_mode;
    int textures[26], surfaces[14];
    size_t surface_alignment;
    int concurrent, ecc, bus, device, domain, tcc, engines, unified, memory_clock_khz, memory_bits, l2_bytes;
    int persisting_bytes, multiprocessor_threads, priorities, global_l1, local_l1;
    size_t multiprocessor_shared_bytes;
    int multiprocessor_registers, others[11];
    size_t optin_bytes;
    char rest[4096]; /* the caller's own is shorter: never written */
} Properties;

#define FILLED offsetof(Properties, rest)

int cudaGetDeviceProperties_v2(Properties *properties, int device) {
    Properties card = {
        .name = CARD_NAME, .total_bytes = memory_bytes(), .shared_bytes = CARD_SHARED_BYTES,
        .registers = CARD_REGISTERS, .warp = 32, .pitch = 2147483647, .block_threads = 1024, .block = {1024, 1024, 64},
        .grid = {2147483647, 65535, 65535}, .clock_khz = CARD_CLOCK_KHZ, .constant_bytes = 65536,
        .major = CARD_CAPABILITY / 10, .minor = CARD_CAPABILITY % 10, .texture_alignment = 512, .texture_pitch = 32,
        .overlap = 1, .multiprocessors = CARD_MULTIPROCESSORS, .can_map = 1, .surface_alignment = 512, .concurrent = 1,
        .ecc = 1, .bus = CARD_BUS, .engines = 3, .unified = 1, .memory_clock_khz = CARD_MEMORY_CLOCK_KHZ,
        .memory_bits = CARD_BUS_BITS, .l2_bytes = CARD_L2_BYTES, .multiprocessor_threads = 2048, .priorities = 1,
        .multiprocessor_shared_bytes = CARD_SHARED_ALL_BYTES, .multiprocessor_registers = CARD_REGISTERS,
        .optin_bytes = CARD_SHARED_MOST_BYTES,
    };
    memcpy(properties, &card, FILLED);
    return SUCCESS;
}

int cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind, Stream stream) {
    return cuMemcpyAsync(to, from, bytes, stream);
}
int cudaMemcpy(void *to, const void *from, size_t bytes, int kind) { return cuMemcpyAsync(to, from, bytes, NULL); }
int cudaMemsetAsync(void *to, int value, size_t bytes, Stream stream) {
    return cuMemsetD8Async(to, value, bytes, stream);
}
int cudaStreamCreateWithFlags(Stream *stream, unsigned flags) { return cudaStreamCreate(stream); }
int cudaGetFuncBySymbol(void **function, const void *stub) { return *function = (void *)name_of(stub), SUCCESS; }
