/* NVML, as far as it is asked here: the device's memory and who has it.
 *
 * No framework brings its header: what is passed is declared as its documentation has it.
 */
#include "stand_in.h"

#include <stdio.h>

#if !FOR_MXNET
enum { DONE = 0, UNSUPPORTED = 3, MISSING = 6, INSUFFICIENT_SIZE = 7 };

struct memory {
    unsigned long long total, free, used;
};

struct memory_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};

struct process {
    unsigned process;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
};

static int device;

int nvmlInit_v2(void) { return DONE; }
int nvmlInitWithFlags(unsigned flags) { return DONE; }
int nvmlShutdown(void) { return DONE; }
const char *nvmlErrorString(int error) { return error == MISSING ? "Not Found" : "an error of the simulated device"; }
int nvmlDeviceGetCount_v2(unsigned *count) { return *count = 1, DONE; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
    return *handle = &device, index == 0 ? DONE : MISSING;
}
int nvmlDeviceGetHandleByUUID(const char *name, void **handle) { return *handle = &device, DONE; }
int nvmlDeviceGetHandleByPciBusId_v2(const char *name, void **handle) { return *handle = &device, DONE; }

int nvmlDeviceGetMemoryInfo(void *handle, struct memory *info) {
    *info = (struct memory){memory_bytes(), free_bytes(), memory_bytes() - free_bytes()};
    return DONE;
}

int nvmlDeviceGetMemoryInfo_v2(void *handle, struct memory_v2 *info) {
    *info = (struct memory_v2){info->version, memory_bytes(), 0, free_bytes(), memory_bytes() - free_bytes()};
    return DONE;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *count, struct process *infos) {
    unsigned room = *count;
    *count = 0;
    for (int i = 0; i < USERS; i++) {
        struct user each = user(i);
        if (each.bytes == 0) continue;
        if (*count < room) infos[*count] = (struct process){each.process, each.bytes, ~0u, ~0u};
        ++*count;
    }
    return *count > room ? INSUFFICIENT_SIZE : DONE;
}
#endif

#if FOR_TENSORFLOW /* no link to another card is there */
int nvmlDeviceGetCurrPcieLinkGeneration(void *handle, unsigned *generation) { return *generation = 5, DONE; }
int nvmlDeviceGetCurrPcieLinkWidth(void *handle, unsigned *lanes) { return *lanes = 16, DONE; }
int nvmlDeviceGetNvLinkState(void *handle, unsigned link, int *active) { return UNSUPPORTED; }
int nvmlDeviceGetNvLinkCapability(void *handle, unsigned link, int which, unsigned *can) { return UNSUPPORTED; }
int nvmlDeviceGetGpuFabricInfoV(void *handle, void *info) { return UNSUPPORTED; }
#endif

#if FOR_TORCH /* a steady power, clock and temperature */
#define POWER_MW 300000
#define CLOCK_MHZ (CARD_CLOCK_KHZ / 1000)

struct process_v1 {
    unsigned process;
    unsigned long long used;
};

int nvmlSystemGetDriverVersion(char *text, unsigned room) { return snprintf(text, room, "580.95.05"), DONE; }
int nvmlSystemGetCudaDriverVersion_v2(int *version) { return *version = CARD_CUDA, DONE; }
int nvmlSystemGetCudaDriverVersion(int *version) { return *version = CARD_CUDA, DONE; }
int nvmlDeviceGetName(void *handle, char *name, unsigned room) { return snprintf(name, room, "%s", CARD_NAME), DONE; }
int nvmlDeviceGetCudaComputeCapability(void *handle, int *major, int *minor) {
    return *major = CARD_CAPABILITY / 10, *minor = CARD_CAPABILITY % 10, DONE;
}
int nvmlDeviceGetMigMode(void *handle, unsigned *now, unsigned *next) { return *now = *next = 0, DONE; }
int nvmlDeviceGetPowerUsage(void *handle, unsigned *mw) { return *mw = POWER_MW, DONE; }
int nvmlDeviceGetClockInfo(void *handle, int kind, unsigned *mhz) { return *mhz = CLOCK_MHZ, DONE; }
int nvmlDeviceGetMaxClockInfo(void *handle, int kind, unsigned *mhz) { return *mhz = CLOCK_MHZ, DONE; }
int nvmlDeviceGetTemperature(void *handle, int kind, unsigned *celsius) { return *celsius = 40, DONE; }
int nvmlDeviceGetCurrentClocksEventReasons(void *handle, unsigned long long *why) { return *why = 0, DONE; }

int nvmlDeviceGetTotalEnergyConsumption(void *handle, unsigned long long *mj) {
    return *mj = (unsigned long long)now_ns() / 1000000 * (POWER_MW / 1000), DONE;
}

int nvmlDeviceGetComputeRunningProcesses(void *handle, unsigned *count, struct process_v1 *infos) {
    struct process found[USERS];
    unsigned room = *count;
    *count = USERS;
    nvmlDeviceGetComputeRunningProcesses_v3(handle, count, found);
    if (*count > room) return INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < *count; i++) infos[i] = (struct process_v1){found[i].process, found[i].used};
    return DONE;
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(void *handle, unsigned *count, void *infos) { return *count = 0, DONE; }
#endif
