/* The pool of cudaMallocAsync, which keeps what is freed until it is trimmed; and what a pointer is. */
#include "torch.h"

static uint64_t pool_used, pool_used_most, pool_kept, pool_kept_most;

cudaError_t cudaMallocAsync(void **at, size_t bytes, cudaStream_t stream) {
    struct call call = RUNTIME(cudaMallocAsync, 11020);
    LOCKED;
    cudaError_t status = make_region(at, bytes, ON_DEVICE);
    if (status == cudaSuccess) pool_used += region_of(*at).bytes;
    if (pool_used > pool_used_most) pool_used_most = pool_used;
    if (pool_used > pool_kept) pool_kept = pool_used;
    if (pool_kept > pool_kept_most) pool_kept_most = pool_kept;
    return end_call(&call, failed(status));
}

cudaError_t cudaFreeAsync(void *at, cudaStream_t stream) {
    struct call call = RUNTIME(cudaFreeAsync, 11020);
    LOCKED;
    pool_used -= region_of(at).bytes;
    return end_call(&call, failed(remove_region(at)));
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int device) { return *pool = (void *)&pool_used, device; }
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t least) { return pool_kept = pool_used, 0; }

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attribute, void *value) {
    *(uint64_t *)value = attribute == cudaMemPoolAttrUsedMemCurrent      ? pool_used
                         : attribute == cudaMemPoolAttrUsedMemHigh       ? pool_used_most
                         : attribute == cudaMemPoolAttrReservedMemCurrent ? pool_kept
                         : attribute == cudaMemPoolAttrReservedMemHigh    ? pool_kept_most
                                                                          : 0;
    return cudaSuccess;
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attribute, void *value) {
    if (attribute == cudaMemPoolAttrUsedMemHigh) pool_used_most = pool_used;
    if (attribute == cudaMemPoolAttrReservedMemHigh) pool_kept_most = pool_kept;
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *at) {
    enum place place = region_of(at).place;
    *attributes = (struct cudaPointerAttributes){.type = cudaMemoryTypeUnregistered};
    if (place == NOWHERE) return cudaSuccess;
    attributes->type = place == ON_DEVICE ? cudaMemoryTypeDevice : cudaMemoryTypeHost;
    attributes->devicePointer = (void *)at;
    attributes->hostPointer = place == ON_HOST ? (void *)at : NULL;
    return cudaSuccess;
}
