/* What the runtime reports of the one device, as CUDA 13 lays it out. */
#include "torch.h"

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device) {
    if (device != 0) return failed(cudaErrorInvalidDevice);
    *properties = (struct cudaDeviceProp){
        .name = CARD_NAME,
        .uuid = {{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}},
        .totalGlobalMem = memory_bytes(),
        .sharedMemPerBlock = CARD_SHARED_BYTES,
        .sharedMemPerBlockOptin = CARD_SHARED_MOST_BYTES,
        .sharedMemPerMultiprocessor = CARD_SHARED_ALL_BYTES,
        .reservedSharedMemPerBlock = 1 << 10,
        .regsPerBlock = CARD_REGISTERS,
        .regsPerMultiprocessor = CARD_REGISTERS,
        .warpSize = 32,
        .maxThreadsPerBlock = 1024,
        .maxThreadsDim = {1024, 1024, 64},
        .maxGridSize = {2147483647, 65535, 65535},
        .maxThreadsPerMultiProcessor = 2048,
        .maxBlocksPerMultiProcessor = 32,
        .totalConstMem = 65536,
        .major = CARD_CAPABILITY / 10,
        .minor = CARD_CAPABILITY % 10,
        .textureAlignment = 512,
        .multiProcessorCount = CARD_MULTIPROCESSORS,
        .canMapHostMemory = 1,
        .concurrentKernels = 1,
        .asyncEngineCount = 3,
        .unifiedAddressing = 1,
        .memoryBusWidth = CARD_BUS_BITS,
        .l2CacheSize = CARD_L2_BYTES,
        .memoryPoolsSupported = 1,
        .cooperativeLaunch = 1,
        .pciBusID = CARD_BUS,
    };
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *name, int room, int device) {
    return (cudaError_t)cuDeviceGetPCIBusId(name, room, device);
}
