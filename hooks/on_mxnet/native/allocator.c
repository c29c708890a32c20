/* Follow MXNet's allocator: live blocks and levels at all times, events while a window is open.

   The two functions that MXNet calls after each allocation and free lead here. No Python runs. The rules are those of
   memory/python_allocator.py, and native_allocator.py reads what is kept. All of it is guarded by one lock, so that
   MXNet's counter, which is read under it, belongs to the event. */
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "native.h"

enum { GPU = 2, DEVICES = 64, CHUNK_EVENTS = 16384, FIRST_BLOCKS = 4096 };
enum { FREED = 0, ALLOCATED = 1 };            /* as `AllocationKind` */
enum { EXACT = 1, PAGES = 2, POWERS = 3 };    /* how a pool rounds; see memory/pools.py */

typedef struct { uint64_t address; int64_t bytes; uint64_t device, shared; } Handle; /* MXNet's Storage::Handle */
typedef struct { uint64_t address; int64_t bytes; uint64_t device; int64_t allocated, sequence, maker; } Block;
typedef struct { int64_t sequence, kind; uint64_t device, thread, address; int64_t bytes, allocated, time_ns, span, total; } Event;
typedef struct { int64_t now, peak, rounding; } Level;
typedef struct { uint64_t device; Level level; int64_t early_bytes; const volatile uint64_t *counter; int64_t rule[3]; } Device;
typedef struct Chunk { struct Chunk *next; int64_t count; Event events[CHUNK_EVENTS]; } Chunk;
typedef struct { uint64_t address; int64_t bytes; } Early;
typedef struct { uint64_t device; const volatile uint64_t *counter; } Counter;

/* Python reads and writes this through ctypes. */
typedef struct {
    int64_t is_open, span, maker, sequence, other_size, early, lost, off, devices, pending;
    uint64_t storage_profiler;
    Level together[2]; /* the host's devices; all GPUs */
} State;

typedef void (*Reported)(void *, const Handle *);
typedef void (*Introduce)(void *storage_profiler, uint64_t device, int64_t *rule);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static State state;
static Device devices[DEVICES];
static Counter counters[DEVICES]; /* MXNet's own */
static int64_t counted;
static Block *blocks; /* open addressing, a power of two of places; address 0 is an empty place */
static uint64_t places, used;
static Early *early; /* ended blocks whose free is not reported yet */
static int64_t early_places;
static Chunk *first_chunk, *last_chunk;
static Reported on_alloc, on_free;
static Introduce introduce;

static uint64_t place_of(uint64_t address) { return (address * 0x9E3779B97F4A7C15u >> 20) & (places - 1); }

static Block *find(uint64_t address) {
    if (!places) return NULL;
    for (uint64_t at = place_of(address); blocks[at].address; at = (at + 1) & (places - 1))
        if (blocks[at].address == address) return &blocks[at];
    return NULL;
}

static void put(const Block *block) {
    uint64_t at = place_of(block->address);
    while (blocks[at].address) at = (at + 1) & (places - 1);
    blocks[at] = *block;
    used++;
}

static int grow(void) {
    uint64_t before = places, wanted = places ? 2 * places : FIRST_BLOCKS;
    Block *old = blocks, *made = calloc(wanted, sizeof *made);
    if (!made) return 0;
    blocks = made, places = wanted, used = 0;
    for (uint64_t at = 0; at < before; at++)
        if (old[at].address) put(&old[at]);
    free(old);
    return 1;
}

static void add_block(Block block) {
    if (2 * used >= places && !grow() && used + 1 >= places) { state.lost++; return; }
    put(&block);
}

static void remove_block(Block *block) { /* and close the gap that it leaves */
    uint64_t gap = (uint64_t)(block - blocks);
    for (uint64_t at = (gap + 1) & (places - 1); blocks[at].address; at = (at + 1) & (places - 1)) {
        uint64_t wanted = place_of(blocks[at].address);
        if (((at - wanted) & (places - 1)) >= ((at - gap) & (places - 1))) { blocks[gap] = blocks[at]; gap = at; }
    }
    blocks[gap].address = 0;
    used--;
}

static int64_t taken(const Device *on, int64_t bytes) {
    const int64_t kind = on->rule[0], page = on->rule[1], large = on->rule[2];
    if (kind == EXACT) return bytes;
    if (kind == PAGES) {
        int64_t rounded = (bytes + page - 1) / page * page;
        return rounded <= large ? rounded : (rounded + large - 1) / large * large;
    }
    if (kind == POWERS) {
        int64_t power = 64 - __builtin_clzll((uint64_t)(bytes > 1 ? bytes - 1 : 1));
        if (power <= large) return (int64_t)1 << (power > page ? power : page);
        return (bytes + ((int64_t)1 << large) - 1) >> large << large;
    }
    return -1;
}

static void add(Level *level, int64_t bytes, int64_t allocated, int64_t sign) {
    if (allocated > bytes) { level->rounding += sign * (allocated - bytes); bytes = allocated; }
    level->now += sign * bytes;
    if (level->now > level->peak) level->peak = level->now;
}

static void count(Device *on, int64_t bytes, int64_t allocated, int64_t sign) {
    add(&on->level, bytes, allocated, sign);
    add(&state.together[(uint32_t)on->device == GPU], bytes, allocated, sign);
}

static Device *known(uint64_t device) {
    int64_t listed = __atomic_load_n(&state.devices, __ATOMIC_ACQUIRE);
    for (int64_t i = 0; i < listed; i++)
        if (devices[i].device == device) return &devices[i];
    return NULL;
}

static Device *listed(uint64_t device, const int64_t *rule) {
    Device *found = known(device);
    if (found || state.devices == DEVICES) return found;
    found = &devices[state.devices];
    memset(found, 0, sizeof *found);
    found->device = device;
    memcpy(found->rule, rule, sizeof found->rule);
    for (int64_t i = 0; i < counted; i++)
        if (counters[i].device == device) found->counter = counters[i].counter;
    __atomic_store_n(&state.devices, state.devices + 1, __ATOMIC_RELEASE);
    return found;
}

static int64_t keep(int64_t kind, const Device *on, uint64_t address, int64_t bytes, int64_t allocated, int64_t total) {
    if (!last_chunk || last_chunk->count == CHUNK_EVENTS) {
        Chunk *made = malloc(sizeof *made);
        if (!made) { state.lost++; return ++state.sequence; }
        made->next = NULL, made->count = 0;
        if (last_chunk) last_chunk->next = made; else first_chunk = made;
        last_chunk = made;
    }
    last_chunk->events[last_chunk->count++] = (Event){++state.sequence, kind, on->device, (uint64_t)pthread_self(), address,
        bytes, allocated, now_ns(), state.span, total >= 0 ? total + on->level.rounding : -1};
    state.pending++;
    return state.sequence;
}

static void end(Block *block, int64_t total) {
    Block ended = *block;
    Device *on = known(ended.device);
    remove_block(block);
    count(on, ended.bytes, ended.allocated, -1);
    if (state.is_open) keep(FREED, on, ended.address, ended.bytes, ended.allocated, total);
}

static void allocated(Device *on, const Handle *handle, int64_t total) {
    Block *tenant = find(handle->address);
    if (tenant) { /* its free is still to be reported by another thread */
        int64_t before = tenant->bytes;
        if (state.early == early_places) {
            int64_t wanted = early_places ? 2 * early_places : 64;
            Early *made = realloc(early, (size_t)wanted * sizeof *made);
            if (made) early = made, early_places = wanted;
        }
        if (state.early < early_places) early[state.early++] = (Early){handle->address, before}; else state.lost++;
        on->early_bytes += before;
        if (total >= 0) total -= before;
        end(tenant, total >= 0 ? total - handle->bytes : -1);
    }
    int64_t takes = taken(on, handle->bytes), sequence = 0;
    count(on, handle->bytes, takes, 1);
    if (state.is_open) sequence = keep(ALLOCATED, on, handle->address, handle->bytes, takes, total);
    add_block((Block){handle->address, handle->bytes, handle->device, takes, sequence, state.maker});
}

static int64_t find_early(uint64_t address, int64_t bytes) { /* the place of the size, else of the first, else -1 */
    int64_t first = -1;
    for (int64_t i = 0; i < state.early; i++)
        if (early[i].address == address) {
            if (early[i].bytes == bytes) return i;
            if (first < 0) first = i;
        }
    return first;
}

static void freed(Device *on, const Handle *handle, int64_t total) {
    Block *tenant = find(handle->address);
    int64_t at = state.early ? find_early(handle->address, handle->bytes) : -1;
    if (at >= 0 && (early[at].bytes == handle->bytes || !tenant || tenant->bytes != handle->bytes)) {
        on->early_bytes -= handle->bytes;
        state.other_size += early[at].bytes != handle->bytes;
        memmove(&early[at], &early[at + 1], (size_t)(--state.early - at) * sizeof *early);
    } else if (tenant) {
        state.other_size += tenant->bytes != handle->bytes;
        end(tenant, total);
    } else if (state.is_open) {
        keep(FREED, on, handle->address, handle->bytes, taken(on, handle->bytes), total);
    }
}

static void report(void *storage_profiler, const Handle *handle, Reported original, void (*note)(Device *, const Handle *, int64_t)) {
    if (state.off) { original(storage_profiler, handle); return; }
    int64_t rule[3] = {EXACT, 0, 0};
    if ((uint32_t)handle->device == GPU && !known(handle->device)) { /* asks Python, so not under the lock */
        rule[0] = 0;
        introduce(storage_profiler, handle->device, rule);
    }
    pthread_mutex_lock(&lock);
    original(storage_profiler, handle);
    state.storage_profiler = (uint64_t)storage_profiler;
    if (handle->bytes) {
        Device *on = listed(handle->device, rule);
        if (on) note(on, handle, on->counter ? (int64_t)*on->counter - on->early_bytes : -1); else state.lost++;
    }
    pthread_mutex_unlock(&lock);
}

void tbd_on_alloc(void *storage_profiler, const Handle *handle) { report(storage_profiler, handle, on_alloc, allocated); }
void tbd_on_free(void *storage_profiler, const Handle *handle) { report(storage_profiler, handle, on_free, freed); }

/* What Python calls. */

uint32_t tbd_version(void) { return TBD_VERSION; } /* a checksum of these files; setup.py defines it */

State *tbd_state(void) { return &state; }

static void forget_events(void) {
    for (Chunk *next; first_chunk; first_chunk = next) { next = first_chunk->next; free(first_chunk); }
    last_chunk = NULL, state.pending = 0;
}

void tbd_begin(Reported alloc, Reported free_, Introduce asked) { /* with nothing known */
    pthread_mutex_lock(&lock);
    on_alloc = alloc, on_free = free_, introduce = asked;
    forget_events();
    free(blocks), free(early);
    blocks = NULL, early = NULL, places = used = 0, early_places = counted = 0;
    memset(&state, 0, sizeof state);
    state.span = -1;
    pthread_mutex_unlock(&lock);
}

void tbd_close(void) {
    pthread_mutex_lock(&lock);
    state.is_open = 0;
    pthread_mutex_unlock(&lock);
}

int64_t tbd_tick(void) {
    pthread_mutex_lock(&lock);
    int64_t sequence = ++state.sequence;
    pthread_mutex_unlock(&lock);
    return sequence;
}

void tbd_adopt(uint64_t device, uint64_t address, int64_t bytes, const int64_t *rule) {
    pthread_mutex_lock(&lock);
    Device *on = find(address) ? NULL : listed(device, rule);
    if (on) {
        int64_t takes = taken(on, bytes);
        add_block((Block){address, bytes, device, takes, 0, 0});
        count(on, bytes, takes, 1);
    }
    pthread_mutex_unlock(&lock);
}

void tbd_count(uint64_t device, const uint64_t *counter) { /* read MXNet's counter of a device from now on */
    pthread_mutex_lock(&lock);
    if (counted < DEVICES) counters[counted++] = (Counter){device, counter};
    Device *on = known(device);
    if (on) on->counter = counter;
    pthread_mutex_unlock(&lock);
}

int64_t tbd_device(int64_t index, uint64_t *device, Level *level) {
    if (index >= state.devices) return 0;
    pthread_mutex_lock(&lock);
    *device = devices[index].device, *level = devices[index].level;
    pthread_mutex_unlock(&lock);
    return 1;
}

/* Copy live blocks, if there is room for all, and return how many there are; with `kept`, those alone that have a maker
   or are on a device of this kind. With `opens`, a window begins at the same moment. */
int64_t tbd_blocks(Block *out, int64_t room, int64_t kept, int64_t kind, int64_t opens) {
    int64_t found = 0;
    pthread_mutex_lock(&lock);
    for (uint64_t at = 0; at < places; at++) {
        Block *block = &blocks[at];
        if (!block->address || (kept && !block->maker && (int64_t)(uint32_t)block->device != kind)) continue;
        if (found++ >= room) continue;
        if (opens) block->sequence = 0;
        out[found - 1] = *block;
    }
    if (opens && found <= room) {
        forget_events();
        state.sequence = state.other_size = state.lost = 0, state.is_open = 1;
    }
    pthread_mutex_unlock(&lock);
    return found;
}

/* Move the oldest events out, as many as there is room for. */
void tbd_drain(Event *out, int64_t room) {
    pthread_mutex_lock(&lock);
    while (first_chunk && room > 0) {
        Chunk *chunk = first_chunk;
        int64_t moved = chunk->count < room ? chunk->count : room;
        memcpy(out, chunk->events, (size_t)moved * sizeof *out);
        out += moved, room -= moved, state.pending -= moved, chunk->count -= moved;
        if (chunk->count) {
            memmove(chunk->events, chunk->events + moved, (size_t)chunk->count * sizeof *out);
        } else {
            first_chunk = chunk->next;
            if (!first_chunk) last_chunk = NULL;
            free(chunk);
        }
    }
    pthread_mutex_unlock(&lock);
}

static void in_child(void) { /* a thread that is not in the child may have held the lock */
    pthread_mutex_init(&lock, NULL);
    state.off = 1;
}

__attribute__((constructor)) static void follow_forks(void) { pthread_atfork(NULL, NULL, in_child); }
