/* Calls of CUDA's that files without its headers make of each other. */
#pragma once
#include "stand_in.h"

int cuDeviceGetAttribute(int *value, int which, int device);
int cuDeviceGetUuid_v2(uint8_t *uuid, int device);
int cuMemcpyAsync(void *to, const void *from, size_t bytes, Stream stream);
int cuMemsetD8Async(void *to, uint8_t value, size_t count, Stream stream);
int cuModuleLoadData(void **module, const void *image);
int cudaDeviceGetStreamPriorityRange(int *least, int *most);
int cudaDeviceSynchronize(void);
int cudaEventCreateWithFlags(Event *event, unsigned flags);
int cudaEventDestroy(Event event);
int cudaEventElapsedTime(float *ms, Event first, Event last);
int cudaEventRecord(Event event, Stream stream);
int cudaEventSynchronize(Event event);
const char *cudaGetErrorString(int error);
int cudaMalloc(void **at, size_t bytes);
int cudaMemGetInfo(size_t *free, size_t *total);
int cudaStreamCreate(Stream *stream);
int cudaStreamQuery(Stream stream);
int cudaStreamSynchronize(Stream stream);
