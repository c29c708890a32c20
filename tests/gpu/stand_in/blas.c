/* cuBLAS: each product is one kernel, without effect. */
#include "stand_in.h"

#include <stdlib.h>

struct handle {
    Stream stream;
};

/* Every product takes its library's handle first. */
#define PRODUCT(name) \
    int name(struct handle *handle) { return product(handle->stream, "sm90_stand_in_gemm_" #name, false); }
#define DONE(name) \
    int name(void) { return SUCCESS; }

int product(Stream stream, const char *name, bool by_driver) {
    struct call call = by_driver ? BEGIN(DRIVER_CALL, CALL_cuLaunchKernelEx)
                                 : BEGIN(RUNTIME_CALL, CALL_cudaLaunchKernel, .kernel = name);
    launch(&call, stream, name, (struct size){CARD_MULTIPROCESSORS, 1, 1}, (struct size){384, 1, 1}, 200 << 10);
    return end_call(&call, SUCCESS);
}

int cublasCreate_v2(struct handle **handle) {
    static bool loaded;
    need_context();
    if (!loaded) loaded = claim(setting("SIMULATED_LIBRARY_BYTES", CARD_LIBRARY_BYTES));
    return *handle = calloc(1, sizeof **handle), loaded ? SUCCESS : 3; /* CUBLAS_STATUS_ALLOC_FAILED */
}

int cublasDestroy_v2(struct handle *handle) { return free(handle), SUCCESS; }
int cublasSetStream_v2(struct handle *handle, Stream stream) { return handle->stream = stream, SUCCESS; }
int cublasGetMathMode(struct handle *handle, int *mode) { return *mode = 0, SUCCESS; }
DONE(cublasSetMathMode)
DONE(cublasSetPointerMode_v2)
PRODUCT(cublasSgemm_v2)
PRODUCT(cublasGemmEx)
PRODUCT(cublasSgemmEx)
PRODUCT(cublasSgemmStridedBatched)
PRODUCT(cublasGemmStridedBatchedEx)
#if !FOR_MXNET
int cublasGetPointerMode_v2(struct handle *handle, int *mode) { return *mode = 0, SUCCESS; }
DONE(cublasSetWorkspace_v2)
#endif
#if !FOR_TENSORFLOW
PRODUCT(cublasDgemm_v2)
PRODUCT(cublasDgemmStridedBatched)
PRODUCT(cublasSdot_v2)
#endif
#if FOR_TORCH
PRODUCT(cublasSgemv_v2)
PRODUCT(cublasDgemv_v2)
PRODUCT(cublasDotEx)
#endif
#if FOR_TENSORFLOW
PRODUCT(cublasSgemmBatched)
PRODUCT(cublasGemmBatchedEx)
const char *cublasGetStatusString(int status) {
    return status ? "CUBLAS_STATUS_INTERNAL_ERROR" : "CUBLAS_STATUS_SUCCESS";
}
int cublasGetVersion_v2(struct handle *handle, int *version) { return *version = 120903, SUCCESS; }
int cublasLtCreate(void **handle) { return *handle = malloc(1), SUCCESS; }
int cublasLtDestroy(void *handle) { return free(handle), SUCCESS; }
#endif
