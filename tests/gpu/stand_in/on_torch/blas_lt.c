/* cublasLt, for torch: each product is a kernel, which the driver launches. */
#include "stand_in.h"

#include <stdlib.h>
#include <string.h>

#define DONE(name) \
    int name(void) { return SUCCESS; }

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
    if (wanted > 0) memset(found, 0, sizeof *found);
    return *count = wanted > 0, 0;
}

int cublasLtMatmul(void *handle, void *operation, const void *alpha, const void *a, void *of_a, const void *b,
                   void *of_b,
                   const void *beta, const void *c, void *of_c, void *d, void *of_d, const void *algorithm,
                   void *workspace, size_t workspace_bytes, Stream stream) {
    return product(stream, "cublasLtMatmul", true);
}
