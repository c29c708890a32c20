/* The driver's own interface: what is asked of it through its library, and memory that is mapped in pieces. */
#include "simulated.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PIECE_BYTES (2ull << 20)

/* A piece of memory that cuMemCreate made, until it is released and unmapped. */
struct piece {
    uint64_t bytes;
    int users;
};

static struct { CUdeviceptr at; struct piece *piece; } mapped[1 << 16];

CUresult cuDriverGetVersion(int *version) { return *version = CUDA_VERSION, CUDA_SUCCESS; }
CUresult cuDeviceGetCount(int *count) { return *count = 1, CUDA_SUCCESS; }
CUresult cuDeviceGet(CUdevice *device, int index) {
    return *device = index, index == 0 ? 0 : CUDA_ERROR_INVALID_DEVICE;
}
CUresult cuDeviceGetName(char *name, int size, CUdevice device) {
    return (void)device, snprintf(name, size, "NVIDIA H200"), 0;
}
CUresult cuDeviceTotalMem(size_t *bytes, CUdevice device) { return (void)device, *bytes = memory_bytes(), 0; }
CUresult cuMemGetInfo(size_t *free, size_t *total) { return (CUresult)cudaMemGetInfo(free, total); }
CUresult cuCtxPopCurrent(CUcontext *context) { return *context = (CUcontext)&mapped, CUDA_SUCCESS; }
CUresult cuCtxGetCurrent(CUcontext *context) { return *context = (CUcontext)&mapped, CUDA_SUCCESS; }
CUresult cuCtxSynchronize(void) { return (CUresult)cudaDeviceSynchronize(); }
CUresult cuGetErrorString(CUresult error, const char **text) {
    return *text = cudaGetErrorString((cudaError_t)error), 0;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    need_context();
    return (void)device, cuCtxGetCurrent(context);
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active) {
    return (void)device, *flags = 0, *active = 1, CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device) {
    struct cudaDeviceProp told;
    cudaGetDeviceProperties(&told, device);
    return *uuid = told.uuid, CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char *name, int size, CUdevice device) {
    return (CUresult)cudaDeviceGetPCIBusId(name, size, device);
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device) {
    struct cudaDeviceProp told;
    if (cudaGetDeviceProperties(&told, device) != cudaSuccess) return CUDA_ERROR_INVALID_DEVICE;
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE: *value = 1980000; break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = told.multiProcessorCount; break;
    case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE: *value = 3201000; break;
    case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH: *value = told.memoryBusWidth; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = told.major; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = told.minor; break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: *value = told.sharedMemPerBlockOptin; break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK: *value = told.sharedMemPerBlock; break;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X: *value = told.maxGridSize[0]; break;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y: *value = told.maxGridSize[1]; break;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE: *value = told.warpSize; break;
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED: *value = 1; break;
    default: *value = 0; break;
    }
    return CUDA_SUCCESS;
}

/* Memory that is reserved first and mapped later, piece by piece. */

CUresult cuMemGetAllocationGranularity(size_t *bytes, const CUmemAllocationProp *how,
                                       CUmemAllocationGranularity_flags f) {
    return (void)how, (void)f, *bytes = PIECE_BYTES, CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(CUdeviceptr *at, size_t bytes, size_t alignment, CUdeviceptr hint,
                             unsigned long long flags) {
    (void)alignment, (void)hint, (void)flags;
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
    (void)how, (void)flags;
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
    (void)bytes, (void)offset, (void)flags;
    for (size_t i = 0; i < sizeof mapped / sizeof *mapped; i++) {
        if (mapped[i].piece != NULL) continue;
        mapped[i].at = at, mapped[i].piece = (struct piece *)handle;
        mapped[i].piece->users++;
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemSetAccess(CUdeviceptr at, size_t bytes, const CUmemAccessDesc *how, size_t count) {
    (void)how, (void)count;
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
    (void)version, (void)flags;
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
