/* CUPTI's activities: records of calls, kernels, copies and sets, kept until they are asked for. */
#include "torch.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SAME(name, version) \
    _Static_assert((int)CALL_##name == (int)CUPTI_RUNTIME_TRACE_CBID_##name##_v##version, "a number of CUPTI's");
SAME(cudaMalloc, 3020) SAME(cudaFree, 3020) SAME(cudaHostAlloc, 3020) SAME(cudaMemcpy, 3020)
SAME(cudaMemcpyAsync, 3020) SAME(cudaMemsetAsync, 3020) SAME(cudaStreamSynchronize, 3020) SAME(cudaEventRecord, 3020)
SAME(cudaEventSynchronize, 3020) SAME(cudaStreamWaitEvent, 3020) SAME(cudaDeviceSynchronize, 3020)
SAME(cudaLaunchKernel, 7000)
_Static_assert((int)CALL_cuLaunchKernelEx == (int)CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx, "a number of CUPTI's");

enum { DRIVER_CALLS, RUNTIME_CALLS, CALLS = 2048, DEPTH = 256 };

union record {
    CUpti_ActivityKind kind;
    CUpti_ActivityAPI call;
    CUpti_ActivityExternalCorrelation external;
    CUpti_ActivitySynchronization2 wait;
    CUpti_ActivityKernel10 kernel;
    CUpti_ActivityMemcpy6 copy;
    CUpti_ActivityMemset4 set;
};

struct pending {
    union record record;
    int64_t start_ns, end_ns; /* of what a stream does, by the simulated clock; 0: it has its times */
};

struct moment {
    int64_t clock_ns;
    uint64_t stamp;
};

struct buffer {
    uint8_t *at;
    size_t bytes, valid;
};

static bool kinds[CUPTI_ACTIVITY_KIND_COUNT], reported_calls[2][CALLS];
static struct pending *pending;
static size_t count, room, dropped;
static struct moment begun;
static struct buffer open; /* asked for with the first record: a client that was not asked for one does not flush */
static uint32_t calls_made;
static CUpti_BuffersCallbackRequestFunc request;
static CUpti_BuffersCallbackCompleteFunc complete;
static CUpti_TimestampCallbackFunc clock_of_client;
static __thread struct { uint64_t ids[DEPTH]; int depth; } external[CUPTI_EXTERNAL_CORRELATION_KIND_SIZE];

static uint64_t stamp(void) {
    struct timespec now;
    if (clock_of_client != NULL) return clock_of_client();
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * 1000000000ull + now.tv_nsec;
}

static void open_buffer(void) {
    size_t most;
    open.valid = 0;
    request(&open.at, &open.bytes, &most);
}

static void close_buffer(void) {
    if (open.at != NULL) complete(NULL, 0, open.at, open.bytes, open.valid);
    open.at = NULL;
}

static struct pending *add(CUpti_ActivityKind kind) {
    if (open.at == NULL && request != NULL) open_buffer();
    if (count == room) {
        room = room * 2 + 1024;
        pending = realloc(pending, room * sizeof *pending);
    }
    pending[count] = (struct pending){.record.kind = kind};
    return &pending[count++];
}

static int domain_of(const struct call *call) {
    return call->domain == RUNTIME_CALL ? RUNTIME_CALLS : DRIVER_CALLS;
}

struct call begin_call(struct call call) {
    call.id = __atomic_add_fetch(&calls_made, 1, __ATOMIC_RELAXED);
    call.start = stamp();
    return call;
}

int end_call(struct call *call, int status) {
    if (!reported_calls[domain_of(call)][call->number]) return status;
    LOCKED;
    if (kinds[CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION])
        for (int kind = 0; kind < CUPTI_EXTERNAL_CORRELATION_KIND_SIZE; kind++) {
            if (external[kind].depth == 0) continue;
            CUpti_ActivityExternalCorrelation *record = &add(CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION)->record.external;
            record->externalKind = kind;
            record->externalId = external[kind].ids[external[kind].depth - 1];
            record->correlationId = call->id;
        }
    CUpti_ActivityAPI *record = &add((CUpti_ActivityKind)call->domain)->record.call;
    record->cbid = call->number;
    record->start = call->start;
    record->end = stamp();
    record->processId = getpid();
    record->threadId = (uint32_t)pthread_self();
    record->correlationId = call->id;
    record->returnValue = status;
    return status;
}

static void fill_kernel(CUpti_ActivityKernel10 *record, const struct call *call, const struct work *work,
                        uint32_t stream) {
    record->contextId = CONTEXT_ID;
    record->streamId = stream;
    record->correlationId = call->id;
    record->gridX = work->grid.x, record->gridY = work->grid.y, record->gridZ = work->grid.z;
    record->blockX = work->block.x, record->blockY = work->block.y, record->blockZ = work->block.z;
    record->dynamicSharedMemory = work->shared_bytes;
    record->registersPerThread = 32;
    record->name = work->name;
    record->graphId = work->graph;
    record->graphNodeId = work->node;
}

void report_work(const struct call *call, const struct work *work, uint32_t stream, int64_t start_ns, int64_t end_ns) {
    if (!kinds[work->kind]) return;
    LOCKED;
    struct pending *each = add((CUpti_ActivityKind)work->kind);
    each->start_ns = start_ns, each->end_ns = end_ns;
    if (work->kind == KERNEL) {
        fill_kernel(&each->record.kernel, call, work, stream);
    } else if (work->kind == COPY) {
        CUpti_ActivityMemcpy6 *record = &each->record.copy;
        record->contextId = CONTEXT_ID, record->streamId = stream, record->correlationId = call->id;
        record->copyKind = work->way;
        record->srcKind = record->dstKind = CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
        if (work->way == TO_DEVICE) record->srcKind = CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE;
        if (work->way == TO_HOST) record->dstKind = CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE;
        record->bytes = work->bytes;
        record->graphId = work->graph, record->graphNodeId = work->node;
    } else {
        CUpti_ActivityMemset4 *record = &each->record.set;
        record->contextId = CONTEXT_ID, record->streamId = stream, record->correlationId = call->id;
        record->value = work->value;
        record->bytes = work->bytes;
        record->memoryKind = CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
        record->graphId = work->graph, record->graphNodeId = work->node;
    }
}

void report_wait(const struct call *call, enum wait of, uint32_t stream, uint32_t event) {
    if (!kinds[CUPTI_ACTIVITY_KIND_SYNCHRONIZATION]) return;
    LOCKED;
    CUpti_ActivitySynchronization2 *record = &add(CUPTI_ACTIVITY_KIND_SYNCHRONIZATION)->record.wait;
    record->type = (CUpti_ActivitySynchronizationType)of;
    record->start = call->start;
    record->end = stamp();
    record->correlationId = call->id;
    record->contextId = CONTEXT_ID;
    record->streamId = stream;
    record->cudaEventId = event;
}

static size_t bytes_of(CUpti_ActivityKind kind) {
    switch (kind) {
    case CUPTI_ACTIVITY_KIND_RUNTIME:
    case CUPTI_ACTIVITY_KIND_DRIVER: return sizeof(CUpti_ActivityAPI);
    case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION: return sizeof(CUpti_ActivityExternalCorrelation);
    case CUPTI_ACTIVITY_KIND_SYNCHRONIZATION: return sizeof(CUpti_ActivitySynchronization2);
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: return sizeof(CUpti_ActivityKernel10);
    case CUPTI_ACTIVITY_KIND_MEMCPY: return sizeof(CUpti_ActivityMemcpy6);
    case CUPTI_ACTIVITY_KIND_MEMSET: return sizeof(CUpti_ActivityMemset4);
    default: return 0;
    }
}

/* The client's clock is asked at both ends; times of streams are laid between them. */
static uint64_t stamped(int64_t at_ns, const struct moment *now) {
    double rate = (double)(int64_t)(now->stamp - begun.stamp) / (double)(now->clock_ns - begun.clock_ns);
    int64_t skewed_ns = at_ns + setting("SIMULATED_SKEW_NS", 0);
    return begun.stamp + (int64_t)((double)(skewed_ns - begun.clock_ns) * rate);
}

static void give_times(struct pending *each, const struct moment *now) {
    uint64_t start = stamped(each->start_ns, now), end = stamped(each->end_ns, now);
    union record *record = &each->record;
    switch (record->kind) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: record->kernel.start = start, record->kernel.end = end; return;
    case CUPTI_ACTIVITY_KIND_MEMCPY: record->copy.start = start, record->copy.end = end; return;
    case CUPTI_ACTIVITY_KIND_MEMSET: record->set.start = start, record->set.end = end; return;
    default: return;
    }
}

static void hand_over(const struct pending *each) {
    size_t bytes = bytes_of(each->record.kind);
    if (open.at != NULL && open.valid + bytes > open.bytes) close_buffer();
    if (open.at == NULL) open_buffer();
    memcpy(open.at + open.valid, &each->record, bytes);
    open.valid += bytes;
}

/* Calls come first, then what the streams have done; what they have not is kept, and some kernels may be lost. */
CUptiResult cuptiActivityFlushAll(uint32_t flags) {
    LOCKED;
    struct moment now = {now_ns(), stamp()};
    size_t kept = 0;
    int64_t losses = setting("SIMULATED_LOSSES", 0);
    for (size_t i = 0; i < count; i++)
        if (pending[i].end_ns == 0) hand_over(&pending[i]);
    for (size_t i = 0; i < count; i++) {
        struct pending *each = &pending[i];
        if (each->end_ns > now.clock_ns) {
            pending[kept++] = *each;
        } else if (each->record.kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL && losses > 0) {
            losses--, dropped++;
        } else if (each->end_ns != 0) {
            give_times(each, &now);
            hand_over(each);
        }
    }
    close_buffer();
    count = kept;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, CUpti_Activity **record) {
    uint8_t *next = *record == NULL ? buffer : (uint8_t *)*record + bytes_of((*record)->kind);
    if (next >= buffer + valid) return CUPTI_ERROR_MAX_LIMIT_REACHED;
    *record = (CUpti_Activity *)next;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext context, uint32_t stream, size_t *records) {
    *records = dropped;
    dropped = 0;
    return CUPTI_SUCCESS;
}

static CUptiResult switched(CUpti_ActivityKind kind, bool on) {
    LOCKED;
    if (begun.clock_ns == 0) begun = (struct moment){now_ns(), stamp()};
    kinds[kind] = on;
    if (kind == CUPTI_ACTIVITY_KIND_DRIVER) memset(reported_calls[DRIVER_CALLS], on, CALLS);
    if (kind == CUPTI_ACTIVITY_KIND_RUNTIME) memset(reported_calls[RUNTIME_CALLS], on, CALLS);
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind) {
    return setting("SIMULATED_CUPTI_TAKEN", 0) ? CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED : switched(kind, true);
}

CUptiResult cuptiActivityDisable(CUpti_ActivityKind kind) { return switched(kind, false); }

CUptiResult cuptiActivityEnableRuntimeApi(CUpti_CallbackId number, uint8_t on) {
    return reported_calls[RUNTIME_CALLS][number] = on, CUPTI_SUCCESS;
}

CUptiResult cuptiActivityEnableDriverApi(CUpti_CallbackId number, uint8_t on) {
    return reported_calls[DRIVER_CALLS][number] = on, CUPTI_SUCCESS;
}

CUptiResult cuptiActivityPushExternalCorrelationId(CUpti_ExternalCorrelationKind kind, uint64_t id) {
    if (external[kind].depth == DEPTH) return CUPTI_ERROR_OUT_OF_MEMORY;
    external[kind].ids[external[kind].depth++] = id;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityPopExternalCorrelationId(CUpti_ExternalCorrelationKind kind, uint64_t *last) {
    if (external[kind].depth == 0) return CUPTI_ERROR_QUEUE_EMPTY;
    uint64_t id = external[kind].ids[--external[kind].depth];
    if (last != NULL) *last = id;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc asks,
                                           CUpti_BuffersCallbackCompleteFunc gives) {
    return request = asks, complete = gives, CUPTI_SUCCESS;
}

CUptiResult cuptiActivityRegisterTimestampCallback(CUpti_TimestampCallbackFunc function) {
    LOCKED;
    clock_of_client = function;
    begun = (struct moment){now_ns(), stamp()};
    return CUPTI_SUCCESS;
}

CUptiResult cuptiGetVersion(uint32_t *version) { return *version = CUPTI_API_VERSION, CUPTI_SUCCESS; }

CUptiResult cuptiSubscribe(CUpti_SubscriberHandle *subscriber, CUpti_CallbackFunc function, void *argument) {
    static int one;
    if (setting("SIMULATED_CUPTI_TAKEN", 0)) return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
    return *subscriber = (CUpti_SubscriberHandle)&one, CUPTI_SUCCESS;
}

CUptiResult cuptiGetResultString(CUptiResult result, const char **text) {
    return *text = result == CUPTI_SUCCESS ? "CUPTI_SUCCESS" : "CUPTI_ERROR", CUPTI_SUCCESS;
}
