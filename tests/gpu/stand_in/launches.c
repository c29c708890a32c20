/* Kernels as the compiler's code registers and launches them. */
#include "stand_in.h"

#include <stdlib.h>

/* A kernel as its library registered it. */
struct kernel {
    const void *function;
    const char *name;
    struct kernel *next;
};

/* cudaFuncAttributes, as much as all versions have. */
struct attributes {
    size_t shared_bytes, constant_bytes, local_bytes;
    int threads, registers, version_of_ptx, version_of_code, others[4];
};

static struct kernel *kernels[1 << 14];
static __thread struct { struct size grid, block; size_t shared_bytes; Stream stream; } configured;

void **__cudaRegisterFatBinary(void *code) { return calloc(1, sizeof code); }
void __cudaRegisterFatBinaryEnd(void **code) {}
void __cudaUnregisterFatBinary(void **code) {}
void __cudaRegisterVar(void **code, char *variable, ...) {}

static struct kernel **slot_of(const void *function) {
    return &kernels[((uintptr_t)function >> 4) % (sizeof kernels / sizeof *kernels)];
}

void __cudaRegisterFunction(void **code, const char *function, char *unused, const char *name, ...) {
    LOCKED;
    struct kernel *made = malloc(sizeof *made), **slot = slot_of(function);
    *made = (struct kernel){function, name, *slot};
    *slot = made;
}

const char *name_of(const void *function) {
    for (struct kernel *each = *slot_of(function); each != NULL; each = each->next)
        if (each->function == function) return each->name;
    return "unknown";
}

unsigned __cudaPushCallConfiguration(struct size grid, struct size block, size_t shared_bytes, Stream stream) {
    configured.grid = grid, configured.block = block;
    configured.shared_bytes = shared_bytes, configured.stream = stream;
    return 0;
}

int __cudaPopCallConfiguration(struct size *grid, struct size *block, size_t *shared_bytes, Stream *stream) {
    *grid = configured.grid, *block = configured.block;
    *shared_bytes = configured.shared_bytes, *stream = configured.stream;
    return SUCCESS;
}

int cudaLaunchKernel(const void *function, struct size grid, struct size block, void **arguments, size_t shared_bytes,
                     Stream stream) {
    const char *name = name_of(function);
    struct call call = BEGIN(RUNTIME_CALL, CALL_cudaLaunchKernel, .kernel = name);
    if (setting("SIMULATED_NESTED", 0)) { /* the runtime's own call of the driver, as a record of its own */
        struct call inner = BEGIN(DRIVER_CALL, CALL_cuLaunchKernelEx);
        end_call(&inner, SUCCESS);
    }
    launch(&call, stream, name, grid, block, shared_bytes);
    return end_call(&call, SUCCESS);
}

int cudaFuncGetAttributes(struct attributes *attributes, const void *function) {
    *attributes = (struct attributes){
        .threads = 1024, .registers = 32, .version_of_ptx = CARD_CAPABILITY, .version_of_code = CARD_CAPABILITY};
    return SUCCESS;
}

int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *function, int threads,
                                                           size_t shared_bytes, unsigned flags) {
    return *blocks = threads > 0 ? 2048 / threads : 1, SUCCESS;
}

#if !FOR_MXNET
int cudaFuncSetAttribute(const void *function, int which, int value) { return SUCCESS; }
#endif
#if !FOR_TENSORFLOW
char __cudaInitModule(void **code) { return 1; }
#endif
