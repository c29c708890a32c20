/* The device's memory and who has it, pinned memory of the host's, and the pool of cudaMallocAsync. */
#include "simulated.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE_BYTES (2ull << 20) /* in which a driver hands memory out */

enum place { ON_DEVICE, ON_HOST };

struct region {
    char *at;
    uint64_t bytes;
    enum place place;
    struct region *next;
};

pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static struct region *regions;
static struct user *users; /* in a file where several are to share the device */

int take_lock(void) {
    pthread_mutex_lock(&lock);
    return 0;
}

void unlock(int *held) {
    (void)held;
    pthread_mutex_unlock(&lock);
}

int64_t setting(const char *name, int64_t otherwise) {
    const char *told = getenv(name);
    return told == NULL || *told == 0 ? otherwise : strtoll(told, NULL, 10);
}

void not_simulated(const char *name) {
    static const char *told[256];
    static int count;
    LOCKED;
    for (int i = 0; i < count; i++)
        if (strcmp(told[i], name) == 0) return;
    if (count < 256) told[count++] = strdup(name);
    fprintf(stderr, "simulated CUDA: %s is not stood in for\n", name);
}

uint64_t memory_bytes(void) { return setting("SIMULATED_MEMORY_BYTES", 150754820096); }

static struct user *all_users(void) {
    if (users != NULL) return users;
    const char *path = getenv("SIMULATED_USERS");
    int file = path == NULL ? -1 : open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    size_t size = USERS * sizeof *users;
    if (file >= 0 && ftruncate(file, size) != 0) abort();
    users = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | (file < 0 ? MAP_ANONYMOUS : 0), file, 0);
    return users;
}

struct user user(int number) {
    struct user found = all_users()[number];
    return found.process != 0 && kill(found.process, 0) == 0 ? found : (struct user){0};
}

static struct user *this_user(void) {
    struct user *empty = NULL;
    for (int i = USERS - 1; i >= 0; i--) {
        if (user(i).process == getpid()) return &users[i];
        if (user(i).process == 0) empty = &users[i];
    }
    if (empty == NULL) abort();
    *empty = (struct user){.process = getpid()};
    return empty;
}

uint64_t free_bytes(void) {
    uint64_t used = 0;
    for (int i = 0; i < USERS; i++) used += user(i).bytes;
    return memory_bytes() > used ? memory_bytes() - used : 0;
}

bool claim(uint64_t bytes) {
    LOCKED;
    if (bytes > free_bytes()) return false;
    this_user()->bytes += bytes;
    return true;
}

void give_back(uint64_t bytes) {
    LOCKED;
    this_user()->bytes -= bytes;
}

void need_context(void) {
    static int owner;
    LOCKED;
    if (owner == getpid()) return;
    owner = getpid();
    claim(setting("SIMULATED_CONTEXT_BYTES", 512ll << 20));
}

static struct region *region_of(const void *at) {
    for (struct region *each = regions; each != NULL; each = each->next)
        if ((const char *)at >= each->at && (const char *)at < each->at + each->bytes) return each;
    return NULL;
}

bool is_device_memory(const void *at) {
    LOCKED;
    struct region *found = region_of(at);
    return found != NULL && found->place == ON_DEVICE;
}

static cudaError_t make_region(void **at, size_t bytes, enum place place) {
    LOCKED;
    need_context();
    uint64_t size = (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    if (place == ON_DEVICE && !claim(size)) return cudaErrorMemoryAllocation;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    struct region *made = malloc(sizeof *made);
    *made = (struct region){mmap(NULL, size, PROT_READ | PROT_WRITE, flags, -1, 0), size, place, regions};
    regions = made;
    *at = made->at;
    return cudaSuccess;
}

static cudaError_t remove_region(void *at) {
    LOCKED;
    for (struct region **link = &regions; *link != NULL; link = &(*link)->next) {
        struct region *each = *link;
        if (each->at != at) continue;
        *link = each->next;
        if (each->place == ON_DEVICE) give_back(each->bytes);
        munmap(each->at, each->bytes);
        free(each);
        return cudaSuccess;
    }
    return at == NULL ? cudaSuccess : cudaErrorInvalidValue;
}

static cudaError_t ended(const struct call *call, cudaError_t status) { return end_call(call, failed(status)); }

cudaError_t cudaMalloc(void **at, size_t bytes) {
    struct call call = RUNTIME(cudaMalloc, 3020);
    return ended(&call, make_region(at, bytes, ON_DEVICE));
}

cudaError_t cudaFree(void *at) {
    struct call call = RUNTIME(cudaFree, 3020);
    cudaDeviceSynchronize();
    return ended(&call, remove_region(at));
}

cudaError_t cudaHostAlloc(void **at, size_t bytes, unsigned flags) {
    struct call call = RUNTIME(cudaHostAlloc, 3020);
    (void)flags;
    return ended(&call, make_region(at, bytes, ON_HOST));
}

cudaError_t cudaFreeHost(void *at) { return remove_region(at); }

/* The pool that cudaMallocAsync takes memory from: it keeps what is freed until it is trimmed. */
static uint64_t pool_used, pool_used_most, pool_kept, pool_kept_most;

cudaError_t cudaMallocAsync(void **at, size_t bytes, cudaStream_t stream) {
    struct call call = RUNTIME(cudaMallocAsync, 11020);
    LOCKED;
    (void)stream;
    cudaError_t status = make_region(at, bytes, ON_DEVICE);
    if (status == cudaSuccess) pool_used += region_of(*at)->bytes;
    if (pool_used > pool_used_most) pool_used_most = pool_used;
    if (pool_used > pool_kept) pool_kept = pool_used;
    if (pool_kept > pool_kept_most) pool_kept_most = pool_kept;
    return ended(&call, status);
}

cudaError_t cudaFreeAsync(void *at, cudaStream_t stream) {
    struct call call = RUNTIME(cudaFreeAsync, 11020);
    LOCKED;
    struct region *found = region_of(at);
    (void)stream;
    if (found != NULL) pool_used -= found->bytes;
    return ended(&call, remove_region(at));
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int device) { return *pool = (void *)&pool_used, device; }
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t least) {
    return (void)pool, (void)least, pool_kept = pool_used, 0;
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attribute, void *value) {
    (void)pool;
    *(uint64_t *)value = attribute == cudaMemPoolAttrUsedMemCurrent      ? pool_used
                         : attribute == cudaMemPoolAttrUsedMemHigh       ? pool_used_most
                         : attribute == cudaMemPoolAttrReservedMemCurrent ? pool_kept
                         : attribute == cudaMemPoolAttrReservedMemHigh    ? pool_kept_most
                                                                          : 0;
    return cudaSuccess;
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attribute, void *value) {
    (void)pool, (void)value;
    if (attribute == cudaMemPoolAttrUsedMemHigh) pool_used_most = pool_used;
    if (attribute == cudaMemPoolAttrReservedMemHigh) pool_kept_most = pool_kept;
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *free, size_t *total) {
    need_context();
    *free = free_bytes();
    *total = memory_bytes();
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *told, const void *at) {
    LOCKED;
    struct region *found = region_of(at);
    *told = (struct cudaPointerAttributes){.type = cudaMemoryTypeUnregistered};
    if (found == NULL) return cudaSuccess;
    told->type = found->place == ON_DEVICE ? cudaMemoryTypeDevice : cudaMemoryTypeHost;
    told->devicePointer = (void *)at;
    told->hostPointer = found->place == ON_HOST ? (void *)at : NULL;
    return cudaSuccess;
}
