/* One GPU's runtime and driver, as much as MXNet's builds for CUDA 11 ask for: its memory is the host's, mapped and
   bounded; streams and events do nothing, kernels are not run. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

typedef size_t Size;
enum { OUT_OF_MEMORY = 2, INVALID = 1, NO_DEVICE = 101, GRANULE = 512, PAGE = 4096 };
typedef struct { void *address; Size bytes; } Block;

static Block blocks[1 << 16];
static int count;
static Size used_bytes;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static __thread int last_error;

static Size setting(const char *name, Size otherwise) {
  const char *said = getenv(name);
  return said ? strtoull(said, NULL, 0) : otherwise;
}
static Size total(void) { return setting("SIMULATED_BYTES", (Size)80 << 30); }
static Size rounded(Size bytes, Size to) { return (bytes + to - 1) / to * to; }
static int failed(int code) { return last_error = code; }

/* Memory */
int cudaMalloc(void **made, Size asked) {
  Size bytes = rounded(asked, GRANULE);
  int code = 0;
  *made = NULL;
  pthread_mutex_lock(&lock);
  if (bytes > total() - used_bytes) code = failed(OUT_OF_MEMORY);
  else if (bytes) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    *made = mmap(NULL, rounded(bytes, PAGE), PROT_READ | PROT_WRITE, flags, -1, 0);
    blocks[count++] = (Block){*made, bytes};
    used_bytes += bytes;
  }
  pthread_mutex_unlock(&lock);
  return code;
}
int cudaFree(void *address) {
  int code = address ? failed(INVALID) : 0;
  pthread_mutex_lock(&lock);
  for (int i = 0; address && i < count; i++)
    if (blocks[i].address == address) {
      munmap(address, rounded(blocks[i].bytes, PAGE));
      used_bytes -= blocks[i].bytes;
      blocks[i] = blocks[--count];
      code = last_error = 0;
      break;
    }
  pthread_mutex_unlock(&lock);
  return code;
}
int cudaMemGetInfo(Size *free_bytes, Size *all) { *all = total(); *free_bytes = *all - used_bytes; return 0; }
int cudaMallocPitch(void **made, Size *pitch, Size width, Size height) {
  *pitch = rounded(width, GRANULE);
  return cudaMalloc(made, *pitch * height);
}
int cudaHostAlloc(void **made, Size bytes, unsigned flags) { return posix_memalign(made, PAGE, bytes + !bytes); }
int cudaFreeHost(void *address) { free(address); return 0; }
int cudaMemcpy(void *to, const void *from, Size bytes, int kind) { memcpy(to, from, bytes); return 0; }
int cudaMemcpyAsync(void *to, const void *from, Size bytes, int kind, void *stream) {
  memcpy(to, from, bytes);
  return 0;
}
int cudaMemcpyPeerAsync(void *to, int there, const void *from, int here, Size bytes, void *stream) {
  memcpy(to, from, bytes);
  return 0;
}
int cudaMemcpy2DAsync(char *to, Size to_pitch, const char *from, Size from_pitch, Size width, Size height) {
  for (Size row = 0; row < height; row++) memcpy(to + row * to_pitch, from + row * from_pitch, width);
  return 0;
}
int cudaMemsetAsync(void *to, int value, Size bytes, void *stream) { memset(to, value, bytes); return 0; }

/* The device */
static int attribute(int number) {
  switch (number) {
    case 1: return 1024;               /* threads of a block */
    case 8: return 49152;              /* bytes a block shares */
    case 10: return 32;                /* threads of a warp */
    case 16: return 108;               /* multiprocessors */
    case 39: return 2048;              /* threads of a multiprocessor */
    case 75: return (int)setting("SIMULATED_CAPABILITY", 80) / 10;
    case 76: return (int)setting("SIMULATED_CAPABILITY", 80) % 10;
    default: return 1;
  }
}
int cudaGetDeviceCount(int *told) { *told = 1; return 0; }
int cudaGetDevice(int *told) { *told = 0; return 0; }
int cudaSetDevice(int number) { return number ? failed(NO_DEVICE) : 0; }
int cudaDeviceGetAttribute(int *told, int number, int device) { *told = attribute(number); return 0; }
int cudaGetDeviceProperties(char *told, int device) { /* cudaDeviceProp of CUDA 11 */
  memset(told, 0, 720);
  *(Size *)(told + 288) = total();
  *(int *)(told + 308) = attribute(10);
  *(int *)(told + 320) = attribute(1);
  *(int *)(told + 360) = attribute(75);
  *(int *)(told + 364) = attribute(76);
  *(int *)(told + 388) = attribute(16);
  return 0;
}
int cudaDriverGetVersion(int *told) { *told = 13000; return 0; }
int cudaGetLastError(void) { int code = last_error; last_error = 0; return code; }
int cudaPeekAtLastError(void) { return last_error; }
const char *cudaGetErrorName(int code) { return code == OUT_OF_MEMORY ? "cudaErrorMemoryAllocation" : "another error"; }
const char *cudaGetErrorString(int code) { return code == OUT_OF_MEMORY ? "out of memory" : "another error"; }

/* Streams, events, kernels */
int cudaStreamCreate(void **made) { *made = malloc(1); return 0; }
int cudaStreamDestroy(void *stream) { free(stream); return 0; }
int cudaStreamSynchronize(void *stream) { return 0; }
int cudaStreamWaitEvent(void *stream, void *event, unsigned flags) { return 0; }
int cudaEventCreateWithFlags(void **made, unsigned flags) { *made = malloc(1); return 0; }
int cudaEventDestroy(void *event) { free(event); return 0; }
int cudaEventRecord(void *event, void *stream) { return 0; }
int cudaDeviceSynchronize(void) { return 0; }
int cudaLaunchKernel() { return 0; }
int cudaFuncGetAttributes(int *told, const void *kernel) {
  memset(told, 0, 56);
  told[6] = 1024, told[8] = told[9] = 80; /* threads of a block, PTX's and the code's version */
  return 0;
}
int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *told) { *told = 2; return 0; }
void **__cudaRegisterFatBinary(void *binary) { static void *handle; return &handle; }
void __cudaRegisterFatBinaryEnd(void **handle) {}
void __cudaUnregisterFatBinary(void **handle) {}
void __cudaRegisterFunction() {}
void __cudaRegisterVar() {}
char __cudaInitModule(void **handle) { return 1; }
int __cudaPushCallConfiguration() { return 0; }
int __cudaPopCallConfiguration() { return 0; }

/* The driver */
int cuInit(unsigned flags) { return 0; }
int cuDeviceGet(int *told, int number) { *told = number; return number ? NO_DEVICE : 0; }
int cuDeviceGetName(char *told, int room, int device) { snprintf(told, room, "a simulated GPU"); return 0; }
int cuDeviceGetAttribute(int *told, int number, int device) { *told = attribute(number); return 0; }
int cuDevicePrimaryCtxRetain(void **made, int device) { *made = &lock; return 0; }
int cuDevicePrimaryCtxRelease_v2(int device) { return 0; }
int cuCtxPushCurrent_v2(void *context) { return 0; }
int cuCtxPopCurrent_v2(void **context) { return 0; }
int cuMemGetInfo_v2(Size *free_bytes, Size *all) { return cudaMemGetInfo(free_bytes, all); }
int cuModuleLoadData(void **made, const void *image) { *made = &lock; return 0; }
int cuModuleLoadDataEx(void **made, const void *image) { *made = &lock; return 0; }
int cuModuleGetFunction(void **made, void *module, const char *name) { *made = &lock; return 0; }
int cuModuleUnload(void *module) { return 0; }
int cuLaunchKernel() { return 0; }
