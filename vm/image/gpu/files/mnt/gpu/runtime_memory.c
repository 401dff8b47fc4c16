#include <stdint.h>

#include "runtime.h"

EXPORT cudaError_t cudaMalloc(void **pointer, size_t size);
cudaError_t cudaMalloc(void **pointer, size_t size)
{
	CUdeviceptr p = 0;
	CUresult r = (CUresult)runtime_ready();
	if (!r)
		r = pointer ? cuMemAlloc(&p, size) : CUDA_ERROR_INVALID_VALUE;
	if (!r)
		*pointer = (void *)(uintptr_t)p;
	return runtime_end(r);
}

EXPORT cudaError_t cudaFree(void *pointer);
cudaError_t cudaFree(void *pointer)
{
	CUresult r = (CUresult)runtime_ready(); // programs call cudaFree(0) to get a context
	return runtime_end(r ? r : cuMemFree((uintptr_t)pointer));
}

EXPORT cudaError_t cudaHostAlloc(void **pointer, size_t size, unsigned flags);
cudaError_t cudaHostAlloc(void **pointer, size_t size, unsigned flags)
{
	CUresult r = (CUresult)runtime_ready();
	return runtime_end(r ? r : cuMemHostAlloc(pointer, size, flags));
}

EXPORT cudaError_t cudaMallocHost(void **pointer, size_t size);
cudaError_t cudaMallocHost(void **pointer, size_t size) { return cudaHostAlloc(pointer, size, 0); }

EXPORT cudaError_t cudaFreeHost(void *pointer);
cudaError_t cudaFreeHost(void *pointer) { return runtime_end(pointer ? cuMemFreeHost(pointer) : CUDA_SUCCESS); }

EXPORT cudaError_t cudaHostRegister(void *pointer, size_t size, unsigned flags);
cudaError_t cudaHostRegister(void *pointer, size_t size, unsigned flags)
{
	CUresult r = (CUresult)runtime_ready();
	return runtime_end(r ? r : cuMemHostRegister(pointer, size, flags));
}

EXPORT cudaError_t cudaHostUnregister(void *pointer);
cudaError_t cudaHostUnregister(void *pointer) { return runtime_end(cuMemHostUnregister(pointer)); }

EXPORT cudaError_t cudaHostGetDevicePointer(void **device, void *host, unsigned flags);
cudaError_t cudaHostGetDevicePointer(void **device, void *host, unsigned flags)
{
	CUdeviceptr p = 0;
	CUresult r = device ? cuMemHostGetDevicePointer(&p, host, flags) : CUDA_ERROR_INVALID_VALUE;
	if (!r)
		*device = (void *)(uintptr_t)p;
	return runtime_end(r);
}

EXPORT cudaError_t cudaMemGetInfo(size_t *unused, size_t *total);
cudaError_t cudaMemGetInfo(size_t *unused, size_t *total)
{
	CUresult r = (CUresult)runtime_ready();
	return runtime_end(r ? r : cuMemGetInfo(unused, total));
}

EXPORT cudaError_t cudaMemcpy(void *to, const void *from, size_t size, int kind);
cudaError_t cudaMemcpy(void *to, const void *from, size_t size, int kind)
{
	(void)kind; // addresses tell
	CUresult r = (CUresult)runtime_ready();
	return runtime_end(r ? r : cuMemcpy((uintptr_t)to, (uintptr_t)from, size));
}

EXPORT cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t size, int kind, CUstream stream);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t size, int kind, CUstream stream)
{
	(void)stream;
	return cudaMemcpy(to, from, size, kind);
}

// cudaMemcpyBatchAsync ignores hints about the copies, which follow count.
EXPORT cudaError_t cudaMemcpyBatchAsync(void **to, void **from, size_t *sizes, size_t count, void *hints,
	size_t *hint_of, size_t nhints, size_t *failed, CUstream stream);
cudaError_t cudaMemcpyBatchAsync(void **to, void **from, size_t *sizes, size_t count, void *hints, size_t *hint_of,
	size_t nhints, size_t *failed, CUstream stream)
{
	(void)hints;
	(void)hint_of;
	(void)nhints;
	(void)stream;
	for (size_t i = 0; i < count; i++) {
		cudaError_t r = cudaMemcpy(to[i], from[i], sizes[i], 0);
		if (!r)
			continue;
		if (failed)
			*failed = i;
		return r;
	}
	return cudaSuccess;
}

EXPORT cudaError_t cudaMemset(void *to, int value, size_t count);
cudaError_t cudaMemset(void *to, int value, size_t count)
{
	CUresult r = (CUresult)runtime_ready();
	return runtime_end(r ? r : cuMemsetD8((uintptr_t)to, (unsigned char)value, count));
}

EXPORT cudaError_t cudaMemsetAsync(void *to, int value, size_t count, CUstream stream);
cudaError_t cudaMemsetAsync(void *to, int value, size_t count, CUstream stream)
{
	(void)stream;
	return cudaMemset(to, value, count);
}

EXPORT cudaError_t cudaPointerGetAttributes(struct pointer_attributes *answer, const void *pointer);
cudaError_t cudaPointerGetAttributes(struct pointer_attributes *answer, const void *pointer)
{
	CUmemorytype type = 0;
	CUdeviceptr device_pointer = 0;
	void *host_pointer = NULL;
	int device = 0;
	CUpointer_attribute names[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
		CU_POINTER_ATTRIBUTE_DEVICE_POINTER, CU_POINTER_ATTRIBUTE_HOST_POINTER};
	void *values[] = {&type, &device, &device_pointer, &host_pointer};
	CUresult r = (CUresult)runtime_ready();
	if (!r)
		r = answer ? cuPointerGetAttributes(4, names, values, (uintptr_t)pointer) : CUDA_ERROR_INVALID_VALUE;
	if (r)
		return runtime_end(r);
	*answer = (struct pointer_attributes){.type = (int)type, .device = device,
		.device_pointer = (void *)(uintptr_t)device_pointer, .host_pointer = host_pointer};
	if (!type)
		answer->host_pointer = (void *)(uintptr_t)pointer;
	return cudaSuccess;
}
