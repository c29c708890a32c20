/* A CUDA device that computes nothing: memory, streams, events and what is reported of them are as on a card.
 *
 * Device memory is the host's, kernels leave it as it is, and streams take time by a simulated clock. What lies in this
 * folder is part of every stand-in, less what a framework does not ask for (#if), and on_* is what one alone asks for.
 * It does without CUDA's headers, for each framework is built with other ones: types are of the same size as CUDA's,
 * numbers are the same.
 */
#pragma once
#define _GNU_SOURCE
#include "card.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LOCKED __attribute__((cleanup(unlock), unused)) int held = take_lock()
#define BEGIN(of, what, ...) begin_call((struct call){.domain = of, .number = what, __VA_ARGS__})
#define CALL(name) BEGIN(RUNTIME_CALL, CALL_##name)

enum status {
    SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_DEVICE = 101, NOT_FOUND = 500, NOT_READY = 600,
    NOT_SUPPORTED = 801,
};
enum { USERS = 64, CONTEXT_ID = 1, DEFAULT_STREAM_ID = 7 };

/* As CUPTI numbers calls (cupti_runtime_cbid.h) and what it reports (cupti_activity.h). */
enum {
    CALL_cudaMalloc = 20, CALL_cudaFree = 22, CALL_cudaHostAlloc = 27, CALL_cudaMemcpy = 31, CALL_cudaMemcpyAsync = 41,
    CALL_cudaMemsetAsync = 51, CALL_cudaStreamSynchronize = 131, CALL_cudaEventRecord = 135,
    CALL_cudaEventSynchronize = 137, CALL_cudaStreamWaitEvent = 147, CALL_cudaDeviceSynchronize = 165,
    CALL_cudaLaunchKernel = 211, CALL_cuLaunchKernel = 307, CALL_cuLaunchKernelEx = 652,
};
enum kind { COPY = 1, SET = 2, DRIVER_CALL = 4, RUNTIME_CALL = 5, KERNEL = 10 };
enum way { TO_DEVICE = 1, TO_HOST = 2, WITHIN_DEVICE = 8, WITHIN_HOST = 9 };
enum wait { OF_EVENT = 1, BY_STREAM = 2, OF_STREAM = 3, OF_CONTEXT = 4 };
enum place { NOWHERE, ON_HOST, ON_DEVICE };

/* A call of the host into the driver or the runtime. */
struct call {
    enum kind domain;
    uint32_t number, id;
    uint64_t start, kept; /* kept: for whoever observes, from a call's begin to its end */
    const char *name, *kernel;
    const void *arguments;
};

struct size {
    unsigned x, y, z;
};

/* Something a stream does: a kernel, a copy or a set. */
struct work {
    enum kind kind;
    const char *name;
    struct size grid, block;
    uint64_t shared_bytes, bytes;
    uint32_t value;
    enum way way;
    uint32_t graph, node;
};

struct CUstream_st {
    uint32_t id;
    int64_t done_ns; /* when what was asked for so far is done */
    struct CUgraph_st *capture;
    struct CUstream_st *next;
};

struct CUevent_st {
    uint32_t id;
    int64_t at_ns;
    struct CUgraph_st *capture;
};

struct CUgraph_st {
    uint32_t id, count, room;
    struct work *works;
};

typedef struct CUstream_st *Stream;
typedef struct CUevent_st *Event;

/* What a process has of the device's memory. */
struct user {
    int32_t process; /* 0: nobody */
    uint64_t bytes;
};

/* A stretch of memory that was asked for. */
struct region {
    char *at;
    uint64_t bytes;
    enum place place;
    struct region *next;
};

#pragma GCC visibility push(hidden) /* no framework is to find what is not CUDA's */

/* memory.c */
int take_lock(void);
void unlock(int *held);
int64_t setting(const char *name, int64_t otherwise); /* of the environment */
void not_simulated(const char *name);                 /* says so once */
bool claim(uint64_t bytes);                           /* device memory; false: there is not as much */
void give_back(uint64_t bytes);
void need_context(void);
uint64_t memory_bytes(void), free_bytes(void);
struct user user(int number); /* empty where the process is gone */
int make_region(void **at, size_t bytes, enum place place);
int remove_region(void *at);
struct region region_of(const void *at); /* empty where it is in none */

/* runtime.c */
int failed(int status); /* keeps what cudaGetLastError returns */
int wait_for(Event event, Stream stream);

/* work.c */
extern struct CUstream_st default_stream;
int64_t now_ns(void);
void wait_until(int64_t at_ns);
Stream stream_of(Stream handle); /* the default stream, too */
void perform(const struct call *call, Stream stream, const struct work *work);
void launch(const struct call *call, Stream stream, const char *name, struct size grid, struct size block,
            size_t shared_bytes);
enum way way_of(const void *to, const void *from);
void copy(const struct call *call, Stream stream, void *to, const void *from, size_t bytes);
void set(const struct call *call, Stream stream, void *at, uint32_t value, size_t width, size_t count);

/* blas.c */
int product(Stream stream, const char *name, bool by_driver);

/* launches.c */
const char *name_of(const void *function); /* of a kernel, by its stub on the host */

/* Who observes, where a stand-in has CUPTI; work.c has them for where it has not. */
struct call begin_call(struct call call);
int end_call(struct call *call, int status);
void report_work(const struct call *call, const struct work *work, uint32_t stream, int64_t start_ns, int64_t end_ns);
void report_wait(const struct call *call, enum wait of, uint32_t stream, uint32_t event);

#pragma GCC visibility pop
