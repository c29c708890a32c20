/* What both parts of the native code need. */
#include <stdint.h>
#include <time.h>

static inline int64_t now_ns(void) { /* the clock of Python's `time.monotonic_ns` */
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}
