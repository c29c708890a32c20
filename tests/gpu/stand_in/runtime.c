/* The runtime's interface: the device, its memory, streams and events, and the errors it keeps. */
#include "calls.h"

#include <stdlib.h>

static __thread int last_error;
static uint32_t streams_made = 12, events_made;

int failed(int status) {
    if (status != SUCCESS) last_error = status;
    return status;
}

static int ended(struct call *call, int status) { return end_call(call, failed(status)); }

int cudaGetDeviceCount(int *count) { return *count = 1, SUCCESS; }
int cudaGetDevice(int *device) { return *device = 0, SUCCESS; }
int cudaSetDevice(int device) { return failed(device == 0 ? SUCCESS : INVALID_DEVICE); }
int cudaDriverGetVersion(int *version) { return *version = CARD_CUDA, SUCCESS; }
int cudaDeviceGetAttribute(int *value, int which, int device) { return cuDeviceGetAttribute(value, which, device); }
int cudaPeekAtLastError(void) { return last_error; }

int cudaGetLastError(void) {
    int error = last_error;
    last_error = SUCCESS;
    return error;
}

const char *cudaGetErrorString(int error) {
    switch (error) {
    case SUCCESS: return "no error";
    case OUT_OF_MEMORY: return "out of memory";
    case INVALID_DEVICE: return "invalid device ordinal";
    case NOT_READY: return "device not ready";
    case NOT_SUPPORTED: return "operation not supported";
    default: return "an error of the simulated device";
    }
}

const char *cudaGetErrorName(int error) {
    return error == SUCCESS ? "cudaSuccess" : error == OUT_OF_MEMORY ? "cudaErrorMemoryAllocation" : "another error";
}

/* Memory. */

int cudaMalloc(void **at, size_t bytes) {
    struct call call = CALL(cudaMalloc);
    return ended(&call, make_region(at, bytes, ON_DEVICE));
}

int cudaMemGetInfo(size_t *free, size_t *total) {
    need_context();
    return *free = free_bytes(), *total = memory_bytes(), SUCCESS;
}

/* Streams and events. */

int cudaStreamCreate(Stream *stream) {
    LOCKED;
    need_context();
    *stream = malloc(sizeof **stream);
    **stream = (struct CUstream_st){.id = ++streams_made, .next = default_stream.next};
    default_stream.next = *stream;
    return SUCCESS;
}

int cudaStreamDestroy(Stream stream) { return SUCCESS; } /* its handle is kept */

int cudaStreamSynchronize(Stream handle) {
    struct call call = CALL(cudaStreamSynchronize);
    Stream stream = stream_of(handle);
    wait_until(stream->done_ns);
    report_wait(&call, OF_STREAM, stream->id, 0);
    return end_call(&call, SUCCESS);
}

int cudaDeviceSynchronize(void) {
    struct call call = CALL(cudaDeviceSynchronize);
    for (Stream each = &default_stream; each != NULL; each = each->next) wait_until(each->done_ns);
    report_wait(&call, OF_CONTEXT, ~0u, 0);
    return end_call(&call, SUCCESS);
}

int cudaFree(void *at) {
    struct call call = CALL(cudaFree);
    cudaDeviceSynchronize();
    return ended(&call, remove_region(at));
}

int cudaEventCreateWithFlags(Event *event, unsigned flags) {
    LOCKED;
    *event = calloc(1, sizeof **event);
    (*event)->id = ++events_made;
    return SUCCESS;
}

int cudaEventDestroy(Event event) { return free(event), SUCCESS; }

int cudaEventRecord(Event event, Stream handle) {
    struct call call = CALL(cudaEventRecord);
    LOCKED;
    Stream stream = stream_of(handle);
    int64_t now = now_ns();
    event->capture = stream->capture;
    event->at_ns = stream->done_ns > now ? stream->done_ns : now;
    return end_call(&call, SUCCESS);
}

int wait_for(Event event, Stream handle) {
    struct call call = CALL(cudaStreamWaitEvent);
    LOCKED;
    Stream stream = stream_of(handle);
    if (event->capture != NULL) stream->capture = event->capture; /* it joins */
    else if (stream->done_ns < event->at_ns) stream->done_ns = event->at_ns;
    report_wait(&call, BY_STREAM, stream->id, event->id);
    return end_call(&call, SUCCESS);
}

#if !FOR_TENSORFLOW
int cudaStreamWaitEvent(Stream stream, Event event, unsigned flags) { return wait_for(event, stream); }
int cudaDeviceCanAccessPeer(int *can, int one, int other) { return *can = 0, SUCCESS; }

int cudaHostAlloc(void **at, size_t bytes, unsigned flags) {
    struct call call = CALL(cudaHostAlloc);
    return ended(&call, make_region(at, bytes, ON_HOST));
}

int cudaFreeHost(void *at) { return remove_region(at); }

int cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind, Stream stream) {
    struct call call = CALL(cudaMemcpyAsync);
    copy(&call, stream, to, from, bytes); /* its kind is in the addresses */
    return end_call(&call, SUCCESS);
}

int cudaMemcpy(void *to, const void *from, size_t bytes, int kind) {
    struct call call = CALL(cudaMemcpy);
    copy(&call, NULL, to, from, bytes);
    wait_until(default_stream.done_ns);
    return end_call(&call, SUCCESS);
}

int cudaMemsetAsync(void *at, int value, size_t bytes, Stream stream) {
    struct call call = CALL(cudaMemsetAsync);
    set(&call, stream, at, (uint8_t)value, 1, bytes);
    return end_call(&call, SUCCESS);
}
#endif

#if !FOR_MXNET
int cudaRuntimeGetVersion(int *version) { return *version = CARD_CUDA, SUCCESS; }
int cudaDeviceGetStreamPriorityRange(int *least, int *most) { return *least = 0, *most = -5, SUCCESS; }
int cudaEventCreate(Event *event) { return cudaEventCreateWithFlags(event, 0); }
int cudaStreamQuery(Stream stream) { return stream_of(stream)->done_ns <= now_ns() ? SUCCESS : NOT_READY; }
int cudaEventElapsedTime(float *ms, Event first, Event last) {
    return *ms = (last->at_ns - first->at_ns) / 1e6f, SUCCESS;
}

int cudaEventSynchronize(Event event) {
    struct call call = CALL(cudaEventSynchronize);
    wait_until(event->at_ns);
    report_wait(&call, OF_EVENT, 0, event->id);
    return end_call(&call, SUCCESS);
}
#endif
