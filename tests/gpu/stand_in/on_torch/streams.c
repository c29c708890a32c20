/* What torch alone asks of streams and events; and graphs: what a stream was asked for while it was captured. */
#include "torch.h"

#include <stdlib.h>

static uint32_t graphs_made;

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority) {
    return cudaStreamCreate(stream);
}
cudaError_t cudaStreamGetPriority(cudaStream_t stream, int *priority) { return *priority = 0, cudaSuccess; }
cudaError_t cudaEventQuery(cudaEvent_t event) { return event->at_ns <= now_ns() ? cudaSuccess : cudaErrorNotReady; }
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
    return cudaEventRecord(event, stream);
}

cudaError_t cudaMemset(void *at, int value, size_t bytes) {
    struct call call = RUNTIME(cudaMemset, 3020);
    set(&call, NULL, at, (uint8_t)value, 1, bytes);
    return end_call(&call, cudaSuccess);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *argument) {
    cudaStreamSynchronize(stream);
    function(argument);
    return cudaSuccess;
}

/* Graphs. */

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode) {
    struct call call = RUNTIME(cudaStreamBeginCapture, 10000);
    LOCKED;
    stream_of(stream)->capture = calloc(1, sizeof(struct CUgraph_st));
    stream_of(stream)->capture->id = ++graphs_made;
    return end_call(&call, cudaSuccess);
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
    struct call call = RUNTIME(cudaStreamEndCapture, 10000);
    LOCKED;
    *graph = stream_of(stream)->capture;
    for (struct CUstream_st *each = &default_stream; each != NULL; each = each->next)
        if (each->capture == *graph) each->capture = NULL;
    return end_call(&call, cudaSuccess);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status) {
    *status = stream_of(stream)->capture == NULL ? cudaStreamCaptureStatusNone : cudaStreamCaptureStatusActive;
    return cudaSuccess;
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, enum cudaStreamCaptureStatus *status, unsigned long long *id,
                                     cudaGraph_t *graph, const cudaGraphNode_t **nodes, const cudaGraphEdgeData **edges,
                                     size_t *count) {
    struct CUgraph_st *found = stream_of(stream)->capture;
    cudaStreamIsCapturing(stream, status);
    if (id != NULL) *id = found == NULL ? 0 : found->id;
    if (graph != NULL) *graph = found;
    if (nodes != NULL) *nodes = NULL;
    if (edges != NULL) *edges = NULL;
    if (count != NULL) *count = 0;
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *made, cudaGraph_t graph, unsigned long long flags) {
    return *made = (cudaGraphExec_t)graph, cudaSuccess;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count) {
    return *count = graph->count, cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t made, cudaStream_t stream) {
    struct call call = RUNTIME(cudaGraphLaunch, 10000);
    struct CUgraph_st *graph = (struct CUgraph_st *)made;
    for (uint32_t i = 0; i < graph->count; i++) {
        struct work work = graph->works[i];
        work.graph = graph->id, work.node = i + 1;
        perform(&call, stream, &work);
    }
    return end_call(&call, cudaSuccess);
}
