/* What MXNet's builds for CUDA 11 alone ask of the runtime: the device as CUDA 11 lays it out, and memory in rows. */
#include "calls.h"

#include <string.h>

int cudaGetDeviceProperties(char *properties, int device) {
    static const int PLACES[][2] = {{308, 10}, {320, 1}, {360, 75}, {364, 76}, {388, 16}}; /* and whose attribute */
    memset(properties, 0, 720);
    *(uint64_t *)(properties + 288) = memory_bytes();
    for (int i = 0; i < 5; i++) cuDeviceGetAttribute((int *)(properties + PLACES[i][0]), PLACES[i][1], device);
    return SUCCESS;
}

int cudaMallocPitch(void **made, size_t *pitch, size_t width, size_t height) {
    *pitch = (width + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    return cudaMalloc(made, *pitch * height);
}

int cudaMemcpyPeerAsync(void *to, int there, const void *from, int here, size_t bytes, Stream stream) {
    copy(NULL, stream, to, from, bytes);
    return SUCCESS;
}

int cudaMemcpy2DAsync(char *to, size_t to_pitch, const char *from, size_t from_pitch, size_t width, size_t height) {
    for (size_t row = 0; row < height; row++) memcpy(to + row * to_pitch, from + row * from_pitch, width);
    return SUCCESS;
}
