/* What the runtime tells of the one device, and the errors it keeps. */
#include "simulated.h"

#include <stdio.h>

static __thread cudaError_t last_error;

cudaError_t failed(cudaError_t error) {
    if (error != cudaSuccess) last_error = error;
    return error;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *told, int device) {
    if (device != 0) return failed(cudaErrorInvalidDevice);
    *told = (struct cudaDeviceProp){
        .name = "NVIDIA H200",
        .uuid = {{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}},
        .totalGlobalMem = memory_bytes(),
        .sharedMemPerBlock = 48 << 10,
        .sharedMemPerBlockOptin = 227 << 10,
        .sharedMemPerMultiprocessor = 228 << 10,
        .reservedSharedMemPerBlock = 1 << 10,
        .regsPerBlock = 65536,
        .regsPerMultiprocessor = 65536,
        .warpSize = 32,
        .maxThreadsPerBlock = 1024,
        .maxThreadsDim = {1024, 1024, 64},
        .maxGridSize = {2147483647, 65535, 65535},
        .maxThreadsPerMultiProcessor = 2048,
        .maxBlocksPerMultiProcessor = 32,
        .totalConstMem = 65536,
        .major = 9,
        .minor = 0,
        .textureAlignment = 512,
        .multiProcessorCount = MULTIPROCESSORS,
        .canMapHostMemory = 1,
        .concurrentKernels = 1,
        .asyncEngineCount = 3,
        .unifiedAddressing = 1,
        .memoryBusWidth = 6144,
        .l2CacheSize = 60 << 20,
        .memoryPoolsSupported = 1,
        .cooperativeLaunch = 1,
        .pciBusID = 0x1b,
    };
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device) {
    return (cudaError_t)cuDeviceGetAttribute(value, (CUdevice_attribute)attribute,
        device); /* they are numbered alike */
}

cudaError_t cudaGetDeviceCount(int *count) { return *count = 1, cudaSuccess; }
cudaError_t cudaGetDevice(int *device) { return *device = 0, cudaSuccess; }
cudaError_t cudaSetDevice(int device) { return failed(device == 0 ? cudaSuccess : cudaErrorInvalidDevice); }
cudaError_t cudaDriverGetVersion(int *version) { return *version = CUDART_VERSION, cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int *version) { return *version = CUDART_VERSION, cudaSuccess; }
cudaError_t cudaDeviceCanAccessPeer(int *can, int one, int other) { return *can = 0, (void)one, (void)other, 0; }
cudaError_t cudaPeekAtLastError(void) { return last_error; }

cudaError_t cudaGetLastError(void) {
    cudaError_t told = last_error;
    last_error = cudaSuccess;
    return told;
}

cudaError_t cudaDeviceGetPCIBusId(char *name, int size, int device) {
    return snprintf(name, size, "0000:1B:00.0"), device == 0 ? cudaSuccess : cudaErrorInvalidDevice;
}

const char *cudaGetErrorString(cudaError_t error) {
    switch (error) {
    case cudaSuccess: return "no error";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInvalidDevice: return "invalid device ordinal";
    case cudaErrorNotReady: return "device not ready";
    case cudaErrorNotSupported: return "operation not supported";
    default: return "an error of the simulated device";
    }
}

const char *cudaGetErrorName(cudaError_t error) { return cudaGetErrorString(error); }
