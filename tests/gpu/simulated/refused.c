/* What is not stood in for and says so, and what there is nothing to do for: whatever it takes, without headers. */

void not_simulated(const char *name);

#define REFUSED(name) \
    int name(void) { return not_simulated(#name), 801; } /* cudaErrorNotSupported */
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
DONE(__cudaRegisterVar)
DONE(cudaHostRegister)
DONE(cudaHostUnregister)
DONE(cudaMemPoolSetAccess)
DONE(cudaFuncSetAttribute)
DONE(__cudaRegisterFatBinaryEnd)
DONE(__cudaUnregisterFatBinary)
DONE(cudaStreamDestroy) /* its handle is kept */
DONE(cudaGraphDestroy) /* its launches need it */
DONE(cudaGraphExecDestroy)
DONE(cudaThreadExchangeStreamCaptureMode)

/* Of the driver. */
DONE(cuInit)
DONE(cuDevicePrimaryCtxRelease_v2)
DONE(cuCtxSetCurrent)
DONE(cuCtxPushCurrent_v2)

/* Of CUPTI. */
DONE(cuptiActivitySetAttribute)
DONE(cuptiActivityEnableCudaEventDeviceTimestamps)
DONE(cuptiEnableCallback)
DONE(cuptiEnableDomain)
DONE(cuptiUnsubscribe)
DONE(cuptiFinalize)

/* Of NVML; torch insists on finding what is refused. */
DONE(nvmlInit_v2)
DONE(nvmlInitWithFlags)
DONE(nvmlShutdown)
REFUSED(nvmlDeviceGetGpuFabricInfoV)
REFUSED(nvmlDeviceGetNvLinkRemoteDeviceType)
REFUSED(nvmlDeviceGetNvLinkRemotePciInfo_v2)

/* Of torch: at::Context's userEnabledCuDNN and userEnabledCuDNNSDP. */
_Bool _ZNK2at7Context16userEnabledCuDNNEv(const void *context) { return (void)context, 0; }
_Bool _ZNK2at7Context19userEnabledCuDNNSDPEv(const void *context) { return (void)context, 0; }
