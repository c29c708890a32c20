/* The driver's own interface: the device, its one context, and kernels of modules. */
#include "calls.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int context_object;

static int attribute_of(int which) { /* as CUdevice_attribute numbers them */
    int capability = (int)setting("SIMULATED_CAPABILITY", CARD_CAPABILITY);
    switch (which) {
    case 1: case 2: case 3: return 1024; /* threads of a block, and along its x and y */
    case 4: return 64;                   /* along its z */
    case 5: case 11: return 2147483647;  /* blocks along a grid's x, pitch of copies */
    case 6: case 7: return 65535;        /* blocks along a grid's y and z */
    case 8: return CARD_SHARED_BYTES;
    case 9: return 65536;                /* constant memory, bytes */
    case 10: return 32;                  /* threads of a warp */
    case 12: case 82: return CARD_REGISTERS; /* of a block and of a multiprocessor */
    case 13: return CARD_CLOCK_KHZ;
    case 14: return 512;                 /* alignment of textures */
    case 15: case 19: case 31: case 32: case 41: case 78: case 83: case 95: return 1; /* what such a card can */
    case 16: return CARD_MULTIPROCESSORS;
    case 36: return CARD_MEMORY_CLOCK_KHZ;
    case 37: return CARD_BUS_BITS;
    case 38: return CARD_L2_BYTES;
    case 39: return 2048;                /* threads of a multiprocessor */
    case 40: return 3;                   /* copy engines */
    case 75: return capability / 10;
    case 76: return capability % 10;
    case 81: return CARD_SHARED_ALL_BYTES;
    case 97: return CARD_SHARED_MOST_BYTES;
    case 102: return FOR_TORCH;          /* memory can be reserved first and mapped later */
    case 106: return 32;                 /* blocks of a multiprocessor */
    default: return 0;
    }
}

int cuInit(unsigned flags) { return SUCCESS; }
int cuDeviceGet(int *device, int index) { return *device = index, index == 0 ? SUCCESS : INVALID_DEVICE; }
int cuDeviceGetName(char *name, int room, int device) { return snprintf(name, room, "%s", CARD_NAME), SUCCESS; }
int cuDeviceGetAttribute(int *value, int which, int device) { return *value = attribute_of(which), SUCCESS; }
int cuMemGetInfo_v2(size_t *free, size_t *total) { return cudaMemGetInfo(free, total); }
int cuGetErrorString(int error, const char **text) { return *text = cudaGetErrorString(error), SUCCESS; }

int cuDevicePrimaryCtxRetain(void **context, int device) { return need_context(), *context = &context_object, SUCCESS; }
int cuDevicePrimaryCtxRelease_v2(int device) { return SUCCESS; }
int cuCtxPushCurrent_v2(void *context) { return SUCCESS; }
int cuCtxPopCurrent_v2(void **context) { return *context = &context_object, SUCCESS; }

#if !FOR_MXNET
int cuDriverGetVersion(int *version) { return *version = CARD_CUDA, SUCCESS; }
int cuDeviceGetCount(int *count) { return *count = 1, SUCCESS; }
int cuDeviceTotalMem_v2(size_t *bytes, int device) { return *bytes = memory_bytes(), SUCCESS; }
int cuDeviceGetUuid_v2(uint8_t *uuid, int device) {
    for (int i = 0; i < 16; i++) uuid[i] = i;
    return SUCCESS;
}
int cuDeviceGetPCIBusId(char *name, int room, int device) {
    return snprintf(name, room, "0000:%02X:00.0", CARD_BUS), device == 0 ? SUCCESS : INVALID_DEVICE;
}
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) {
    return *flags = 0, *active = 1, SUCCESS;
}
int cuCtxGetCurrent(void **context) { return *context = &context_object, SUCCESS; }
int cuCtxSetCurrent(void *context) { return SUCCESS; }
int cuCtxSynchronize(void) { return cudaDeviceSynchronize(); }
#endif

#if !FOR_TORCH /* a module is nothing, and a function of it is its name */
int cuModuleLoadData(void **module, const void *image) { return *module = malloc(1), SUCCESS; }
int cuModuleLoadDataEx(void **module, const void *image, unsigned count, void *options, void *values) {
    return cuModuleLoadData(module, image);
}
int cuModuleUnload(void *module) { return free(module), SUCCESS; }
int cuModuleGetFunction(void **function, void *module, const char *name) { return *function = strdup(name), SUCCESS; }
int cuLaunchKernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned x, unsigned y,
                   unsigned z, unsigned shared_bytes, Stream stream, void **arguments, void **extra) {
    struct call call = BEGIN(DRIVER_CALL, CALL_cuLaunchKernel, .name = "cuLaunchKernel", .kernel = function);
    launch(&call, stream, function, (struct size){grid_x, grid_y, grid_z}, (struct size){x, y, z}, shared_bytes);
    return end_call(&call, SUCCESS);
}
#endif
