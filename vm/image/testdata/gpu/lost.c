// Checks of the libraries on a machine whose first GPU is lost.
#include <stdio.h>
#include <string.h>

#include "cuda.h"

int nvmlInit_v2(void);
const char *nvmlErrorString(int result);
int nvmlDeviceGetCount_v2(unsigned *);
int nvmlDeviceGetHandleByIndex_v2(unsigned, void **);
int nvmlDeviceGetMemoryInfo(void *, unsigned long long *);

#define WANT(condition) \
	do { \
		if (!(condition)) { \
			printf("%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
			failures++; \
		} \
	} while (0)

int main(void)
{
	int failures = 0;
	unsigned n = 0;
	void *device = NULL;
	unsigned long long memory[3];
	WANT(!nvmlInit_v2() && !nvmlDeviceGetCount_v2(&n) && n == 2);
	WANT(nvmlDeviceGetHandleByIndex_v2(0, &device) == 15 && !strcmp(nvmlErrorString(15), "GPU is lost"));
	WANT(nvmlDeviceGetMemoryInfo(device, memory) == 15);
	WANT(!nvmlDeviceGetHandleByIndex_v2(1, &device) && !nvmlDeviceGetMemoryInfo(device, memory));

	// Allocation fails at once. The kernel's driver would wait for the GPU.
	for (int i = 0; i < 2; i++) {
		CUcontext context;
		CUdeviceptr pointer;
		WANT(!cuInit(0) && !cuCtxCreate_v2(&context, 0, i));
		WANT(cuMemAlloc_v2(&pointer, 4096) == (i ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN));
	}
	return failures > 0;
}
