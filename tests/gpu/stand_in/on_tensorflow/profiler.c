/* Stands in for libcupti.so.12: callbacks for the calls of the driver and records of what the card did.
 * Numbers and layouts are those of CUDA 12 (cupti_activity.h, cupti_callbacks.h, cupti_result.h). */
#include "stand_in.h"

#include <stdatomic.h>
#include <string.h>

enum { MAX_LIMIT_REACHED = 12 };
enum { KERNEL_ALONE = 3, RECORD_KINDS = 64 };
enum { DRIVER_DOMAIN = 1, CALLS = 2048 };
enum { PAGEABLE = 1, DEVICE = 3, ASYNCHRONOUS = 1, REGISTERS = 32 };

typedef struct __attribute__((packed, aligned(8))) {
    uint32_t kind;
    uint8_t cache, shared_config;
    uint16_t registers;
    uint32_t partitioned[2];
    uint64_t start_ns, end_ns, completed_ns;
    uint32_t device, context, stream;
    int32_t grid[3], block[3], static_shared_bytes, dynamic_shared_bytes;
    uint32_t local_bytes, local_total_bytes, correlation;
    int64_t grid_number;
    const char *name;
    void *reserved;
    uint64_t queued_ns, submitted_ns;
    uint8_t launch, carveout[3];
    uint32_t shared_executed;
    uint64_t graph_node;
    uint32_t shared_limit, graph;
    void *policy;
    uint32_t channel, channel_type, cluster[3], cluster_policy;
    uint64_t local_total_2;
    uint32_t clusters[2];
} KernelRecord;

typedef struct __attribute__((packed, aligned(8))) {
    uint32_t kind;
    uint8_t way, from, to, flags;
    uint64_t bytes, start_ns, end_ns;
    uint32_t device, context, stream, correlation, runtime_correlation, pad;
    void *reserved;
    uint64_t graph_node;
    uint32_t graph, channel, channel_type, pad_2;
} CopyRecord;

typedef struct __attribute__((packed, aligned(8))) {
    uint32_t kind, value;
    uint64_t bytes, start_ns, end_ns;
    uint32_t device, context, stream, correlation;
    uint16_t flags, memory;
    uint32_t pad;
    void *reserved;
    uint64_t graph_node;
    uint32_t graph, channel, channel_type, pad_2;
} SetRecord;

typedef struct {
    uint32_t site; /* 0: the call begins, 1: it has ended */
    const char *function;
    const void *arguments;
    void *returned;
    const char *symbol;
    void *context;
    uint32_t context_number;
    uint64_t *kept;
    uint32_t correlation;
} CallbackData;

typedef void (*Callback)(void *user_data, int domain, uint32_t number, const CallbackData *data);
typedef void (*Requested)(uint8_t **buffer, size_t *bytes, size_t *most_records);
typedef void (*Completed)(void *context, uint32_t stream, uint8_t *buffer, size_t bytes, size_t used_bytes);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Callback callback;
static void *callback_data;
static char wanted_calls[CALLS], wanted_records[RECORD_KINDS];
static Requested request;
static Completed complete;
static uint8_t *buffer;
static size_t buffer_bytes, used_bytes;

static size_t size_of(uint32_t kind) {
    return kind == COPY ? sizeof(CopyRecord) : kind == SET ? sizeof(SetRecord) : sizeof(KernelRecord);
}

/* With the lock: hands over what is there. */
static void flush(void) {
    uint8_t *full = buffer;
    size_t bytes = buffer_bytes, used = used_bytes;
    buffer = NULL;
    used_bytes = 0;
    pthread_mutex_unlock(&lock);
    if (full) complete(&callback, 0, full, bytes, used);
    pthread_mutex_lock(&lock);
}

static void add(const void *record) {
    uint32_t kind = *(const uint32_t *)record;
    size_t bytes = size_of(kind), most;
    pthread_mutex_lock(&lock);
    if (buffer && used_bytes + bytes > buffer_bytes) flush();
    if (!buffer && request) request(&buffer, &buffer_bytes, &most);
    if (buffer) {
        memcpy(buffer + used_bytes, record, bytes);
        used_bytes += bytes;
    }
    pthread_mutex_unlock(&lock);
}

void report_work(const struct call *call, const struct work *work, uint32_t stream, int64_t start_ns, int64_t end_ns) {
    if (!callback) return;
    if (work->kind == KERNEL && (wanted_records[KERNEL_ALONE] || wanted_records[KERNEL]))
        add(&(KernelRecord){
            .kind = KERNEL, .registers = REGISTERS, .start_ns = start_ns, .end_ns = end_ns, .context = CONTEXT_ID,
            .stream = stream, .grid = {work->grid.x, work->grid.y, work->grid.z},
            .block = {work->block.x, work->block.y, work->block.z}, .dynamic_shared_bytes = work->shared_bytes,
            .correlation = call->id, .name = work->name});
    if (work->kind == COPY && wanted_records[COPY])
        add(&(CopyRecord){
            .kind = COPY, .way = work->way, .from = work->way == TO_DEVICE ? PAGEABLE : DEVICE,
            .to = work->way == TO_HOST ? PAGEABLE : DEVICE, .flags = ASYNCHRONOUS, .bytes = work->bytes,
            .start_ns = start_ns, .end_ns = end_ns, .context = CONTEXT_ID, .stream = stream, .correlation = call->id});
    if (work->kind == SET && wanted_records[SET])
        add(&(SetRecord){
            .kind = SET, .value = work->value, .bytes = work->bytes, .start_ns = start_ns, .end_ns = end_ns,
            .context = CONTEXT_ID, .stream = stream, .correlation = call->id, .memory = DEVICE});
}

static void call_back(struct call *call, uint32_t site) {
    int returned = SUCCESS;
    if (callback && call->domain == DRIVER_CALL && wanted_calls[call->number])
        callback(callback_data, DRIVER_DOMAIN, call->number,
                 &(CallbackData){site, call->name, call->arguments, &returned, call->kernel, &callback, CONTEXT_ID,
                                 &call->kept, call->id});
}

/* The runtime's launches are the driver's; nobody asks for its other calls. */
struct call begin_call(struct call call) {
    static atomic_uint calls;
    call.id = ++calls;
    if (call.domain == RUNTIME_CALL && call.number == CALL_cudaLaunchKernel)
        call.domain = DRIVER_CALL, call.number = CALL_cuLaunchKernel, call.name = "cuLaunchKernel";
    call_back(&call, 0);
    return call;
}

int end_call(struct call *call, int status) {
    call_back(call, 1);
    return status;
}

int cuptiSubscribe(void **subscriber, Callback call, void *user_data) {
    *subscriber = &callback;
    callback_data = user_data;
    callback = call;
    return SUCCESS;
}
int cuptiUnsubscribe(void *subscriber) { callback = NULL; return SUCCESS; }
int cuptiEnableCallback(uint32_t enable, void *subscriber, int domain, uint32_t number) {
    if (domain == DRIVER_DOMAIN && number < CALLS) wanted_calls[number] = (char)enable;
    return SUCCESS;
}
int cuptiEnableDomain(uint32_t enable, void *subscriber, int domain) {
    if (domain == DRIVER_DOMAIN) memset(wanted_calls, (int)enable, sizeof wanted_calls);
    return SUCCESS;
}
int cuptiActivityEnable(uint32_t kind) { if (kind < RECORD_KINDS) wanted_records[kind] = 1; return SUCCESS; }
int cuptiActivityDisable(uint32_t kind) { if (kind < RECORD_KINDS) wanted_records[kind] = 0; return SUCCESS; }
int cuptiActivityRegisterCallbacks(Requested requested, Completed completed) {
    request = requested;
    complete = completed;
    return SUCCESS;
}
int cuptiActivityFlushAll(uint32_t flag) {
    pthread_mutex_lock(&lock);
    flush();
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}
int cuptiActivityFlushPeriod(uint32_t ms) { return SUCCESS; }
int cuptiActivitySetAttribute(int which, size_t *bytes, void *value) { return SUCCESS; }
int cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *dropped) { *dropped = 0; return SUCCESS; }
int cuptiActivityGetNextRecord(uint8_t *begin_, size_t bytes, uint8_t **record) {
    uint8_t *next = *record ? *record + size_of(*(uint32_t *)*record) : begin_;
    if (next >= begin_ + bytes) return MAX_LIMIT_REACHED;
    *record = next;
    return SUCCESS;
}
int cuptiActivityEnableHWTrace(uint8_t enable) { return SUCCESS; }
int cuptiFinalize(void) { return SUCCESS; }
int cuptiGetTimestamp(uint64_t *time_ns) { *time_ns = now_ns(); return SUCCESS; }
int cuptiGetDeviceId(void *context, uint32_t *device) { *device = 0; return SUCCESS; }
int cuptiGetContextId(void *context, uint32_t *number) { *number = CONTEXT_ID; return SUCCESS; }
int cuptiGetResultString(int result, const char **text) {
    *text = result ? "CUPTI_ERROR" : "CUPTI_SUCCESS";
    return SUCCESS;
}
int cuptiSetThreadIdType(int type) { return SUCCESS; }
