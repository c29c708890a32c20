/* Stands in for libcuda.so.1: the card, its one context, and its memory, which is the host's. */
#define _GNU_SOURCE
#include "card.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

typedef struct Block {
    void *address;
    size_t bytes;
    struct Block *next;
} Block;

static const size_t CONTEXT_BYTES = 512u << 20;
static const size_t DEFAULT_BYTES = (size_t)8 << 30;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Block *blocks;
static size_t given_bytes;

size_t card_total_bytes(void) {
    const char *told = getenv("STAND_IN_CARD_BYTES");
    return told ? strtoull(told, NULL, 10) : DEFAULT_BYTES;
}

size_t card_free_bytes(void) {
    size_t used = CONTEXT_BYTES + given_bytes, total = card_total_bytes();
    return used < total ? total - used : 0;
}

int card_allocate(void **address, size_t bytes) {
    pthread_mutex_lock(&lock);
    int result = OUT_OF_MEMORY;
    Block *block = malloc(sizeof *block);
    if (bytes <= card_free_bytes()) {
        void *got = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (got != MAP_FAILED) {
            *block = (Block){got, bytes, blocks};
            blocks = block;
            given_bytes += bytes;
            *address = got;
            result = SUCCESS;
        }
    }
    if (result != SUCCESS) free(block);
    pthread_mutex_unlock(&lock);
    return result;
}

int card_free(void *address) {
    pthread_mutex_lock(&lock);
    Block **link = &blocks;
    while (*link && (*link)->address != address) link = &(*link)->next;
    Block *block = *link;
    if (block) {
        *link = block->next;
        given_bytes -= block->bytes;
        munmap(block->address, block->bytes);
        free(block);
    }
    pthread_mutex_unlock(&lock);
    return block || !address ? SUCCESS : INVALID_VALUE;
}

size_t card_block(const void *address, void **base) {
    pthread_mutex_lock(&lock);
    Block *block = blocks;
    while (block && (uintptr_t)address - (uintptr_t)block->address >= block->bytes)
        block = block->next;
    size_t bytes = block ? block->bytes : 0;
    if (block) *base = block->address;
    pthread_mutex_unlock(&lock);
    return bytes;
}

/* The card */

static int attribute_of(int which) { /* by CUdevice_attribute */
    switch (which) {
    case 1: case 2: case 3: return 1024; /* threads in a block, a block's x and y */
    case 4: return 64;                   /* a block's z */
    case 5: case 11: return 2147483647;  /* a grid's x, pitch of copies */
    case 6: case 7: return 65535;        /* a grid's y and z */
    case 8: return 49152;                /* shared memory of a block, bytes */
    case 9: return 65536;                /* constant memory, bytes */
    case 10: return 32;                  /* threads in a warp */
    case 12: case 82: return 65536;      /* registers of a block and of a multiprocessor */
    case 13: return 1980000;             /* clock, kHz */
    case 14: return 512;                 /* alignment of textures */
    case 15: case 19: case 31: case 32: case 41: case 78: case 83: case 95: return 1; /* what such a card can */
    case 16: return CARD_MULTIPROCESSORS;
    case 36: return 3201000;             /* memory's clock, kHz */
    case 37: return 6144;                /* memory's bus, bits */
    case 38: return 60 << 20;            /* level 2 cache, bytes */
    case 39: return 2048;                /* threads of a multiprocessor */
    case 40: return 3;                   /* copy engines */
    case 75: return CARD_MAJOR;
    case 76: return CARD_MINOR;
    case 81: return 233472;              /* shared memory of a multiprocessor, bytes */
    case 97: return 232448;              /* shared memory of a block that asks for it, bytes */
    case 106: return 32;                 /* blocks of a multiprocessor */
    default: return 0;
    }
}

int cuInit(unsigned flags) { return SUCCESS; }
int cuDriverGetVersion(int *version) { *version = CARD_CUDA; return SUCCESS; }
int cuDeviceGetCount(int *count) { *count = 1; return SUCCESS; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return ordinal ? INVALID_VALUE : SUCCESS; }
int cuDeviceGetName(char *name, int length, int device) { snprintf(name, length, "%s", CARD_NAME); return SUCCESS; }
int cuDeviceGetAttribute(int *value, int which, int device) { *value = attribute_of(which); return SUCCESS; }
int cuDeviceTotalMem_v2(size_t *bytes, int device) { *bytes = card_total_bytes(); return SUCCESS; }
int cuDeviceGetUuid_v2(void *uuid, int device) { memset(uuid, 1, 16); return SUCCESS; }
int cuDeviceGetUuid(void *uuid, int device) { return cuDeviceGetUuid_v2(uuid, device); }
int cuDeviceGetPCIBusId(char *text, int length, int device) { snprintf(text, length, "0000:01:00.0"); return SUCCESS; }
int cuDeviceCanAccessPeer(int *can, int device, int other) { *can = 0; return SUCCESS; }
int cuGetErrorName(int error, const char **name) {
    *name = error == SUCCESS         ? "CUDA_SUCCESS"
            : error == OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY"
                                     : "CUDA_ERROR_UNKNOWN";
    return SUCCESS;
}
int cuGetErrorString(int error, const char **text) {
    *text = error == SUCCESS ? "no error" : error == OUT_OF_MEMORY ? "out of memory" : "unknown error";
    return SUCCESS;
}

/* Contexts: there is one, of all threads */

static int context_object;

void *card_context(void) { return &context_object; }

int cuDevicePrimaryCtxRetain(void **context, int device) { *context = card_context(); return SUCCESS; }
int cuDevicePrimaryCtxRelease_v2(int device) { return SUCCESS; }
int cuDevicePrimaryCtxSetFlags_v2(int device, unsigned flags) { return SUCCESS; }
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) { *flags = 0; *active = 1; return SUCCESS; }
int cuCtxGetCurrent(void **context) { *context = card_context(); return SUCCESS; }
int cuCtxSetCurrent(void *context) { return SUCCESS; }
int cuCtxPushCurrent_v2(void *context) { return SUCCESS; }
int cuCtxPopCurrent_v2(void **context) { *context = card_context(); return SUCCESS; }
int cuCtxGetDevice(int *device) { *device = 0; return SUCCESS; }
int cuCtxSynchronize(void) { return SUCCESS; }
int cuCtxGetStreamPriorityRange(int *least, int *greatest) { *least = 0; *greatest = -5; return SUCCESS; }

/* Memory */

int cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
    *free_bytes = card_free_bytes();
    *total = card_total_bytes();
    return SUCCESS;
}
int cuMemAlloc_v2(void **address, size_t bytes) { return card_allocate(address, bytes); }
int cuMemFree_v2(void *address) { return card_free(address); }
int cuMemHostAlloc(void **address, size_t bytes, unsigned flags) {
    *address = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    return *address ? SUCCESS : OUT_OF_MEMORY;
}
int cuMemAllocHost_v2(void **address, size_t bytes) { return cuMemHostAlloc(address, bytes, 0); }
int cuMemFreeHost(void *address) { free(address); return SUCCESS; }
int cuMemHostRegister_v2(void *address, size_t bytes, unsigned flags) { return SUCCESS; }
int cuMemHostUnregister(void *address) { return SUCCESS; }
int cuMemGetAddressRange_v2(void **base, size_t *bytes, void *address) {
    size_t found = card_block(address, base);
    if (bytes) *bytes = found;
    return found ? SUCCESS : NOT_FOUND;
}
int cuPointerGetAttribute(void *value, int which, void *address) {
    enum { MEMORY_TYPE = 2, ORDINAL = 9, HOST = 1, DEVICE = 2 };
    void *base;
    switch (which) {
    case MEMORY_TYPE: *(int *)value = card_block(address, &base) ? DEVICE : HOST; return SUCCESS;
    case ORDINAL: *(int *)value = 0; return SUCCESS;
    default: return INVALID_VALUE;
    }
}
