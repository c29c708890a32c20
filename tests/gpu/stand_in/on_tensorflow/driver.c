/* What TensorFlow alone asks of the driver: all that others ask of the runtime. */
#include "calls.h"

int cuDeviceGetUuid(uint8_t *uuid, int device) { return cuDeviceGetUuid_v2(uuid, device); }
int cuDeviceCanAccessPeer(int *can, int device, int other) { return *can = 0, SUCCESS; }
int cuDevicePrimaryCtxSetFlags_v2(int device, unsigned flags) { return SUCCESS; }
int cuCtxGetDevice(int *device) { return *device = 0, SUCCESS; }
int cuCtxGetStreamPriorityRange(int *least, int *most) { return cudaDeviceGetStreamPriorityRange(least, most); }
int cuGetErrorName(int error, const char **name) {
    *name = error == SUCCESS         ? "CUDA_SUCCESS"
            : error == OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY"
                                     : "CUDA_ERROR_UNKNOWN";
    return SUCCESS;
}

/* Memory */

int cuMemAlloc_v2(void **at, size_t bytes) { return make_region(at, bytes, ON_DEVICE); }
int cuMemFree_v2(void *at) { return remove_region(at); }
int cuMemHostAlloc(void **at, size_t bytes, unsigned flags) { return make_region(at, bytes, ON_HOST); }
int cuMemAllocHost_v2(void **at, size_t bytes) { return make_region(at, bytes, ON_HOST); }
int cuMemFreeHost(void *at) { return remove_region(at); }
int cuMemHostRegister_v2(void *at, size_t bytes, unsigned flags) { return SUCCESS; }
int cuMemHostUnregister(void *at) { return SUCCESS; }
int cuMemGetAddressRange_v2(void **base, size_t *bytes, void *at) {
    struct region found = region_of(at);
    if (found.place != ON_DEVICE) return NOT_FOUND;
    *base = found.at;
    if (bytes) *bytes = found.bytes;
    return SUCCESS;
}
int cuPointerGetAttribute(void *value, int which, void *at) {
    enum { MEMORY_TYPE = 2, ORDINAL = 9, HOST = 1, DEVICE = 2 };
    switch (which) {
    case MEMORY_TYPE: return *(int *)value = region_of(at).place == ON_DEVICE ? DEVICE : HOST, SUCCESS;
    case ORDINAL: return *(int *)value = 0, SUCCESS;
    default: return INVALID_VALUE;
    }
}

/* Copies and sets: each call has the number of cupti_driver_cbid.h, and is observed with its arguments. */

struct copy_arguments {
    void *to;
    const void *from;
    size_t bytes;
    Stream stream;
};

struct set_arguments {
    void *to;
    unsigned value;
    size_t count;
    Stream stream;
};

static int copied(int number, const char *name, struct copy_arguments arguments) {
    struct call call = BEGIN(DRIVER_CALL, number, .name = name, .arguments = &arguments);
    copy(&call, arguments.stream, arguments.to, arguments.from, arguments.bytes);
    if (arguments.stream == NULL) wait_until(default_stream.done_ns);
    return end_call(&call, SUCCESS);
}

static int filled(int number, const char *name, size_t width, struct set_arguments arguments) {
    struct call call = BEGIN(DRIVER_CALL, number, .name = name, .arguments = &arguments);
    set(&call, arguments.stream, arguments.to, arguments.value, width, arguments.count);
    return end_call(&call, SUCCESS);
}

#define COPIER(name, number) \
    int name(void *to, const void *from, size_t bytes) { \
        return copied(number, #name, (struct copy_arguments){to, from, bytes, NULL}); \
    }
#define LATER_COPIER(name, number) \
    int name(void *to, const void *from, size_t bytes, Stream stream) { \
        return copied(number, #name, (struct copy_arguments){to, from, bytes, stream}); \
    }
#define SETTER(name, number, type) \
    int name(void *to, type value, size_t count) { \
        return filled(number, #name, sizeof value, (struct set_arguments){to, value, count, NULL}); \
    }
#define LATER_SETTER(name, number, type) \
    int name(void *to, type value, size_t count, Stream stream) { \
        return filled(number, #name, sizeof value, (struct set_arguments){to, value, count, stream}); \
    }
COPIER(cuMemcpyHtoD_v2, 276)
COPIER(cuMemcpyDtoH_v2, 278)
COPIER(cuMemcpyDtoD_v2, 280)
LATER_COPIER(cuMemcpyHtoDAsync_v2, 277)
LATER_COPIER(cuMemcpyDtoHAsync_v2, 279)
LATER_COPIER(cuMemcpyDtoDAsync_v2, 281)
SETTER(cuMemsetD8_v2, 249, unsigned char)
SETTER(cuMemsetD32_v2, 251, unsigned)
LATER_SETTER(cuMemsetD8Async, 216, unsigned char)
LATER_SETTER(cuMemsetD32Async, 220, unsigned)

int cuMemcpyAsync(void *to, const void *from, size_t bytes, Stream stream) {
    switch (way_of(to, from)) {
    case TO_DEVICE: return cuMemcpyHtoDAsync_v2(to, from, bytes, stream);
    case WITHIN_DEVICE: return cuMemcpyDtoDAsync_v2(to, from, bytes, stream);
    default: return cuMemcpyDtoHAsync_v2(to, from, bytes, stream);
    }
}

/* Streams and events */

int cuStreamCreate(Stream *stream, unsigned flags) { return cudaStreamCreate(stream); }
int cuStreamCreateWithPriority(Stream *stream, unsigned flags, int priority) { return cudaStreamCreate(stream); }
int cuStreamDestroy_v2(Stream stream) { return SUCCESS; } /* its handle is kept */
int cuStreamQuery(Stream stream) { return cudaStreamQuery(stream); }
int cuStreamSynchronize(Stream stream) { return cudaStreamSynchronize(stream); }
int cuStreamWaitEvent(Stream stream, Event event, unsigned flags) { return wait_for(event, stream); }
int cuStreamIsCapturing(Stream stream, int *status) { return *status = 0, SUCCESS; }
int cuLaunchHostFunc(Stream stream, void (*function)(void *), void *argument) {
    cudaStreamSynchronize(stream);
    return function(argument), SUCCESS;
}
int cuEventCreate(Event *event, unsigned flags) { return cudaEventCreateWithFlags(event, flags); }
int cuEventDestroy_v2(Event event) { return cudaEventDestroy(event); }
int cuEventRecord(Event event, Stream stream) { return cudaEventRecord(event, stream); }
int cuEventQuery(Event event) { return event->at_ns <= now_ns() ? SUCCESS : NOT_READY; }
int cuEventSynchronize(Event event) { return cudaEventSynchronize(event); }
int cuEventElapsedTime(float *ms, Event first, Event last) { return cudaEventElapsedTime(ms, first, last); }

/* Kernels of modules */

int cuModuleLoadFatBinary(void **module, const void *image) { return cuModuleLoadData(module, image); }
int cuFuncGetAttribute(int *value, int which, void *function) {
    enum { THREADS = 0, REGISTERS = 4 };
    return *value = which == THREADS ? 1024 : which == REGISTERS ? 32 : 0, SUCCESS;
}
int cuFuncSetAttribute(void *function, int which, int value) { return SUCCESS; }
int cuFuncSetCacheConfig(void *function, int which) { return SUCCESS; }
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *count, void *function, int threads, size_t shared_bytes) {
    return *count = 8, SUCCESS;
}
