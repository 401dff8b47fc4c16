#define _GNU_SOURCE
#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "driver.h"
#include "node.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool initialized;
static int visible[GPU_MAX]; // indexes of gpus, by ordinal
static int nvisible;
static int nodes[GPU_MAX]; // open render nodes plus 1, by ordinal

// named returns the index of the GPU that a word of CUDA_VISIBLE_DEVICES names by its number or UUID, or -1.
static int named(const char *word)
{
	const struct gpu *all;
	int n = gpus(&all);
	char *end;
	long index = strtol(word, &end, 10);
	if (end != word && !*end)
		return index >= 0 && index < n ? (int)index : -1;
	int found = -1;
	for (int i = 0; i < n; i++) {
		char uuid[GPU_UUID_TEXT];
		gpu_uuid_text(&all[i], uuid);
		if (strlen(word) > 4 && !strncasecmp(uuid, word, strlen(word)))
			found = found < 0 ? i : -2; // the beginning of two UUIDs names none
	}
	return found < 0 ? -1 : found;
}

// see fills visible. As in CUDA, a word that names no GPU hides all that follow.
static void see(void)
{
	const char *list = getenv("CUDA_VISIBLE_DEVICES");
	if (!list) {
		nvisible = gpus(NULL);
		for (int i = 0; i < nvisible; i++)
			visible[i] = i;
		return;
	}
	char *copy = strdup(list), *rest = NULL;
	char *w = copy ? strtok_r(copy, ", ", &rest) : NULL;
	for (; w && nvisible < GPU_MAX; w = strtok_r(NULL, ", ", &rest)) {
		int i = named(w);
		if (i < 0)
			break;
		visible[nvisible++] = i;
	}
	free(copy);
}

EXPORT CUresult cuInit(unsigned flags)
{
	if (flags)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&lock);
	if (!initialized)
		see();
	initialized = true;
	int n = nvisible;
	pthread_mutex_unlock(&lock);
	return n ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

int device_count(void)
{
	pthread_mutex_lock(&lock);
	int n = initialized ? nvisible : -1;
	pthread_mutex_unlock(&lock);
	return n;
}

const struct gpu *device_at(CUdevice device)
{
	const struct gpu *all;
	gpus(&all);
	return device >= 0 && device < device_count() ? &all[visible[device]] : NULL;
}

int device_of(const struct gpu *g)
{
	int n = device_count();
	for (int i = 0; i < n; i++)
		if (device_at(i) == g)
			return i;
	return -1;
}

int device_node(CUdevice device)
{
	const struct gpu *g = device_at(device);
	if (!g)
		return -1;
	pthread_mutex_lock(&lock);
	if (!nodes[device])
		nodes[device] = node_open(g->node) + 1;
	int node = nodes[device] - 1;
	pthread_mutex_unlock(&lock);
	return node;
}

EXPORT CUresult cuDriverGetVersion(int *version)
{
	if (!version)
		return CUDA_ERROR_INVALID_VALUE;
	*version = GPU_API_VERSION;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetCount(int *count)
{
	int n = device_count();
	if (n < 0)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (!count)
		return CUDA_ERROR_INVALID_VALUE;
	*count = n;
	return CUDA_SUCCESS;
}

// check returns the error of a call about a device, with a place for the answer.
static CUresult check(CUdevice device, const void *answer)
{
	if (device_count() < 0)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (!answer)
		return CUDA_ERROR_INVALID_VALUE;
	return device_at(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

EXPORT CUresult cuDeviceGet(CUdevice *device, int index)
{
	CUresult r = check(index, device);
	if (!r)
		*device = index;
	return r;
}

EXPORT CUresult cuDeviceGetName(char *name, int size, CUdevice device)
{
	CUresult r = check(device, name);
	if (!r && size <= 0)
		r = CUDA_ERROR_INVALID_VALUE;
	if (!r)
		snprintf(name, (size_t)size, "%s", device_at(device)->name);
	return r;
}

EXPORT CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
	CUresult r = check(device, uuid);
	if (!r)
		memcpy(uuid->bytes, device_at(device)->uuid, sizeof uuid->bytes);
	return r;
}

EXPORT CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device) { return cuDeviceGetUuid(uuid, device); }

EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
	CUresult r = check(device, bytes);
	if (!r)
		*bytes = device_at(device)->memory;
	return r;
}

EXPORT CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice device)
{
	CUresult r = check(device, major);
	if (!r && !minor)
		r = CUDA_ERROR_INVALID_VALUE;
	if (!r) {
		*major = GPU_CAPABILITY_MAJOR;
		*minor = GPU_CAPABILITY_MINOR;
	}
	return r;
}

EXPORT CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
	CUresult r = check(device, value);
	if (r)
		return r;
	const struct gpu *g = device_at(device);
	switch ((int)attribute) {
	case CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID: *value = (int)g->domain; break;
	case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID: *value = (int)g->bus; break;
	case CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID: *value = (int)g->device; break;
	case CU_DEVICE_ATTRIBUTE_GPU_PCI_DEVICE_ID: *value = (int)g->ids; break;
	case CU_DEVICE_ATTRIBUTE_GPU_PCI_SUBSYSTEM_ID: *value = (int)g->subsystem; break;
	case CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID: *value = g->numa; break;
	case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = GPU_CAPABILITY_MAJOR; break;
	case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = GPU_CAPABILITY_MINOR; break;
	case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = 1024; break; // programs divide by it
	case CU_DEVICE_ATTRIBUTE_WARP_SIZE: *value = 32; break;
	case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS: *value = 1; break; // by the host's call
	case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING: *value = 200; break; // all devices see a write at once
	case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
	case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:
	case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
	case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
	case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED: *value = 1; break;
	default: *value = 0; // not there, or a size of what no kernel uses
	}
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetByPCIBusId(CUdevice *device, const char *address)
{
	if (device_count() < 0)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (!device || !address)
		return CUDA_ERROR_INVALID_VALUE;
	const struct gpu *all;
	gpus(&all);
	int i = gpu_by_address(address);
	int found = i < 0 ? -1 : device_of(&all[i]);
	if (found < 0)
		return CUDA_ERROR_INVALID_DEVICE;
	*device = found;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetPCIBusId(char *address, int size, CUdevice device)
{
	CUresult r = check(device, address);
	if (!r && (size <= 0 || snprintf(address, (size_t)size, "%s", device_at(device)->address) >= size))
		r = CUDA_ERROR_INVALID_VALUE;
	return r;
}

// cuDeviceCanAccessPeer says no: GPUs do not copy to each other. A copy between two of them goes through the CPU.
EXPORT CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer)
{
	CUresult r = check(device, can);
	if (!r && !device_at(peer))
		r = CUDA_ERROR_INVALID_DEVICE;
	if (!r)
		*can = 0;
	return r;
}
