/* Number the requests to MXNet's engine and note what they read and write, while a kernels window is open.

   The functions of the engine and of executors that are replaced lead here. No Python runs, except once for each thread
   and once for each operator that an executor made. The rules are those of session/python_engine.py. */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "native.h"

enum { NAME_WORD = 11, READS_WORD = 4, WRITES_WORD = 7, SHORT_NAME = 480 }; /* see session/engine.py */

typedef struct { uint64_t *begin, *end, *room; } Vector; /* std::vector of pointers */
typedef struct { /* followed by the name, filled up to whole words, and the variables read and written */
    int64_t words, number, made, thread, time_ns, note, executor, node;
    int32_t of_python, name_bytes, reads, writes;
} Request;
typedef struct { uint64_t operation, text; int64_t number; } Made;

typedef void (*Push)(void *, void *, uint64_t, const Vector *, const Vector *, int, int, const char *, bool);
typedef void (*PushMade)(void *, uint64_t *, uint64_t, int, bool);
typedef void (*RunOps)(void *, bool, uint64_t, uint64_t);
typedef int64_t (*IsPythons)(void);
typedef uint64_t (*NameMade)(uint64_t operation, int64_t number);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Push push;
static PushMade push_made;
static RunOps run_ops;
static IsPythons is_pythons;
static NameMade name_made;
static int64_t window, next_number, lost, off;
static uint64_t *words, words_room, words_used;
static Made *made;
static int64_t made_room, made_count;
static __thread struct { int64_t note, executor, node, window, of_python, inside; } here;

/* Let a thread begin the window: it is in no call yet. */
static void enter(void) {
    if (here.window == window) return;
    here.window = window, here.note = here.executor = here.node = -1;
    here.of_python = is_pythons();
}

static bool is_engines_own(const char *name) { return !strcmp(name, "DeleteVariable") || !strcmp(name, "WaitForVar"); }

static int64_t count_of(const Vector *vector) { return vector->end > vector->begin ? vector->end - vector->begin : 0; }

/* Keep a request under a number, a new one if it is negative; return the number. */
static int64_t keep(int64_t number, int64_t first, const char *name, size_t length, const Vector *reads, const Vector *writes) {
    const int64_t read = count_of(reads), written = count_of(writes);
    const uint64_t name_words = (length + 7) / 8, needed = sizeof(Request) / 8 + name_words + (uint64_t)(read + written);
    enter();
    pthread_mutex_lock(&lock);
    if (number < 0) number = next_number++;
    if (words_used + needed > words_room) {
        uint64_t room = 2 * words_room > words_used + needed ? 2 * words_room : 2 * (words_used + needed) + 65536;
        uint64_t *grown = realloc(words, room * 8);
        if (!grown) { lost++; pthread_mutex_unlock(&lock); return number; }
        words = grown, words_room = room;
    }
    uint64_t *at = words + words_used;
    *(Request *)at = (Request){(int64_t)needed, number, first, (int64_t)pthread_self(), now_ns(), here.note, here.executor,
        here.node, (int32_t)here.of_python, (int32_t)length, (int32_t)read, (int32_t)written};
    at += sizeof(Request) / 8;
    memcpy(at, name, length);
    at += name_words;
    memcpy(at, reads->begin, (size_t)read * 8);
    memcpy(at + read, writes->begin, (size_t)written * 8);
    words_used += needed;
    pthread_mutex_unlock(&lock);
    return number;
}

static void leave(int *unused) { (void)unused; here.inside--; }

void tbd_push(void *engine, void *run, uint64_t context, const Vector *reads, const Vector *writes, int kind, int priority,
              const char *name, bool wait) {
    char short_name[SHORT_NAME + 32], *text = short_name;
    if (off) { push(engine, run, context, reads, writes, kind, priority, name, wait); return; }
    const char *known = name ? name : "";
    size_t length = strlen(known);
    int64_t number = keep(-1, -1, known, length, reads, writes);
    if (!is_engines_own(known)) { /* those alone need no number to be told apart */
        if (length > SHORT_NAME) text = malloc(length + 32);
        if (text) { sprintf(text, "%s#%lld", known, (long long)number); name = text; }
    }
    {
        int guard __attribute__((cleanup(leave))) = 0; /* also if MXNet throws an exception */
        (void)guard;
        here.inside++;
        push(engine, run, context, reads, writes, kind, priority, name, wait); /* copies the name */
    }
    if (text != short_name) free(text);
}

static Made *find_made(uint64_t operation) { /* or an empty place for it */
    uint64_t at = (operation * 0x9E3779B97F4A7C15u >> 20) & (uint64_t)(made_room - 1);
    while (made[at].operation && made[at].operation != operation) at = (at + 1) & (uint64_t)(made_room - 1);
    return &made[at];
}

static bool make_room(void) {
    if (2 * made_count < made_room) return true;
    Made *before = made;
    int64_t room = made_room;
    Made *grown = calloc((size_t)(room ? 2 * room : 1024), sizeof *grown);
    if (!grown) return false;
    made = grown, made_room = room ? 2 * room : 1024;
    for (int64_t at = 0; at < room; at++)
        if (before[at].operation) *find_made(before[at].operation) = before[at];
    free(before);
    return true;
}

/* Return the number of the first request of an operator that is requested again and again; -1: it cannot be known. */
static int64_t first_request(uint64_t *operation, int64_t number) {
    Made known = {0, 0, -1};
    pthread_mutex_lock(&lock);
    if (made_room) known = *find_made((uint64_t)operation);
    pthread_mutex_unlock(&lock);
    if (known.operation && known.text == operation[NAME_WORD]) return known.number;
    uint64_t text = name_made((uint64_t)operation, number); /* asks Python, so not under the lock */
    if (!text) return -1;
    pthread_mutex_lock(&lock);
    if (make_room()) {
        Made *place = find_made((uint64_t)operation);
        made_count += !place->operation;
        *place = (Made){(uint64_t)operation, text, number};
    }
    pthread_mutex_unlock(&lock);
    return number;
}

void tbd_push_made(void *engine, uint64_t *operation, uint64_t context, int priority, bool profiled) {
    if (!off && !here.inside) {
        pthread_mutex_lock(&lock);
        int64_t number = next_number++;
        pthread_mutex_unlock(&lock);
        int64_t first = first_request(operation, number);
        if (first >= 0) {
            const char *name = (const char *)operation[NAME_WORD], *end = strrchr(name, '#');
            keep(number, first, name, end ? (size_t)(end - name) : strlen(name), (const Vector *)&operation[READS_WORD],
                 (const Vector *)&operation[WRITES_WORD]);
        }
    }
    push_made(engine, operation, context, priority, profiled);
}

static void leave_node(int64_t (*before)[2]) { here.executor = (*before)[0], here.node = (*before)[1]; }

void tbd_run_ops(void *executor, bool is_train, uint64_t first, uint64_t end) {
    if (off) { run_ops(executor, is_train, first, end); return; }
    enter();
    int64_t before[2] __attribute__((cleanup(leave_node))) = {here.executor, here.node};
    for (uint64_t node = first; node < end; node++) {
        here.executor = (int64_t)executor, here.node = (int64_t)node;
        run_ops(executor, is_train, node, node + 1);
    }
}

/* What Python calls. */

void tbd_engine_begin(Push push_, PushMade push_made_, IsPythons is_pythons_, NameMade name_made_) {
    pthread_mutex_lock(&lock);
    push = push_, push_made = push_made_, is_pythons = is_pythons_, name_made = name_made_;
    window++, next_number = lost = off = 0, words_used = 0;
    free(made);
    made = NULL, made_room = made_count = 0;
    pthread_mutex_unlock(&lock);
}

void tbd_executors_begin(RunOps run) { run_ops = run; }

/* Return where the calling thread keeps the number of its note. */
int64_t *tbd_note(void) { enter(); return &here.note; }

/* Copy the requests, if there is room for all, and return how many words they take; the words are then freed. */
int64_t tbd_requests(uint64_t *out, int64_t room, int64_t *lost_) {
    pthread_mutex_lock(&lock);
    int64_t needed = (int64_t)words_used;
    *lost_ = lost;
    if (needed && needed <= room) {
        memcpy(out, words, (size_t)needed * 8);
        free(words);
        words = NULL, words_room = words_used = 0;
    }
    pthread_mutex_unlock(&lock);
    return needed;
}

static void in_child(void) {
    pthread_mutex_init(&lock, NULL);
    off = 1;
}

__attribute__((constructor)) static void follow_forks(void) { pthread_atfork(NULL, NULL, in_child); }
