/* The device's memory and who has it, and pinned memory of the host's. */
#include "stand_in.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static struct region *regions;
static struct user *users; /* in a file where several are to share the device */

int take_lock(void) { return pthread_mutex_lock(&lock); }
void unlock(int *held) { pthread_mutex_unlock(&lock); }

int64_t setting(const char *name, int64_t otherwise) {
    const char *value = getenv(name);
    return value == NULL || *value == 0 ? otherwise : strtoll(value, NULL, 10);
}

void not_simulated(const char *name) {
    static const char *reported[256];
    static int count;
    LOCKED;
    for (int i = 0; i < count; i++)
        if (strcmp(reported[i], name) == 0) return;
    if (count < 256) reported[count++] = strdup(name);
    fprintf(stderr, "simulated CUDA: %s is not stood in for\n", name);
}

uint64_t memory_bytes(void) { return setting("SIMULATED_MEMORY_BYTES", CARD_BYTES); }

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
    claim(setting("SIMULATED_CONTEXT_BYTES", CARD_CONTEXT_BYTES));
}

struct region region_of(const void *at) {
    LOCKED;
    for (struct region *each = regions; each != NULL; each = each->next)
        if ((const char *)at >= each->at && (const char *)at < each->at + each->bytes) return *each;
    return (struct region){0};
}

int make_region(void **at, size_t bytes, enum place place) {
    LOCKED;
    need_context();
    uint64_t size = (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    *at = NULL;
    if (size == 0) return SUCCESS;
    if (place == ON_DEVICE && !claim(size)) return OUT_OF_MEMORY;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    struct region *made = malloc(sizeof *made);
    *made = (struct region){mmap(NULL, size, PROT_READ | PROT_WRITE, flags, -1, 0), size, place, regions};
    regions = made;
    *at = made->at;
    return SUCCESS;
}

int remove_region(void *at) {
    LOCKED;
    for (struct region **link = &regions; *link != NULL; link = &(*link)->next) {
        struct region *each = *link;
        if (each->at != at) continue;
        *link = each->next;
        if (each->place == ON_DEVICE) give_back(each->bytes);
        munmap(each->at, each->bytes);
        free(each);
        return SUCCESS;
    }
    return at == NULL ? SUCCESS : INVALID_VALUE;
}
