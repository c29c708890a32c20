/* What torch's CUDA build brings headers for. */
#pragma once
#include "stand_in.h"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <cupti.h>

#define RUNTIME(name, version) BEGIN(RUNTIME_CALL, CUPTI_RUNTIME_TRACE_CBID_##name##_v##version)
