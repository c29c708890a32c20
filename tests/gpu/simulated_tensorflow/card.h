/* The card that is stood in for, and what the parts of the stand-in share. */
#ifndef STAND_IN_CARD_H
#define STAND_IN_CARD_H

#include <stddef.h>
#include <stdint.h>

enum { SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_FOUND = 500 };

#define CARD_NAME "NVIDIA H200"
#define CARD_MULTIPROCESSORS 132
#define CARD_MAJOR 9
#define CARD_MINOR 0
#define CARD_CUDA 12050 /* what TensorFlow 2.21 was built with */

/* Memory of the card: host memory, of which no more is given than the card has. Bytes. */
size_t card_total_bytes(void);
size_t card_free_bytes(void);
int card_allocate(void **address, size_t bytes);
int card_free(void *address);
/* The size of the block an address lies in, 0 where it lies in none. */
size_t card_block(const void *address, void **base);

/* Monotonic time, ns. */
uint64_t now_ns(void);

/* What the card did: each kernel, copy or set is done when the call that asks for it returns. */
typedef enum { KERNEL, COPY, SET } Kind;
typedef enum { UNKNOWN_COPY, TO_DEVICE, TO_HOST, WITHIN_DEVICE = 8 } Way; /* CUpti_ActivityMemcpyKind */
typedef struct { unsigned x, y, z; } Size;
typedef struct {
    Kind kind;
    const char *name; /* a kernel's, mangled */
    Size grid, block;
    size_t shared_bytes, bytes;
    Way way;
    unsigned stream, correlation;
    uint64_t start_ns, end_ns;
} Activity;

/* A call of the driver, as CUPTI numbers it (cupti_driver_cbid.h) and tells its arguments (generated_cuda_meta.h). */
typedef struct {
    int number;
    const char *name, *symbol;
    const void *arguments;
    unsigned correlation;
    uint64_t kept; /* for whoever observes, from a call's begin to its end */
} Call;

/* Who observes the card, where anyone does. */
typedef struct {
    void (*begin)(Call *call);
    void (*end)(Call *call);
    void (*did)(const Activity *activity);
} Observer;
extern const Observer *observer;

/* Launch a kernel that does nothing. */
int card_launch(const char *name, Size grid, Size block, size_t shared_bytes, void *stream);
void *card_context(void);

#endif
