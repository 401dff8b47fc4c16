// The runtime's devices, errors and launches. All work is that of libcuda.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "gpu.h"
#include "runtime.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static CUcontext primary[GPU_MAX];
static _Thread_local int chosen;
static _Thread_local CUresult last;

cudaError_t runtime_end(CUresult result)
{
	if (result)
		last = result;
	return (cudaError_t)result;
}

static CUresult use(int device)
{
	int n = 0;
	CUresult r = cuDeviceGetCount(&n);
	if (r)
		return r;
	if (device < 0 || device >= n)
		return CUDA_ERROR_INVALID_DEVICE;
	pthread_mutex_lock(&lock);
	if (!primary[device])
		r = cuDevicePrimaryCtxRetain(&primary[device], device);
	CUcontext c = primary[device];
	pthread_mutex_unlock(&lock);
	return r ? r : cuCtxSetCurrent(c);
}

int runtime_device(void)
{
	CUdevice device;
	return cuCtxGetDevice(&device) ? chosen : device;
}

cudaError_t runtime_ready(void)
{
	CUcontext c = NULL;
	CUresult r = cuInit(0);
	if (!r)
		r = cuCtxGetCurrent(&c);
	if (!r && !c)
		r = use(chosen);
	return runtime_end(r);
}

EXPORT cudaError_t cudaSetDevice(int device);
cudaError_t cudaSetDevice(int device)
{
	CUresult r = cuInit(0);
	if (!r)
		r = use(device);
	if (!r)
		chosen = device;
	return runtime_end(r);
}

EXPORT cudaError_t cudaGetDevice(int *device);
cudaError_t cudaGetDevice(int *device)
{
	CUresult r = device ? cuInit(0) : CUDA_ERROR_INVALID_VALUE;
	if (!r)
		*device = runtime_device();
	return runtime_end(r);
}

EXPORT cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaGetDeviceCount(int *count)
{
	if (count)
		*count = 0;
	CUresult r = count ? cuInit(0) : CUDA_ERROR_INVALID_VALUE;
	return runtime_end(r ? r : cuDeviceGetCount(count));
}

EXPORT cudaError_t cudaGetDeviceProperties_v2(struct device_properties *p, int device);
cudaError_t cudaGetDeviceProperties_v2(struct device_properties *p, int device)
{
	CUresult r = p ? cuInit(0) : CUDA_ERROR_INVALID_VALUE;
	if (r)
		return runtime_end(r);
	memset(p, 0, sizeof *p);
	r = cuDeviceGetName(p->name, sizeof p->name, device);
	if (r)
		return runtime_end(r);
	cuDeviceGetUuid((CUuuid *)(void *)p->uuid, device);
	cuDeviceTotalMem(&p->memory, device);
	cuDeviceComputeCapability(&p->major, &p->minor, device);
	const struct {
		CUdevice_attribute attribute;
		int *value;
	} values[] = {
		{CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, &p->domain},
		{CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, &p->bus},
		{CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, &p->device},
		{CU_DEVICE_ATTRIBUTE_WARP_SIZE, &p->warp_size},
		{CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, &p->threads_per_block},
		{CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, &p->maps_host},
		{CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, &p->async_engines},
		{CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, &p->unified_addressing},
		{CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, &p->registers_host},
		{CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED, &p->gpudirect},
		{CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS, &p->gpudirect_flush},
		{CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING, &p->gpudirect_ordering},
	};
	for (size_t i = 0; i < sizeof values / sizeof *values; i++)
		cuDeviceGetAttribute(values[i].value, values[i].attribute, device);
	return cudaSuccess;
}

EXPORT cudaError_t cudaDeviceGetAttribute(int *value, int attribute, int device);
cudaError_t cudaDeviceGetAttribute(int *value, int attribute, int device)
{
	CUresult r = cuInit(0);
	return runtime_end(r ? r : cuDeviceGetAttribute(value, (CUdevice_attribute)attribute, device));
}

EXPORT cudaError_t cudaDeviceGetPCIBusId(char *address, int size, int device);
cudaError_t cudaDeviceGetPCIBusId(char *address, int size, int device)
{
	CUresult r = cuInit(0);
	return runtime_end(r ? r : cuDeviceGetPCIBusId(address, size, device));
}

EXPORT cudaError_t cudaDeviceGetByPCIBusId(int *device, const char *address);
cudaError_t cudaDeviceGetByPCIBusId(int *device, const char *address)
{
	CUresult r = cuInit(0);
	return runtime_end(r ? r : cuDeviceGetByPCIBusId(device, address));
}

EXPORT cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer);
cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
	CUresult r = cuInit(0);
	return runtime_end(r ? r : cuDeviceCanAccessPeer(can, device, peer));
}

EXPORT cudaError_t cudaDeviceSynchronize(void);
cudaError_t cudaDeviceSynchronize(void) { return runtime_ready(); }

EXPORT cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest);
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
	if (least)
		*least = 0;
	if (greatest)
		*greatest = 0;
	return runtime_ready();
}

EXPORT cudaError_t cudaDriverGetVersion(int *version);
cudaError_t cudaDriverGetVersion(int *version) { return runtime_end(cuDriverGetVersion(version)); }

EXPORT cudaError_t cudaRuntimeGetVersion(int *version);
cudaError_t cudaRuntimeGetVersion(int *version) { return runtime_end(cuDriverGetVersion(version)); }

EXPORT cudaError_t cudaGetLastError(void);
cudaError_t cudaGetLastError(void)
{
	CUresult r = last;
	last = CUDA_SUCCESS;
	return (cudaError_t)r;
}

EXPORT cudaError_t cudaPeekAtLastError(void);
cudaError_t cudaPeekAtLastError(void) { return (cudaError_t)last; }

EXPORT const char *cudaGetErrorString(cudaError_t error);
const char *cudaGetErrorString(cudaError_t error)
{
	const char *text = NULL;
	return cuGetErrorString((CUresult)error, &text) ? "unrecognized error code" : text;
}

EXPORT const char *cudaGetErrorName(cudaError_t error);
const char *cudaGetErrorName(cudaError_t error)
{
	const char *name = NULL;
	return cuGetErrorName((CUresult)error, &name) ? "unrecognized error code" : name;
}
