/* Launches by a kernel's handle, which is its stub here, and by a description. */
#include "torch.h"

cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *function) {
    return *kernel = (cudaKernel_t)function, cudaSuccess;
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments, size_t shared_bytes,
                               cudaStream_t stream) {
    return cudaLaunchKernel(kernel, grid, block, arguments, shared_bytes, stream);
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *how, const void *function, void **arguments) {
    struct call call = RUNTIME(cudaLaunchKernelExC, 11060);
    struct size grid = {how->gridDim.x, how->gridDim.y, how->gridDim.z};
    struct size block = {how->blockDim.x, how->blockDim.y, how->blockDim.z};
    launch(&call, how->stream, name_of(function), grid, block, how->dynamicSmemBytes);
    return end_call(&call, cudaSuccess);
}
