/* Kernels as the compiler's code registers and launches them. */
#include "simulated.h"

#include <stdlib.h>

/* A kernel as its library registered it. */
struct CUkern_st {
    const void *function;
    const char *name;
    struct CUkern_st *next;
};

static struct CUkern_st *kernels[1 << 14];
static __thread struct { dim3 grid, block; size_t shared_bytes; cudaStream_t stream; } configured;

void **__cudaRegisterFatBinary(void *code) { return calloc(1, sizeof code); }
char __cudaInitModule(void **code) { return (void)code, 1; }

static struct CUkern_st **slot_of(const void *function) {
    return &kernels[((uintptr_t)function >> 4) % (sizeof kernels / sizeof *kernels)];
}

void __cudaRegisterFunction(void **code, const char *function, char *unused, const char *name, int limit, void *thread,
                            void *block, dim3 *block_size, dim3 *grid_size, int *warp_size) {
    (void)code, (void)unused, (void)limit, (void)thread, (void)block, (void)block_size, (void)grid_size,
        (void)warp_size;
    LOCKED;
    struct CUkern_st *made = malloc(sizeof *made), **slot = slot_of(function);
    *made = (struct CUkern_st){function, name, *slot};
    *slot = made;
}

static struct CUkern_st unknown = {.name = "unknown"};

static struct CUkern_st *kernel_of(const void *function) {
    for (struct CUkern_st *each = *slot_of(function); each != NULL; each = each->next)
        if (each->function == function) return each;
    return &unknown;
}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream) {
    configured.grid = grid, configured.block = block;
    configured.shared_bytes = shared_bytes, configured.stream = stream;
    return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared_bytes, cudaStream_t *stream) {
    *grid = configured.grid, *block = configured.block;
    *shared_bytes = configured.shared_bytes, *stream = configured.stream;
    return cudaSuccess;
}

cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *function) { return *kernel = kernel_of(function), 0; }

static cudaError_t launched(const char *name, dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream) {
    struct call call = RUNTIME(cudaLaunchKernel, 7000);
    if (setting("SIMULATED_NESTED", 0)) { /* the runtime's own call of the driver, as a record of its own */
        struct call inner = DRIVER(cuLaunchKernelEx);
        end_call(&inner, CUDA_SUCCESS);
    }
    launch(&call, stream, name, grid, block, shared_bytes);
    return end_call(&call, cudaSuccess);
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments, size_t shared_bytes,
                               cudaStream_t stream) {
    (void)arguments;
    return launched(kernel->name, grid, block, shared_bytes, stream);
}

cudaError_t cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **arguments, size_t shared_bytes,
                             cudaStream_t stream) {
    (void)arguments;
    return launched(kernel_of(function)->name, grid, block, shared_bytes, stream);
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *how, const void *function, void **arguments) {
    struct call call = RUNTIME(cudaLaunchKernelExC, 11060);
    (void)arguments;
    launch(&call, how->stream, kernel_of(function)->name, how->gridDim, how->blockDim, how->dynamicSmemBytes);
    return end_call(&call, cudaSuccess);
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *told, const void *function) {
    (void)function;
    *told = (struct cudaFuncAttributes){.maxThreadsPerBlock = 1024, .numRegs = 32, .binaryVersion = 90,
        .ptxVersion = 90};
    return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *f, int threads,
                                                                   size_t shared,
                                                                   unsigned flags) {
    (void)f, (void)shared, (void)flags;
    return *blocks = threads > 0 ? 2048 / threads : 1, cudaSuccess;
}
