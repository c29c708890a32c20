/* Stands in for libcudnn.so.9: it begins, which XLA wants of it; no convolution can be planned. */
#include "stand_in.h"

#include <stdlib.h>

int cudnnGetProperty(int which, int *value) { *value = which == 0 ? 9 : which == 1 ? 3 : 0; return SUCCESS; }
size_t cudnnGetVersion(void) { return 90300; }
int cudnnCreate(void **handle) { *handle = malloc(1); return SUCCESS; }
int cudnnDestroy(void *handle) { free(handle); return SUCCESS; }
int cudnnSetStream(void *handle, void *stream) { return SUCCESS; }
const char *cudnnGetErrorString(int status) { return status ? "CUDNN_STATUS_INTERNAL_ERROR" : "CUDNN_STATUS_SUCCESS"; }
