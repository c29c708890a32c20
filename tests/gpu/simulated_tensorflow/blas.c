/* Stands in for libcublas.so.12 and libcublasLt.so.12: each product is one kernel, which does nothing. */
#include "card.h"

#include <stdlib.h>

static int product(void) {
    return card_launch("sm90_stand_in_gemm", (Size){CARD_MULTIPROCESSORS, 1, 1}, (Size){384, 1, 1}, 0, NULL);
}

int cublasSgemm_v2(void *handle, ...) { return product(); }
int cublasSgemmEx(void *handle, ...) { return product(); }
int cublasGemmEx(void *handle, ...) { return product(); }
int cublasSgemmStridedBatched(void *handle, ...) { return product(); }
int cublasGemmStridedBatchedEx(void *handle, ...) { return product(); }
int cublasSgemmBatched(void *handle, ...) { return product(); }
int cublasGemmBatchedEx(void *handle, ...) { return product(); }

const char *cublasGetStatusString(int status) {
    return status ? "CUBLAS_STATUS_INTERNAL_ERROR" : "CUBLAS_STATUS_SUCCESS";
}
int cublasCreate_v2(void **handle) { *handle = malloc(1); return SUCCESS; }
int cublasDestroy_v2(void *handle) { free(handle); return SUCCESS; }
int cublasGetVersion_v2(void *handle, int *version) { *version = 120903; return SUCCESS; }
int cublasSetStream_v2(void *handle, void *stream) { return SUCCESS; }
int cublasSetWorkspace_v2(void *handle, void *space, size_t bytes) { return SUCCESS; }
int cublasGetMathMode(void *handle, int *mode) { *mode = 0; return SUCCESS; }
int cublasSetMathMode(void *handle, int mode) { return SUCCESS; }
int cublasGetPointerMode_v2(void *handle, int *mode) { *mode = 0; return SUCCESS; }
int cublasSetPointerMode_v2(void *handle, int mode) { return SUCCESS; }
int cublasLtCreate(void **handle) { *handle = malloc(1); return SUCCESS; }
int cublasLtDestroy(void *handle) { free(handle); return SUCCESS; }
