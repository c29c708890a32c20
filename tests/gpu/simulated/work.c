/* Streams, events, launches and graphs on a simulated clock. */
#include "simulated.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define LATENCY_NS 3000
#define COPIED_BYTES_PER_US 50000
#define MEMORY_BYTES_PER_US 4000000

struct CUevent_st {
    uint32_t id;
    int64_t at_ns;
    struct CUgraph_st *capture;
};

struct CUgraph_st {
    uint32_t id, count, room;
    struct work *works;
};

static struct CUstream_st default_stream = {.id = DEFAULT_STREAM_ID};
static uint32_t streams_made = 12, events_made, graphs_made;

int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ll + now.tv_nsec;
}

static void wait_until(int64_t at_ns) {
    struct timespec until = {at_ns / 1000000000, at_ns % 1000000000};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR) continue;
}

struct CUstream_st *stream_of(CUstream handle) { return (uintptr_t)handle < 8 ? &default_stream : handle; }

static int64_t duration_ns(const struct work *work) {
    int64_t rate = work->kind == CUPTI_ACTIVITY_KIND_MEMCPY ? COPIED_BYTES_PER_US : MEMORY_BYTES_PER_US;
    int64_t kernel_ns = setting("SIMULATED_KERNEL_NS", 5000);
    return work->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL ? kernel_ns : 1000 + (int64_t)work->bytes * 1000 / rate;
}

static void append(struct CUgraph_st *graph, const struct work *work) {
    if (graph->count == graph->room) {
        graph->room = graph->room * 2 + 64;
        graph->works = realloc(graph->works, graph->room * sizeof *work);
    }
    graph->works[graph->count++] = *work;
}

void perform(const struct call *call, CUstream handle, const struct work *work) {
    LOCKED;
    need_context();
    struct CUstream_st *stream = stream_of(handle);
    if (stream->capture != NULL) {
        append(stream->capture, work);
        return;
    }
    int64_t start = now_ns() + LATENCY_NS;
    if (start < stream->done_ns) start = stream->done_ns;
    stream->done_ns = start + duration_ns(work);
    tell_work(call, work, stream->id, start, stream->done_ns);
}

void launch(const struct call *call, CUstream stream, const char *name, dim3 grid, dim3 block, size_t shared_bytes) {
    struct work work = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, name, grid, block, .shared_bytes = shared_bytes};
    perform(call, stream, &work);
}

void copy(const struct call *call, CUstream stream, void *to, const void *from, size_t bytes,
          enum cudaMemcpyKind kind) {
    bool is_from = is_device_memory(from), is_to = is_device_memory(to);
    (void)kind; /* the addresses tell */
    memmove(to, from, bytes);
    uint8_t found = is_from && is_to ? CUPTI_ACTIVITY_MEMCPY_KIND_DTOD
                    : is_from        ? CUPTI_ACTIVITY_MEMCPY_KIND_DTOH
                    : is_to          ? CUPTI_ACTIVITY_MEMCPY_KIND_HTOD
                                     : CUPTI_ACTIVITY_MEMCPY_KIND_HTOH;
    struct work work = {.kind = CUPTI_ACTIVITY_KIND_MEMCPY, .bytes = bytes, .copy_kind = found};
    perform(call, stream, &work);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream) {
    struct call call = RUNTIME(cudaMemcpyAsync, 3020);
    copy(&call, stream, to, from, bytes, kind);
    return end_call(&call, cudaSuccess);
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind) {
    struct call call = RUNTIME(cudaMemcpy, 3020);
    copy(&call, NULL, to, from, bytes, kind);
    wait_until(default_stream.done_ns);
    return end_call(&call, cudaSuccess);
}

/* Whole pages that become zero are given back to the system: a buffer that is only cleared takes no memory. */
static void fill(char *at, int value, size_t bytes) {
    uintptr_t first = ((uintptr_t)at + 4095) & ~4095ull, last = ((uintptr_t)at + bytes) & ~4095ull;
    if (value != 0 || last <= first) {
        memset(at, value, bytes);
        return;
    }
    memset(at, 0, first - (uintptr_t)at);
    memset((void *)last, 0, (uintptr_t)at + bytes - last);
    madvise((void *)first, last - first, MADV_DONTNEED);
}

static void set(const struct call *call, void *at, int value, size_t bytes, CUstream stream) {
    struct work work = {.kind = CUPTI_ACTIVITY_KIND_MEMSET, .bytes = bytes, .value = value};
    fill(at, value, bytes);
    perform(call, stream, &work);
}

cudaError_t cudaMemsetAsync(void *at, int value, size_t bytes, cudaStream_t stream) {
    struct call call = RUNTIME(cudaMemsetAsync, 3020);
    set(&call, at, value, bytes, stream);
    return end_call(&call, cudaSuccess);
}

cudaError_t cudaMemset(void *at, int value, size_t bytes) {
    struct call call = RUNTIME(cudaMemset, 3020);
    set(&call, at, value, bytes, NULL);
    return end_call(&call, cudaSuccess);
}

/* Streams and events. */

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority) {
    LOCKED;
    (void)flags, (void)priority;
    need_context();
    *stream = malloc(sizeof **stream);
    **stream = (struct CUstream_st){.id = ++streams_made, .next = default_stream.next};
    default_stream.next = *stream;
    return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t *stream) { return cudaStreamCreateWithPriority(stream, 0, 0); }
cudaError_t cudaStreamGetPriority(cudaStream_t stream, int *priority) { return (void)stream, *priority = 0, 0; }
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *most) { return *least = 0, *most = -5, 0; }

cudaError_t cudaStreamQuery(cudaStream_t stream) {
    return stream_of(stream)->done_ns <= now_ns() ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
    struct call call = RUNTIME(cudaStreamSynchronize, 3020);
    struct CUstream_st *stream = stream_of(handle);
    wait_until(stream->done_ns);
    tell_wait(&call, CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE, stream->id, 0);
    return end_call(&call, cudaSuccess);
}

cudaError_t cudaDeviceSynchronize(void) {
    struct call call = RUNTIME(cudaDeviceSynchronize, 3020);
    for (struct CUstream_st *each = &default_stream; each != NULL; each = each->next) wait_until(each->done_ns);
    tell_wait(&call, CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_CONTEXT_SYNCHRONIZE, CUPTI_SYNCHRONIZATION_INVALID_VALUE, 0);
    return end_call(&call, cudaSuccess);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) {
    LOCKED;
    (void)flags;
    *event = calloc(1, sizeof **event);
    (*event)->id = ++events_made;
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *event) { return cudaEventCreateWithFlags(event, 0); }

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    free(event);
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t handle) {
    struct call call = RUNTIME(cudaEventRecord, 3020);
    LOCKED;
    struct CUstream_st *stream = stream_of(handle);
    int64_t now = now_ns();
    event->capture = stream->capture;
    event->at_ns = stream->done_ns > now ? stream->done_ns : now;
    return end_call(&call, cudaSuccess);
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
    return (void)flags, cudaEventRecord(event, stream);
}

cudaError_t cudaEventQuery(cudaEvent_t event) { return event->at_ns <= now_ns() ? cudaSuccess : cudaErrorNotReady; }

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    struct call call = RUNTIME(cudaEventSynchronize, 3020);
    wait_until(event->at_ns);
    tell_wait(&call, CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_EVENT_SYNCHRONIZE, 0, event->id);
    return end_call(&call, cudaSuccess);
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t first, cudaEvent_t last) {
    return *ms = (last->at_ns - first->at_ns) / 1e6f, cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned flags) {
    struct call call = RUNTIME(cudaStreamWaitEvent, 3020);
    LOCKED;
    (void)flags;
    struct CUstream_st *stream = stream_of(handle);
    if (event->capture != NULL) stream->capture = event->capture; /* it joins */
    else if (stream->done_ns < event->at_ns) stream->done_ns = event->at_ns;
    tell_wait(&call, CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_WAIT_EVENT, stream->id, event->id);
    return end_call(&call, cudaSuccess);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *argument) {
    cudaStreamSynchronize(stream);
    function(argument);
    return cudaSuccess;
}

/* Graphs: what a stream was asked for while it was captured, in that order. */

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode) {
    struct call call = RUNTIME(cudaStreamBeginCapture, 10000);
    LOCKED;
    (void)mode;
    stream_of(stream)->capture = calloc(1, sizeof(struct CUgraph_st));
    stream_of(stream)->capture->id = ++graphs_made;
    return end_call(&call, cudaSuccess);
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
    struct call call = RUNTIME(cudaStreamEndCapture, 10000);
    LOCKED;
    *graph = stream_of(stream)->capture;
    for (struct CUstream_st *each = &default_stream; each != NULL; each = each->next)
        if (each->capture == *graph) each->capture = NULL;
    return end_call(&call, cudaSuccess);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status) {
    *status = stream_of(stream)->capture == NULL ? cudaStreamCaptureStatusNone : cudaStreamCaptureStatusActive;
    return cudaSuccess;
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, enum cudaStreamCaptureStatus *status, unsigned long long *id,
                                     cudaGraph_t *graph, const cudaGraphNode_t **nodes, const cudaGraphEdgeData **edges,
                                     size_t *count) {
    struct CUgraph_st *found = stream_of(stream)->capture;
    cudaStreamIsCapturing(stream, status);
    if (id != NULL) *id = found == NULL ? 0 : found->id;
    if (graph != NULL) *graph = found;
    if (nodes != NULL) *nodes = NULL;
    if (edges != NULL) *edges = NULL;
    if (count != NULL) *count = 0;
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *made, cudaGraph_t graph, unsigned long long flags) {
    return (void)flags, *made = (cudaGraphExec_t)graph, cudaSuccess;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count) {
    return (void)nodes, *count = graph->count, cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t made, cudaStream_t stream) {
    struct call call = RUNTIME(cudaGraphLaunch, 10000);
    struct CUgraph_st *graph = (struct CUgraph_st *)made;
    for (uint32_t i = 0; i < graph->count; i++) {
        struct work work = graph->works[i];
        work.graph = graph->id, work.node = i + 1;
        perform(&call, stream, &work);
    }
    return end_call(&call, cudaSuccess);
}

