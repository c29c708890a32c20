/* Calls the native code as MXNet does, with a counter of its own, and takes its memory or forks where a test says so. */
#include <stdlib.h>

static long long left = 1LL << 60; /* how many requests for memory are granted */
static void *scarce_malloc(size_t size) { return left-- > 0 ? malloc(size) : NULL; }
static void *scarce_calloc(size_t count, size_t size) { return left-- > 0 ? calloc(count, size) : NULL; }
#define malloc scarce_malloc
#define calloc scarce_calloc
#include "allocator.c"
#undef malloc
#undef calloc
#include <sys/wait.h>
#include <unistd.h>

static uint64_t live_bytes; /* of device 1, as MXNet counts it */

void driver_alloc(void *self, const Handle *handle) { (void)self; live_bytes += (uint64_t)handle->bytes; }
void driver_free(void *self, const Handle *handle) { (void)self; live_bytes -= (uint64_t)handle->bytes; }
uint64_t *driver_counter(void) { return &live_bytes; }
void driver_grant(long long requests) { left = requests; }

typedef struct { int64_t thread, rounds, blocks; } Work;

static void *work(void *given) {
    const Work *mine = given;
    for (int64_t round = 0; round < mine->rounds; round++)
        for (int kind = 0; kind < 2; kind++)
            for (int64_t block = 0; block < mine->blocks; block++) {
                Handle handle = {(uint64_t)(mine->thread * mine->blocks + block + 1) * 64, 64 + block, 1, 0};
                if (kind) tbd_on_free(NULL, &handle); else tbd_on_alloc(NULL, &handle);
            }
    return NULL;
}

void driver_work(int64_t threads, int64_t rounds, int64_t blocks) {
    pthread_t begun[16];
    Work given[16];
    for (int64_t i = 0; i < threads; i++) {
        given[i] = (Work){i, rounds, blocks};
        pthread_create(&begun[i], NULL, work, &given[i]);
    }
    for (int64_t i = 0; i < threads; i++) pthread_join(begun[i], NULL);
}

/* Fork while the lock is held; return 0 if the child goes on, calls MXNet's function and keeps nothing. */
int driver_fork(void) {
    int status;
    pthread_mutex_lock(&lock);
    pid_t child = fork();
    if (!child) {
        alarm(10);
        int64_t before = state.sequence;
        uint64_t counted = live_bytes;
        Handle handle = {1 << 30, 64, 1, 0};
        tbd_on_alloc(NULL, &handle);
        _exit(state.sequence != before || live_bytes != counted + 64 || tbd_tick() != before + 1);
    }
    pthread_mutex_unlock(&lock);
    waitpid(child, &status, 0);
    return status;
}
