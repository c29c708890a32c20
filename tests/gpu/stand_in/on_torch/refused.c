/* What is not stood in for and says so, and what there is nothing to do for: whatever it takes, without headers. */
#include "stand_in.h"

#define REFUSED(name) \
    int name(void) { return not_simulated(#name), NOT_SUPPORTED; }
#define DONE(name) \
    int name(void) { return 0; }

/* Of the runtime. */
REFUSED(cudaDeviceEnablePeerAccess)
REFUSED(cudaMemcpyPeerAsync)
REFUSED(cudaMemcpy2DAsync)
REFUSED(cudaMemcpyToSymbol)
REFUSED(cudaIpcGetMemHandle)
REFUSED(cudaIpcOpenMemHandle)
REFUSED(cudaIpcCloseMemHandle)
REFUSED(cudaIpcGetEventHandle)
REFUSED(cudaIpcOpenEventHandle)
REFUSED(cudaGetSymbolAddress)
REFUSED(cudaStreamAddCallback)
REFUSED(cudaGraphDebugDotPrint)
REFUSED(cudaGraphNodeGetDependencies)
DONE(cudaProfilerStart)
DONE(cudaProfilerStop)
DONE(cudaHostRegister)
DONE(cudaHostUnregister)
DONE(cudaMemPoolSetAccess)
DONE(cudaGraphDestroy) /* its launches need it */
DONE(cudaGraphExecDestroy)
DONE(cudaThreadExchangeStreamCaptureMode)

/* Of CUPTI. */
DONE(cuptiActivitySetAttribute)
DONE(cuptiActivityEnableCudaEventDeviceTimestamps)
DONE(cuptiEnableCallback)
DONE(cuptiEnableDomain)
DONE(cuptiUnsubscribe)
DONE(cuptiFinalize)

/* Of NVML; torch insists on finding what is refused. */
REFUSED(nvmlDeviceGetGpuFabricInfoV)
REFUSED(nvmlDeviceGetNvLinkRemoteDeviceType)
REFUSED(nvmlDeviceGetNvLinkRemotePciInfo_v2)

/* Of torch: at::Context's userEnabledCuDNN and userEnabledCuDNNSDP. */
bool _ZNK2at7Context16userEnabledCuDNNEv(const void *context) { return false; }
bool _ZNK2at7Context19userEnabledCuDNNSDPEv(const void *context) { return false; }
