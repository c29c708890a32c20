/* A CUDA device that computes nothing: memory, streams, events, graphs and what CUPTI tells of them are as on a card.
 *
 * Preloaded into a process, it answers for the driver, the runtime, cuBLAS and CUPTI's activities. Device memory is the
 * host's, kernels leave it as it is, and streams take time by a simulated clock.
 */
#pragma once
#define _GNU_SOURCE
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <cupti.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define RUNTIME(name, version) begin_call(CUPTI_ACTIVITY_KIND_RUNTIME, CUPTI_RUNTIME_TRACE_CBID_##name##_v##version)
#define DRIVER(name) begin_call(CUPTI_ACTIVITY_KIND_DRIVER, CUPTI_DRIVER_TRACE_CBID_##name)
#define LOCKED __attribute__((cleanup(unlock), unused)) int held = take_lock()

enum { USERS = 64, CONTEXT_ID = 1, DEFAULT_STREAM_ID = 7, MULTIPROCESSORS = 132 };

/* A call of the host into the driver or the runtime. */
struct call {
    CUpti_ActivityKind domain;
    uint32_t number, id;
    uint64_t start;
};

/* Something a stream does: a kernel, a copy or a set. */
struct work {
    CUpti_ActivityKind kind;
    const char *name;
    dim3 grid, block;
    uint64_t shared_bytes, bytes;
    uint32_t value;
    uint8_t copy_kind;
    uint32_t graph, node;
};

struct CUstream_st {
    uint32_t id;
    int64_t done_ns; /* when what was asked for so far is done */
    struct CUgraph_st *capture;
    struct CUstream_st *next;
};

/* What a process has of the device's memory. */
struct user {
    int32_t process; /* 0: nobody */
    uint64_t bytes;
};

/* device.c */
cudaError_t failed(cudaError_t error); /* keeps what cudaGetLastError tells */

/* memory.c */
extern pthread_mutex_t lock;
int take_lock(void);
void unlock(int *held);
int64_t setting(const char *name, int64_t otherwise); /* of the environment */
void not_simulated(const char *name);                 /* says so once */
bool claim(uint64_t bytes);                           /* device memory; false: there is not as much */
void give_back(uint64_t bytes);
void need_context(void);
uint64_t memory_bytes(void), free_bytes(void);
struct user user(int number); /* empty where the process is gone */
bool is_device_memory(const void *at);

/* work.c */
int64_t now_ns(void);
struct CUstream_st *stream_of(CUstream handle); /* the default stream, too */
void perform(const struct call *call, CUstream stream, const struct work *work);
void launch(const struct call *call, CUstream stream, const char *name, dim3 grid, dim3 block, size_t shared_bytes);
void copy(const struct call *call, CUstream stream, void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind);

/* cupti.c */
struct call begin_call(CUpti_ActivityKind domain, uint32_t number);
int end_call(const struct call *call, int status);
void tell_work(const struct call *call, const struct work *work, uint32_t stream, int64_t start_ns, int64_t end_ns);
void tell_wait(const struct call *call, CUpti_ActivitySynchronizationType type, uint32_t stream, uint32_t event);
