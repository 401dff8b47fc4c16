// Copies, all by the CPU: each is done when the call returns, and the ways of a copy differ in nothing.
#include <string.h>

#include "driver.h"

// reach sets cpu to the place of size bytes at an address, which may be ordinary memory of the process.
static CUresult reach(CUdeviceptr pointer, size_t size, void **cpu)
{
	struct memory m;
	*cpu = (void *)(uintptr_t)pointer;
	if (!memory_find(pointer, &m) || m.kind != DEVICE_MEMORY)
		return pointer ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	if (size > m.start + m.size - pointer)
		return CUDA_ERROR_INVALID_VALUE;
	*cpu = m.cpu + (pointer - m.start);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t size)
{
	void *target, *source;
	if (device_count() < 0)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (!size)
		return CUDA_SUCCESS;
	CUresult r = reach(to, size, &target);
	if (!r)
		r = reach(from, size, &source);
	if (!r)
		memmove(target, source, size);
	return r;
}

EXPORT CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t size)
{
	return cuMemcpy(to, (uintptr_t)from, size);
}

EXPORT CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t size)
{
	return cuMemcpy((uintptr_t)to, from, size);
}

EXPORT CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t size) { return cuMemcpy(to, from, size); }

EXPORT CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream)
{
	(void)stream;
	return cuMemcpy(to, from, size);
}

EXPORT CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t size, CUstream stream)
{
	(void)stream;
	return cuMemcpy(to, (uintptr_t)from, size);
}

EXPORT CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t size, CUstream stream)
{
	(void)stream;
	return cuMemcpy((uintptr_t)to, from, size);
}

EXPORT CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream)
{
	(void)stream;
	return cuMemcpy(to, from, size);
}

// fill writes count copies of a value of 1, 2 or 4 bytes.
static CUresult fill(CUdeviceptr to, const void *value, size_t width, size_t count)
{
	void *target;
	if (device_count() < 0)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (to % width || count > SIZE_MAX / width)
		return CUDA_ERROR_INVALID_VALUE;
	if (!count)
		return CUDA_SUCCESS;
	CUresult r = reach(to, width * count, &target);
	if (!r && width == 1)
		memset(target, *(const unsigned char *)value, count);
	for (size_t i = 0; !r && width > 1 && i < count; i++)
		memcpy((char *)target + width * i, value, width);
	return r;
}

EXPORT CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t count) { return fill(to, &value, 1, count); }
EXPORT CUresult cuMemsetD16_v2(CUdeviceptr to, unsigned short value, size_t count)
{
	return fill(to, &value, 2, count);
}

EXPORT CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned value, size_t count) { return fill(to, &value, 4, count); }

EXPORT CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream)
{
	(void)stream;
	return fill(to, &value, 1, count);
}

EXPORT CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream stream)
{
	(void)stream;
	return fill(to, &value, 4, count);
}

// cuFlushGPUDirectRDMAWrites has nothing to wait for: memory of the GPU is coherent.
EXPORT CUresult cuFlushGPUDirectRDMAWrites(int target, int scope)
{
	(void)target;
	(void)scope;
	return device_count() < 0 ? CUDA_ERROR_NOT_INITIALIZED : CUDA_SUCCESS;
}
