// What the files of libnvidia-ml share.
#ifndef RACKLESS_NVML_H
#define RACKLESS_NVML_H

#include "gpu.h"

#define EXPORT __attribute__((visibility("default")))

enum {
	SUCCESS = 0,
	UNINITIALIZED = 1,
	INVALID_ARGUMENT = 2,
	NOT_SUPPORTED = 3,
	NOT_FOUND = 6,
	INSUFFICIENT_SIZE = 7,
	DRIVER_NOT_LOADED = 9,
	GPU_IS_LOST = 15,
};
typedef int nvmlReturn_t;
typedef const struct gpu *nvmlDevice_t;

// nvml_check returns the error of a call about a GPU, with a place for the answer.
nvmlReturn_t nvml_check(nvmlDevice_t device, const void *answer);

#endif
