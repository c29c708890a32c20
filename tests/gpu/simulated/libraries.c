/* cuBLAS, whose products are kernels without effect, and torch's questions whether it may use cuDNN: it may not. */
#include "simulated.h"

#include <stdlib.h>
#include <string.h>

#define LIBRARY_BYTES (96ll << 20)

struct handle {
    CUstream stream;
};

/* Every product takes its library's handle first. */
#define PRODUCT(name) \
    int name(struct handle *handle) { return product(handle->stream, #name, false); }
#define DONE(name) \
    int name(void) { return 0; }

static int product(CUstream stream, const char *name, bool by_driver) {
    struct call call = by_driver ? DRIVER(cuLaunchKernelEx) : RUNTIME(cudaLaunchKernel, 7000);
    launch(&call, stream, name, (dim3){MULTIPROCESSORS, 1, 1}, (dim3){384, 1, 1}, 200 << 10);
    return end_call(&call, 0);
}

int cublasCreate_v2(struct handle **handle) {
    static bool loaded;
    need_context();
    if (!loaded) loaded = claim(setting("SIMULATED_LIBRARY_BYTES", LIBRARY_BYTES));
    return *handle = calloc(1, sizeof **handle), loaded ? 0 : 3; /* CUBLAS_STATUS_ALLOC_FAILED */
}

int cublasDestroy_v2(struct handle *handle) { return free(handle), 0; }
int cublasSetStream_v2(struct handle *handle, CUstream stream) { return handle->stream = stream, 0; }
int cublasGetMathMode(struct handle *handle, int *mode) { return (void)handle, *mode = 0, 0; }
int cublasGetPointerMode_v2(struct handle *handle, int *mode) { return (void)handle, *mode = 0, 0; }
DONE(cublasSetMathMode)
DONE(cublasSetPointerMode_v2)
DONE(cublasSetWorkspace_v2)
PRODUCT(cublasSgemm_v2)
PRODUCT(cublasDgemm_v2)
PRODUCT(cublasGemmEx)
PRODUCT(cublasSgemmEx)
PRODUCT(cublasSgemmStridedBatched)
PRODUCT(cublasDgemmStridedBatched)
PRODUCT(cublasGemmStridedBatchedEx)
PRODUCT(cublasSgemv_v2)
PRODUCT(cublasDgemv_v2)
PRODUCT(cublasSdot_v2)
PRODUCT(cublasDotEx)

static int made(void **thing) { return *thing = calloc(1, 512), 0; }

int cublasLtMatmulDescCreate(void **made_thing) { return made(made_thing); }
int cublasLtMatmulPreferenceCreate(void **made_thing) { return made(made_thing); }
int cublasLtMatrixLayoutCreate(void **made_thing) { return made(made_thing); }
DONE(cublasLtMatmulDescDestroy)
DONE(cublasLtMatmulPreferenceDestroy)
DONE(cublasLtMatrixLayoutDestroy)
DONE(cublasLtMatmulDescSetAttribute)
DONE(cublasLtMatmulPreferenceSetAttribute)
DONE(cublasLtMatrixLayoutSetAttribute)
size_t cublasLtGetVersion(void) { return 130100; }

struct heuristic { /* cublasLtMatmulHeuristicResult_t */
    uint64_t algorithm[8];
    size_t workspace_bytes;
    int state;
    float waves;
    int reserved[4];
};

int cublasLtMatmulAlgoGetHeuristic(void *handle, void *operation, void *a, void *b, void *c, void *d, void *preference,
                                   int wanted, struct heuristic *found, int *count) {
    (void)handle, (void)operation, (void)a, (void)b, (void)c, (void)d, (void)preference;
    if (wanted > 0) memset(found, 0, sizeof *found);
    return *count = wanted > 0, 0;
}

int cublasLtMatmul(void *handle, void *operation, const void *alpha, const void *a, void *of_a, const void *b,
                   void *of_b,
                   const void *beta, const void *c, void *of_c, void *d, void *of_d, const void *algorithm,
                   void *workspace, size_t workspace_bytes, CUstream stream) {
    (void)handle, (void)operation, (void)alpha, (void)a, (void)of_a, (void)b, (void)of_b, (void)beta, (void)c;
    (void)of_c, (void)d, (void)of_d, (void)algorithm, (void)workspace, (void)workspace_bytes;
    return product(stream, "cublasLtMatmul", true);
}
