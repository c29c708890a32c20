/* Stands in for libnvidia-ml.so.1: the card's memory, and that this process alone uses it. */
#include "card.h"

#include <unistd.h>

enum { NOT_SUPPORTED = 3, INSUFFICIENT_SIZE = 7 };

typedef struct { unsigned version; unsigned long long total, reserved, free, used; } Memory2;
typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned pid; unsigned long long bytes; unsigned instance, compute_instance; } Process;

int nvmlInit_v2(void) { return SUCCESS; }
int nvmlInitWithFlags(unsigned flags) { return SUCCESS; }
const char *nvmlErrorString(int error) { return error ? "Unknown Error" : "Success"; }
int nvmlShutdown(void) { return SUCCESS; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 1; return SUCCESS; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) { *device = card_context(); return SUCCESS; }
int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) { *device = card_context(); return SUCCESS; }
int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **device) { *device = card_context(); return SUCCESS; }
int nvmlDeviceGetCurrPcieLinkGeneration(void *device, unsigned *generation) { *generation = 5; return SUCCESS; }
int nvmlDeviceGetCurrPcieLinkWidth(void *device, unsigned *lanes) { *lanes = 16; return SUCCESS; }
int nvmlDeviceGetNvLinkState(void *device, unsigned link, int *active) { return NOT_SUPPORTED; }
int nvmlDeviceGetNvLinkCapability(void *device, unsigned link, int which, unsigned *can) { return NOT_SUPPORTED; }
int nvmlDeviceGetGpuFabricInfoV(void *device, void *told) { return NOT_SUPPORTED; }
int nvmlDeviceGetMemoryInfo(void *device, Memory *told) {
    size_t total = card_total_bytes(), free_bytes = card_free_bytes();
    *told = (Memory){total, free_bytes, total - free_bytes};
    return SUCCESS;
}
int nvmlDeviceGetMemoryInfo_v2(void *device, Memory2 *told) {
    size_t total = card_total_bytes(), free_bytes = card_free_bytes();
    *told = (Memory2){told->version, total, 0, free_bytes, total - free_bytes};
    return SUCCESS;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, Process *told) {
    unsigned room = *count;
    *count = 1;
    if (room < 1) return INSUFFICIENT_SIZE;
    *told = (Process){(unsigned)getpid(), card_total_bytes() - card_free_bytes()};
    return SUCCESS;
}
