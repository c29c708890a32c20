/* What streams do, on a simulated clock: kernels, copies and sets, begun in the order of the stream. */
#include "stand_in.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define LATENCY_NS 3000
#define COPIED_BYTES_PER_US 50000
#define MEMORY_BYTES_PER_US 4000000

struct CUstream_st default_stream = {.id = DEFAULT_STREAM_ID};

int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ll + now.tv_nsec;
}

void wait_until(int64_t at_ns) {
    struct timespec until = {at_ns / 1000000000, at_ns % 1000000000};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR) continue;
}

Stream stream_of(Stream handle) { return (uintptr_t)handle < 8 ? &default_stream : handle; }

static int64_t duration_ns(const struct work *work) {
    int64_t rate = work->kind == COPY ? COPIED_BYTES_PER_US : MEMORY_BYTES_PER_US;
    int64_t kernel_ns = setting("SIMULATED_KERNEL_NS", 5000);
    return work->kind == KERNEL ? kernel_ns : 1000 + (int64_t)work->bytes * 1000 / rate;
}

static void append(struct CUgraph_st *graph, const struct work *work) {
    if (graph->count == graph->room) {
        graph->room = graph->room * 2 + 64;
        graph->works = realloc(graph->works, graph->room * sizeof *work);
    }
    graph->works[graph->count++] = *work;
}

/* Returns when it begins; 0: it is captured. */
static int64_t begun(Stream stream, const struct work *work) {
    LOCKED;
    need_context();
    if (stream->capture != NULL) return append(stream->capture, work), 0;
    int64_t start = now_ns() + LATENCY_NS;
    if (start < stream->done_ns) start = stream->done_ns;
    stream->done_ns = start + duration_ns(work);
    return start;
}

void perform(const struct call *call, Stream handle, const struct work *work) {
    int64_t start = begun(stream_of(handle), work);
    if (start != 0) report_work(call, work, stream_of(handle)->id, start, start + duration_ns(work));
}

void launch(const struct call *call, Stream stream, const char *name, struct size grid, struct size block,
            size_t shared_bytes) {
    perform(call, stream, &(struct work){KERNEL, name, grid, block, .shared_bytes = shared_bytes});
}

enum way way_of(const void *to, const void *from) {
    bool is_from = region_of(from).place == ON_DEVICE, is_to = region_of(to).place == ON_DEVICE;
    return is_from && is_to ? WITHIN_DEVICE : is_from ? TO_HOST : is_to ? TO_DEVICE : WITHIN_HOST;
}

void copy(const struct call *call, Stream stream, void *to, const void *from, size_t bytes) {
    memmove(to, from, bytes);
    perform(call, stream, &(struct work){.kind = COPY, .bytes = bytes, .way = way_of(to, from)});
}

/* Whole pages that become zero are given back to the system: a buffer that is only cleared takes no memory. */
static void clear(char *at, size_t bytes) {
    uintptr_t first = ((uintptr_t)at + 4095) & ~4095ull, last = ((uintptr_t)at + bytes) & ~4095ull;
    if (last <= first) first = last = (uintptr_t)at;
    memset(at, 0, first - (uintptr_t)at);
    memset((void *)last, 0, (uintptr_t)at + bytes - last);
    if (last > first) madvise((void *)first, last - first, MADV_DONTNEED);
}

void set(const struct call *call, Stream stream, void *at, uint32_t value, size_t width, size_t count) {
    if (value == 0) clear(at, width * count);
    else if (width == 1) memset(at, (int)value, count);
    else for (size_t i = 0; i < count; i++) ((uint32_t *)at)[i] = value;
    perform(call, stream, &(struct work){.kind = SET, .bytes = width * count, .value = value});
}

/* Nobody observes, but where a stand-in has others of these. */
#define UNOBSERVED __attribute__((weak))
UNOBSERVED struct call begin_call(struct call call) { return call; }
UNOBSERVED int end_call(struct call *call, int status) { return status; }
UNOBSERVED void report_work(const struct call *call, const struct work *work, uint32_t stream, int64_t start_ns,
                            int64_t end_ns) {}
UNOBSERVED void report_wait(const struct call *call, enum wait of, uint32_t stream, uint32_t event) {}
