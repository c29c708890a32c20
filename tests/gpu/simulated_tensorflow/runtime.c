/* Stands in for libcudart.so.12, by what libcuda.so.1's stand-in does. */
#include "card.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

int cuMemcpyAsync(void *to, void *from, size_t bytes, void *stream);
int cuMemsetD8Async(void *to, unsigned char value, size_t count, void *stream);
int cuDeviceGetAttribute(int *value, int which, int device);
int cuEventCreate(void **event, unsigned flags);
int cuEventDestroy_v2(void *event);
int cuEventRecord(void *event, void *stream);
int cuEventElapsedTime(float *ms, void *begin, void *end);
int cuStreamCreate(void **stream, unsigned flags);
int cuStreamDestroy_v2(void *stream);

/* As CUDA 12 lays it out; what is not named here is never told. */
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

int cudaGetDeviceProperties_v2(Properties *told, int device) {
    Properties card = {
        .name = CARD_NAME, .total_bytes = card_total_bytes(), .shared_bytes = 49152, .registers = 65536, .warp = 32,
        .pitch = 2147483647, .block_threads = 1024, .block = {1024, 1024, 64}, .grid = {2147483647, 65535, 65535},
        .clock_khz = 1980000, .constant_bytes = 65536, .major = CARD_MAJOR, .minor = CARD_MINOR,
        .texture_alignment = 512, .texture_pitch = 32, .overlap = 1, .multiprocessors = CARD_MULTIPROCESSORS,
        .can_map = 1, .surface_alignment = 512, .concurrent = 1, .ecc = 1, .bus = 1, .engines = 3, .unified = 1,
        .memory_clock_khz = 3201000, .memory_bits = 6144, .l2_bytes = 60 << 20, .multiprocessor_threads = 2048,
        .priorities = 1, .multiprocessor_shared_bytes = 233472, .multiprocessor_registers = 65536,
        .optin_bytes = 232448,
    };
    memcpy(told, &card, FILLED);
    return SUCCESS;
}

int cudaRuntimeGetVersion(int *version) { *version = CARD_CUDA; return SUCCESS; }
int cudaDriverGetVersion(int *version) { *version = CARD_CUDA; return SUCCESS; }
int cudaGetDeviceCount(int *count) { *count = 1; return SUCCESS; }
int cudaGetDevice(int *device) { *device = 0; return SUCCESS; }
int cudaSetDevice(int device) { return SUCCESS; }
int cudaDeviceGetAttribute(int *value, int which, int device) { return cuDeviceGetAttribute(value, which, device); }
int cudaDeviceGetStreamPriorityRange(int *least, int *greatest) { *least = 0; *greatest = -5; return SUCCESS; }
int cudaDeviceSynchronize(void) { return SUCCESS; }
int cudaGetLastError(void) { return SUCCESS; }
int cudaPeekAtLastError(void) { return SUCCESS; }
const char *cudaGetErrorName(int error) { return error ? "cudaErrorMemoryAllocation" : "cudaSuccess"; }
const char *cudaGetErrorString(int error) { return error ? "out of memory" : "no error"; }
int cudaMalloc(void **address, size_t bytes) { return card_allocate(address, bytes); }
int cudaFree(void *address) { return card_free(address); }
int cudaMemGetInfo(size_t *free_bytes, size_t *total) {
    *free_bytes = card_free_bytes();
    *total = card_total_bytes();
    return SUCCESS;
}
int cudaMemcpyAsync(void *to, void *from, size_t bytes, int kind, void *stream) {
    return cuMemcpyAsync(to, from, bytes, stream);
}
int cudaMemcpy(void *to, void *from, size_t bytes, int kind) { return cuMemcpyAsync(to, from, bytes, NULL); }
int cudaMemsetAsync(void *to, int value, size_t bytes, void *stream) {
    return cuMemsetD8Async(to, value, bytes, stream);
}
int cudaEventCreate(void **event) { return cuEventCreate(event, 0); }
int cudaEventCreateWithFlags(void **event, unsigned flags) { return cuEventCreate(event, flags); }
int cudaEventDestroy(void *event) { return cuEventDestroy_v2(event); }
int cudaEventRecord(void *event, void *stream) { return cuEventRecord(event, stream); }
int cudaEventSynchronize(void *event) { return SUCCESS; }
int cudaEventElapsedTime(float *ms, void *begin, void *end) { return cuEventElapsedTime(ms, begin, end); }
int cudaStreamCreate(void **stream) { return cuStreamCreate(stream, 0); }
int cudaStreamCreateWithFlags(void **stream, unsigned flags) { return cuStreamCreate(stream, flags); }
int cudaStreamDestroy(void *stream) { return cuStreamDestroy_v2(stream); }
int cudaStreamSynchronize(void *stream) { return SUCCESS; }
int cudaStreamQuery(void *stream) { return SUCCESS; }

/* Kernels that were compiled into TensorFlow: each is known by the address of its stub on the host */

typedef struct { Size grid, block; size_t shared_bytes; void *stream; } Launch;
typedef struct { const void *stub; const char *name; } Known;
static __thread Launch pending;
static Known *known;
static size_t known_count, known_room;
static pthread_mutex_t known_lock = PTHREAD_MUTEX_INITIALIZER;

static int by_stub(const void *one, const void *other) {
    const void *first = ((const Known *)one)->stub, *second = ((const Known *)other)->stub;
    return first < second ? -1 : first > second;
}

static const char *name_of(const void *stub) {
    static size_t sorted;
    pthread_mutex_lock(&known_lock);
    if (sorted != known_count) {
        qsort(known, known_count, sizeof *known, by_stub);
        sorted = known_count;
    }
    Known wanted = {stub}, *found = bsearch(&wanted, known, known_count, sizeof *known, by_stub);
    const char *name = found ? found->name : "unregistered";
    pthread_mutex_unlock(&known_lock);
    return name;
}

void **__cudaRegisterFatBinary(void *binary) { return calloc(1, sizeof(void *)); }
void __cudaRegisterFatBinaryEnd(void **binary) {}
void __cudaUnregisterFatBinary(void **binary) {}
void __cudaRegisterVar(void **binary, char *variable, ...) {}
void __cudaRegisterFunction(void **binary, const void *stub, char *name, ...) {
    pthread_mutex_lock(&known_lock);
    if (known_count == known_room) known = realloc(known, (known_room = 2 * known_room + 1024) * sizeof *known);
    known[known_count++] = (Known){stub, name};
    pthread_mutex_unlock(&known_lock);
}
unsigned __cudaPushCallConfiguration(Size grid, Size block, size_t shared_bytes, void *stream) {
    pending = (Launch){grid, block, shared_bytes, stream};
    return 0;
}
int __cudaPopCallConfiguration(Size *grid, Size *block, size_t *shared_bytes, void **stream) {
    *grid = pending.grid;
    *block = pending.block;
    *shared_bytes = pending.shared_bytes;
    *stream = pending.stream;
    return SUCCESS;
}
int cudaLaunchKernel(const void *stub, Size grid, Size block, void **values, size_t shared_bytes, void *stream) {
    return card_launch(name_of(stub), grid, block, shared_bytes, stream);
}
int cudaGetFuncBySymbol(void **function, const void *stub) { *function = (void *)name_of(stub); return SUCCESS; }
typedef struct { size_t shared_bytes, constant_bytes, local_bytes; int threads, registers; } Attributes;
int cudaFuncGetAttributes(Attributes *told, const void *stub) {
    *told = (Attributes){.threads = 1024, .registers = 32};
    return SUCCESS;
}
int cudaFuncSetAttribute(const void *stub, int which, int value) { return SUCCESS; }
int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *count, const void *stub, int threads,
                                                           size_t shared_bytes, unsigned flags) {
    *count = 8;
    return SUCCESS;
}
