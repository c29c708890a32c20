/* Stands in for libcuda.so.1: streams, events, copies, sets and kernels; all is done when the call returns. */
#define _GNU_SOURCE
#include "card.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* As cupti_driver_cbid.h has them. */
enum {
    SET_BYTES_LATER = 216, SET_WORDS_LATER = 220, SET_BYTES = 249, SET_WORDS = 251,
    COPY_TO_DEVICE = 276, COPY_TO_DEVICE_LATER = 277, COPY_TO_HOST = 278, COPY_TO_HOST_LATER = 279,
    COPY_WITHIN = 280, COPY_WITHIN_LATER = 281, LAUNCH = 307,
};
static const uint64_t KERNEL_NS = 2000; /* what each kernel takes, as it were */

const Observer *observer;
static atomic_uint calls, streams = 13; /* streams of TensorFlow's have numbers about this */

typedef struct { unsigned number; } Stream;
typedef struct { uint64_t time_ns; } Event;
typedef struct { void *to; const void *from; size_t bytes; void *stream; } CopyArguments;
typedef struct { void *to; unsigned value; size_t count; void *stream; } SetArguments;

uint64_t now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static unsigned number_of(void *stream) { return stream ? ((Stream *)stream)->number : 7; }

static Call begun(int number, const char *name, const char *symbol, const void *arguments) {
    Call call = {.number = number, .name = name, .symbol = symbol, .arguments = arguments, .correlation = ++calls};
    if (observer) observer->begin(&call);
    return call;
}

static int ended(Call *call, Activity *activity) {
    activity->correlation = call->correlation;
    activity->end_ns = now_ns();
    if (observer) {
        observer->did(activity);
        observer->end(call);
    }
    return SUCCESS;
}

int card_launch(const char *name, Size grid, Size block, size_t shared_bytes, void *stream) {
    Call call = begun(LAUNCH, "cuLaunchKernel", name, NULL);
    Activity activity = {KERNEL, name, grid, block, shared_bytes, .stream = number_of(stream), .start_ns = now_ns()};
    while (observer && now_ns() < activity.start_ns + KERNEL_NS);
    return ended(&call, &activity);
}

/* Copies and sets */

static int copied(int number, const char *name, Way way, CopyArguments told) {
    Call call = begun(number, name, NULL, &told);
    Activity activity = {COPY, .bytes = told.bytes, .way = way, .stream = number_of(told.stream), .start_ns = now_ns()};
    memmove(told.to, told.from, told.bytes);
    return ended(&call, &activity);
}

static int set(int number, const char *name, size_t width, SetArguments told) {
    Call call = begun(number, name, NULL, &told);
    Activity activity = {SET, .bytes = width * told.count, .stream = number_of(told.stream), .start_ns = now_ns()};
    for (size_t place = 0; width > 1 && place < told.count; place++) ((unsigned *)told.to)[place] = told.value;
    if (width == 1) memset(told.to, (int)told.value, told.count);
    return ended(&call, &activity);
}

#define COPIER(name, number, way)                                                              \
    int name(void *to, const void *from, size_t bytes) {                                       \
        return copied(number, #name, way, (CopyArguments){to, from, bytes, NULL});             \
    }
#define LATER_COPIER(name, number, way)                                                        \
    int name(void *to, const void *from, size_t bytes, void *stream) {                         \
        return copied(number, #name, way, (CopyArguments){to, from, bytes, stream});           \
    }
COPIER(cuMemcpyHtoD_v2, COPY_TO_DEVICE, TO_DEVICE)
COPIER(cuMemcpyDtoH_v2, COPY_TO_HOST, TO_HOST)
COPIER(cuMemcpyDtoD_v2, COPY_WITHIN, WITHIN_DEVICE)
LATER_COPIER(cuMemcpyHtoDAsync_v2, COPY_TO_DEVICE_LATER, TO_DEVICE)
LATER_COPIER(cuMemcpyDtoHAsync_v2, COPY_TO_HOST_LATER, TO_HOST)
LATER_COPIER(cuMemcpyDtoDAsync_v2, COPY_WITHIN_LATER, WITHIN_DEVICE)

int cuMemcpyAsync(void *to, const void *from, size_t bytes, void *stream) {
    void *base;
    int from_card = card_block(from, &base) != 0, to_card = card_block(to, &base) != 0;
    if (!to_card) return cuMemcpyDtoHAsync_v2(to, from, bytes, stream);
    return from_card ? cuMemcpyDtoDAsync_v2(to, from, bytes, stream) : cuMemcpyHtoDAsync_v2(to, from, bytes, stream);
}
int cuMemsetD8_v2(void *to, unsigned char value, size_t count) {
    return set(SET_BYTES, "cuMemsetD8_v2", 1, (SetArguments){to, value, count, NULL});
}
int cuMemsetD32_v2(void *to, unsigned value, size_t count) {
    return set(SET_WORDS, "cuMemsetD32_v2", 4, (SetArguments){to, value, count, NULL});
}
int cuMemsetD8Async(void *to, unsigned char value, size_t count, void *stream) {
    return set(SET_BYTES_LATER, "cuMemsetD8Async", 1, (SetArguments){to, value, count, stream});
}
int cuMemsetD32Async(void *to, unsigned value, size_t count, void *stream) {
    return set(SET_WORDS_LATER, "cuMemsetD32Async", 4, (SetArguments){to, value, count, stream});
}

/* Streams and events */

int cuStreamCreate(void **stream, unsigned flags) {
    Stream *made = malloc(sizeof *made);
    made->number = ++streams;
    *stream = made;
    return SUCCESS;
}
int cuStreamCreateWithPriority(void **stream, unsigned flags, int priority) { return cuStreamCreate(stream, flags); }
int cuStreamDestroy_v2(void *stream) { free(stream); return SUCCESS; }
int cuStreamQuery(void *stream) { return SUCCESS; }
int cuStreamSynchronize(void *stream) { return SUCCESS; }
int cuStreamWaitEvent(void *stream, void *event, unsigned flags) { return SUCCESS; }
int cuStreamIsCapturing(void *stream, int *status) { *status = 0; return SUCCESS; }
int cuLaunchHostFunc(void *stream, void (*call)(void *), void *told) { call(told); return SUCCESS; }
int cuEventCreate(void **event, unsigned flags) { *event = calloc(1, sizeof(Event)); return SUCCESS; }
int cuEventDestroy_v2(void *event) { free(event); return SUCCESS; }
int cuEventRecord(void *event, void *stream) { ((Event *)event)->time_ns = now_ns(); return SUCCESS; }
int cuEventQuery(void *event) { return SUCCESS; }
int cuEventSynchronize(void *event) { return SUCCESS; }
int cuEventElapsedTime(float *ms, void *begin, void *end) {
    *ms = (float)(((Event *)end)->time_ns - ((Event *)begin)->time_ns) / 1e6f;
    return SUCCESS;
}

/* Kernels of modules: a function is its name */

int cuModuleLoadData(void **module, const void *image) { *module = malloc(1); return SUCCESS; }
int cuModuleLoadDataEx(void **module, const void *image, unsigned count, void *options, void *values) {
    return cuModuleLoadData(module, image);
}
int cuModuleLoadFatBinary(void **module, const void *image) { return cuModuleLoadData(module, image); }
int cuModuleUnload(void *module) { free(module); return SUCCESS; }
int cuModuleGetFunction(void **function, void *module, const char *name) {
    *function = strdup(name);
    return SUCCESS;
}
int cuFuncGetAttribute(int *value, int which, void *function) {
    enum { THREADS = 0, REGISTERS = 4 };
    *value = which == THREADS ? 1024 : which == REGISTERS ? 32 : 0;
    return SUCCESS;
}
int cuFuncSetAttribute(void *function, int which, int value) { return SUCCESS; }
int cuFuncSetCacheConfig(void *function, int which) { return SUCCESS; }
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *count, void *function, int threads, size_t shared_bytes) {
    *count = 8;
    return SUCCESS;
}
int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared_bytes, void *stream, void **values, void **extra) {
    return card_launch(function, (Size){gx, gy, gz}, (Size){bx, by, bz}, shared_bytes, stream);
}
