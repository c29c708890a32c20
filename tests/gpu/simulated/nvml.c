/* NVML, as far as it is asked here: the device's memory and who has it, a steady power, clock and temperature.
 *
 * Its header does not come with torch: what is passed is declared as its documentation has it.
 */
#include "simulated.h"

#include <stdio.h>
#include <string.h>

enum { DONE = 0, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7 };
#define POWER_MW 300000
#define CLOCK_MHZ 1980

struct memory {
    unsigned long long total, free, used;
};

struct memory_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};

struct process_v1 {
    unsigned process;
    unsigned long long used;
};

struct process {
    unsigned process;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
};

static int device;

const char *nvmlErrorString(int error) { return error == NOT_FOUND ? "Not Found" : "an error of the simulated device"; }
int nvmlSystemGetDriverVersion(char *text, unsigned size) { return snprintf(text, size, "580.95.05"), DONE; }
int nvmlSystemGetCudaDriverVersion_v2(int *version) { return *version = CUDA_VERSION, DONE; }
int nvmlSystemGetCudaDriverVersion(int *version) { return *version = CUDA_VERSION, DONE; }
int nvmlDeviceGetCount_v2(unsigned *count) { return *count = 1, DONE; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
    return *handle = &device, index == 0 ? DONE : NOT_FOUND;
}
int nvmlDeviceGetHandleByUUID(const char *name, void **handle) { return (void)name, *handle = &device, DONE; }
int nvmlDeviceGetHandleByPciBusId_v2(const char *name, void **handle) { return (void)name, *handle = &device, DONE; }
int nvmlDeviceGetName(void *handle, char *name, unsigned size) {
    return (void)handle, snprintf(name, size, "NVIDIA H200"), DONE;
}
int nvmlDeviceGetCudaComputeCapability(void *h, int *major, int *minor) {
    return (void)h, *major = 9, *minor = 0, DONE;
}
int nvmlDeviceGetMigMode(void *handle, unsigned *now, unsigned *next) { return (void)handle, *now = *next = 0, DONE; }
int nvmlDeviceGetPowerUsage(void *handle, unsigned *mw) { return (void)handle, *mw = POWER_MW, DONE; }
int nvmlDeviceGetClockInfo(void *handle, int kind, unsigned *mhz) {
    return (void)handle, (void)kind, *mhz = CLOCK_MHZ, DONE;
}
int nvmlDeviceGetMaxClockInfo(void *handle, int kind, unsigned *mhz) {
    return (void)handle, (void)kind, *mhz = CLOCK_MHZ, DONE;
}
int nvmlDeviceGetTemperature(void *handle, int kind, unsigned *celsius) {
    return (void)handle, (void)kind, *celsius = 40, DONE;
}
int nvmlDeviceGetCurrentClocksEventReasons(void *handle, unsigned long long *why) {
    return (void)handle, *why = 0, DONE;
}

int nvmlDeviceGetTotalEnergyConsumption(void *handle, unsigned long long *mj) {
    return (void)handle, *mj = (unsigned long long)now_ns() / 1000000 * (POWER_MW / 1000), DONE;
}

int nvmlDeviceGetMemoryInfo(void *handle, struct memory *told) {
    (void)handle;
    *told = (struct memory){memory_bytes(), free_bytes(), memory_bytes() - free_bytes()};
    return DONE;
}

int nvmlDeviceGetMemoryInfo_v2(void *handle, struct memory_v2 *told) {
    (void)handle;
    told->total = memory_bytes(), told->reserved = 0;
    told->free = free_bytes(), told->used = memory_bytes() - free_bytes();
    return DONE;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *count, struct process *told) {
    unsigned room = *count;
    (void)handle;
    *count = 0;
    for (int i = 0; i < USERS; i++) {
        struct user each = user(i);
        if (each.bytes == 0) continue;
        if (*count < room) told[*count] = (struct process){each.process, each.bytes, ~0u, ~0u};
        ++*count;
    }
    return *count > room ? INSUFFICIENT_SIZE : DONE;
}

int nvmlDeviceGetComputeRunningProcesses(void *handle, unsigned *count, struct process_v1 *told) {
    struct process found[USERS];
    unsigned room = *count;
    *count = USERS;
    nvmlDeviceGetComputeRunningProcesses_v3(handle, count, found);
    if (*count > room) return INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < *count; i++) told[i] = (struct process_v1){found[i].process, found[i].used};
    return DONE;
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(void *handle, unsigned *count, struct process *told) {
    return (void)handle, (void)told, *count = 0, DONE;
}
