#include <string.h>

#include "driver.h"

// width returns the size of an attribute's value, or 0 for an unknown attribute. Booleans have the size of an int.
static size_t width(CUpointer_attribute attribute)
{
	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
	case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
	case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
	case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR: return 8;
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
	case CU_POINTER_ATTRIBUTE_MAPPED:
	case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
	case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
	case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID: return 4;
	}
	return 0;
}

static uint64_t value_of(const struct memory *m, CUpointer_attribute attribute, CUdeviceptr pointer)
{
	bool device = m->kind == DEVICE_MEMORY;
	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_CONTEXT: return (uintptr_t)m->context;
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE: return device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: return pointer;
	case CU_POINTER_ATTRIBUTE_HOST_POINTER: return device ? 0 : pointer;
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: return m->sync;
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
	case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID: return m->id;
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: return (uint64_t)m->device;
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
	case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR: return m->start;
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
	case CU_POINTER_ATTRIBUTE_MAPPING_SIZE: return m->size;
	case CU_POINTER_ATTRIBUTE_MAPPED: return 1;
	case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE: return device;
	case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS: return 3; // to read and to write
	default: return 0;
	}
}

EXPORT CUresult cuPointerGetAttribute(void *value, CUpointer_attribute attribute, CUdeviceptr pointer)
{
	struct memory m;
	size_t size = width(attribute);
	if (device_count() < 0)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (!value || !size)
		return CUDA_ERROR_INVALID_VALUE;
	if (!memory_find(pointer, &m))
		return CUDA_ERROR_INVALID_VALUE;
	uint64_t v = value_of(&m, attribute, pointer);
	if (attribute == CU_POINTER_ATTRIBUTE_HOST_POINTER && !v)
		return CUDA_ERROR_INVALID_VALUE; // the CPU does not reach it, as far as callers are told
	memcpy(value, &v, size);
	return CUDA_SUCCESS;
}

// cuPointerGetAttributes sets the values of ordinary memory of the process to 0, and succeeds.
EXPORT CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute *attributes, void **values,
	CUdeviceptr pointer)
{
	struct memory m;
	if (device_count() < 0)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (!count || !attributes || !values)
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned i = 0; i < count; i++)
		if (!values[i] || !width(attributes[i]))
			return CUDA_ERROR_INVALID_VALUE;
	bool found = memory_find(pointer, &m);
	for (unsigned i = 0; i < count; i++) {
		uint64_t v = found ? value_of(&m, attributes[i], pointer) : 0;
		if (!found && attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
			v = (uint64_t)-2; // no device, in the API's numbers
		memcpy(values[i], &v, width(attributes[i]));
	}
	return CUDA_SUCCESS;
}

EXPORT CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr pointer)
{
	struct memory m;
	if (device_count() < 0)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (!value || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS || !memory_find(pointer, &m) || m.kind != DEVICE_MEMORY)
		return CUDA_ERROR_INVALID_VALUE;
	unsigned sync;
	memcpy(&sync, value, sizeof sync);
	memory_set_sync(pointer, sync != 0);
	return CUDA_SUCCESS;
}
