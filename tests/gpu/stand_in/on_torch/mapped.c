/* Memory that is reserved first and mapped later, piece by piece; and the driver's functions by their names. */
#include "torch.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

/* A piece of memory that cuMemCreate made, until it is released and unmapped. */
struct piece {
    uint64_t bytes;
    int users;
};

static struct { CUdeviceptr at; struct piece *piece; } mapped[1 << 16];

CUresult cuMemGetAllocationGranularity(size_t *bytes, const CUmemAllocationProp *how,
                                       CUmemAllocationGranularity_flags f) {
    return *bytes = PAGE_BYTES, CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(CUdeviceptr *at, size_t bytes, size_t alignment, CUdeviceptr hint,
                             unsigned long long flags) {
    *at = (CUdeviceptr)mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return (void *)*at == MAP_FAILED ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr at, size_t bytes) { return munmap((void *)at, bytes), CUDA_SUCCESS; }

static void released(struct piece *piece) {
    if (--piece->users > 0) return;
    give_back(piece->bytes);
    free(piece);
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *how,
                     unsigned long long flags) {
    need_context();
    if (!claim(bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
    struct piece *made = malloc(sizeof *made);
    *made = (struct piece){bytes, 1};
    return *handle = (CUmemGenericAllocationHandle)made, CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
    LOCKED;
    return released((struct piece *)handle), CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr at, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
    LOCKED;
    for (size_t i = 0; i < sizeof mapped / sizeof *mapped; i++) {
        if (mapped[i].piece != NULL) continue;
        mapped[i].at = at, mapped[i].piece = (struct piece *)handle;
        mapped[i].piece->users++;
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemSetAccess(CUdeviceptr at, size_t bytes, const CUmemAccessDesc *how, size_t count) {
    return mprotect((void *)at, bytes, PROT_READ | PROT_WRITE), CUDA_SUCCESS;
}

CUresult cuMemUnmap(CUdeviceptr at, size_t bytes) {
    LOCKED;
    for (size_t i = 0; i < sizeof mapped / sizeof *mapped; i++) {
        if (mapped[i].piece == NULL || mapped[i].at < at || mapped[i].at >= at + bytes) continue;
        released(mapped[i].piece);
        mapped[i].piece = NULL;
    }
    return mprotect((void *)at, bytes, PROT_NONE), CUDA_SUCCESS;
}

static CUresult refuse(void) { return CUDA_ERROR_NOT_SUPPORTED; }

/* Those that are not here are named as they are looked up, and refuse as they are called. */
cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned version,
                                             unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *result) {
    char second[128];
    snprintf(second, sizeof second, "%s_v2", name);
    *function = dlsym(RTLD_DEFAULT, name);
    if (*function == NULL) *function = dlsym(RTLD_DEFAULT, second);
    if (*function == NULL) {
        if (setting("SIMULATED_VERBOSE", 0)) not_simulated(name);
        *function = (void *)refuse;
    }
    if (result != NULL) *result = cudaDriverEntryPointSuccess;
    return cudaSuccess;
}
