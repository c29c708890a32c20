/* CUDA's libraries, as much as MXNet's builds for CUDA 11 ask for: nothing is computed, sizes are reported. */
#include <stdlib.h>
#include <string.h>

typedef size_t Size;
typedef struct { int sizes[16], dimensions, type, hidden, layers, directions, mode; } Description;
typedef struct { int algorithm, status; float time; Size bytes; int determinism, math, reserved[3]; } Performance;
enum { FORWARD_MIB = 48, DATA_MIB = 32, FILTER_MIB = 64, RECURRENT_MIB = 8 };
#define MIB ((Size)1 << 20)

static int made(void **handle) { *handle = calloc(1, sizeof(Description)); return 0; }
static int gone(void *handle) { free(handle); return 0; }

int cusolverDnCreate(void **handle) { return made(handle); }
int cusolverDnDestroy(void *handle) { return gone(handle); }
int curandCreateGenerator(void **handle, int type) { return made(handle); }
int curandDestroyGenerator(void *handle) { return gone(handle); }

int nvrtcCreateProgram(void **program) { return made(program); }
int nvrtcDestroyProgram(void **program) { return gone(*program); }
int nvrtcCompileProgram() { return 0; }
int nvrtcAddNameExpression() { return 0; }
int nvrtcGetLoweredName(void *program, const char *name, const char **lowered) { *lowered = "kernel"; return 0; }
int nvrtcGetPTXSize(void *program, Size *bytes) { *bytes = 1; return 0; }
int nvrtcGetPTX(void *program, char *text) { *text = 0; return 0; }
int nvrtcGetProgramLogSize(void *program, Size *bytes) { *bytes = 1; return 0; }
int nvrtcGetProgramLog(void *program, char *text) { *text = 0; return 0; }

#define DESCRIBED(NAME) \
    int cudnnCreate##NAME(void **handle) { return made(handle); } \
    int cudnnDestroy##NAME(void *handle) { return gone(handle); }
DESCRIBED(TensorDescriptor)
DESCRIBED(FilterDescriptor)
DESCRIBED(ConvolutionDescriptor)
DESCRIBED(ActivationDescriptor)
DESCRIBED(DropoutDescriptor)
DESCRIBED(PoolingDescriptor)
DESCRIBED(RNNDescriptor)
DESCRIBED(RNNDataDescriptor)
DESCRIBED(SpatialTransformerDescriptor)

int cudnnCreate(void **handle) { return made(handle); }
int cudnnDestroy(void *handle) { return gone(handle); }
Size cudnnGetVersion(void) { return 8101; }
int cudnnSetTensorNdDescriptor(Description *tensor, int type, int dimensions, const int *sizes) {
    tensor->type = type, tensor->dimensions = dimensions;
    memcpy(tensor->sizes, sizes, dimensions * sizeof *sizes);
    return 0;
}

static int performance(int asked, int *found, Performance *of, Size bytes) {
    *found = asked > 0;
    if (*found) *of = (Performance){.algorithm = 1, .time = 1, .bytes = bytes, .determinism = 1};
    return 0;
}
#define SEARCHED void *h, void *a, void *b, void *c, void *d, int asked, int *found, Performance *of
#define SIZED void *h, void *a, void *b, void *c, void *d, int algorithm, Size *bytes
#define CONVOLUTION(WAY, MEBIBYTES) \
    int cudnnGetConvolution##WAY##AlgorithmMaxCount(void *handle, int *most) { *most = 1; return 0; } \
    int cudnnGetConvolution##WAY##Algorithm_v7(SEARCHED) { \
        return performance(asked, found, of, MEBIBYTES * MIB); \
    } \
    int cudnnFindConvolution##WAY##Algorithm(SEARCHED) { \
        return performance(asked, found, of, MEBIBYTES * MIB); \
    } \
    int cudnnGetConvolution##WAY##WorkspaceSize(SIZED) { \
        *bytes = MEBIBYTES * MIB; \
        return 0; \
    }
CONVOLUTION(Forward, FORWARD_MIB)
CONVOLUTION(BackwardData, DATA_MIB)
CONVOLUTION(BackwardFilter, FILTER_MIB)

int cudnnDropoutGetStatesSize(void *handle, Size *bytes) { *bytes = 1769472; return 0; }
int cudnnDropoutGetReserveSpaceSize(Description *of, Size *bytes) {
    Size elements = 1;
    for (int i = 0; i < of->dimensions; i++) elements *= of->sizes[i];
    *bytes = (elements + 7) / 8;
    return 0;
}
int cudnnSetRNNDescriptor_v6(void *h, Description *rnn, int hidden, int layers, void *d, int input, int both,
                             int mode) {
    rnn->hidden = hidden, rnn->layers = layers, rnn->directions = both ? 2 : 1, rnn->mode = mode;
    return 0;
}
int cudnnGetRNNParamsSize(void *handle, Description *rnn, Description *input, Size *bytes, int type) {
    Size gates = rnn->mode == 2 ? 4 : rnn->mode == 3 ? 3 : 1, given = input->sizes[1], elements = 0;
    for (int layer = 0; layer < rnn->layers; layer++, given = rnn->hidden * rnn->directions)
        elements += rnn->directions * gates * rnn->hidden * (given + rnn->hidden + 2);
    *bytes = elements * sizeof(float);
    return 0;
}
int cudnnGetRNNWorkspaceSize(void *h, Description *rnn, int steps, void *of, Size *bytes) {
    *bytes = RECURRENT_MIB * MIB;
    return 0;
}
int cudnnGetRNNTrainingReserveSize(void *h, Description *rnn, int steps, Description **of, Size *bytes) {
    *bytes = (Size)6 * sizeof(float) * steps * of[0]->sizes[0] * rnn->hidden * rnn->layers * rnn->directions;
    return 0;
}
