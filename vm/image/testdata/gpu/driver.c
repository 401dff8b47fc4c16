// Checks of libcuda on a machine with two GPUs of 1 MiB; the first is 0000:04:00.0. It prints each that fails.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda.h"

static int failures;

#define WANT(condition) \
	do { \
		if (!(condition)) { \
			printf("%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
			failures++; \
		} \
	} while (0)

#define MIB ((size_t)1 << 20)

static bool can_touch(CUdeviceptr p) // in a child, which dies of it
{
	fflush(stdout);
	pid_t child = fork();
	if (!child) {
		*(volatile char *)(uintptr_t)p = 1;
		_exit(0);
	}
	int status = 0;
	waitpid(child, &status, 0);
	return WIFEXITED(status);
}

static void devices(void)
{
	int n = 0, value = 0, major = 0, minor = 0;
	CUdevice d = -1;
	char text[64] = "";
	size_t bytes = 0;
	CUuuid one, two;
	WANT(cuDeviceGetCount(&n) == CUDA_ERROR_NOT_INITIALIZED);
	WANT(cuMemAlloc(&(CUdeviceptr){0}, 1) == CUDA_ERROR_NOT_INITIALIZED);
	WANT(cuInit(1) == CUDA_ERROR_INVALID_VALUE);
	WANT(!cuInit(0) && !cuInit(0));
	WANT(!cuDeviceGetCount(&n) && n == 2);
	WANT(!cuDeviceGet(&d, 0) && d == 0);
	WANT(cuDeviceGet(&d, 2) == CUDA_ERROR_INVALID_DEVICE);
	WANT(cuDeviceGet(&d, -1) == CUDA_ERROR_INVALID_DEVICE);
	WANT(!cuDeviceGetName(text, sizeof text, 0) && !strcmp(text, "rackless emulated GPU"));
	WANT(!cuDeviceGetName(text, 9, 0) && !strcmp(text, "rackless"));
	WANT(!cuDeviceTotalMem(&bytes, 1) && bytes == MIB);
	WANT(!cuDeviceGetUuid(&one, 0) && !cuDeviceGetUuid_v2(&two, 1) && memcmp(&one, &two, sizeof one));
	WANT(!cuDeviceGetPCIBusId(text, sizeof text, 0) && !strcmp(text, "0000:04:00.0"));
	WANT(cuDeviceGetPCIBusId(text, 5, 0) == CUDA_ERROR_INVALID_VALUE);
	WANT(!cuDeviceGetByPCIBusId(&d, "0000:84:00.0") && d == 1);
	WANT(!cuDeviceGetByPCIBusId(&d, "04:00.0") && d == 0);
	WANT(!cuDeviceGetByPCIBusId(&d, "00000000:84:00.0") && d == 1);
	WANT(cuDeviceGetByPCIBusId(&d, "0000:05:00.0") == CUDA_ERROR_INVALID_DEVICE);
	WANT(cuDeviceGetByPCIBusId(&d, "GPU") == CUDA_ERROR_INVALID_DEVICE);
	WANT(!cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, 1) && value == 0x84);
	WANT(!cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, 1) && value == 0);
	WANT(!cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, 1) && value == 0);
	WANT(!cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, 0) && value == 1);
	WANT(!cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED, 0) && value == 1);
	WANT(!cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_INTEGRATED, 0) && value == 0);
	WANT(!cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0) && value == 0);
	WANT(!cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, 1) && value == 1);
	WANT(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 7) == CUDA_ERROR_INVALID_DEVICE);
	WANT(!cuDeviceComputeCapability(&major, &minor, 0) && major > 0);
	WANT(!cuDeviceCanAccessPeer(&value, 0, 1) && value == 0);
}

static void *without_context(void *arg)
{
	(void)arg;
	CUcontext c = (CUcontext)&failures;
	WANT(!cuCtxGetCurrent(&c) && !c); // contexts belong to a thread
	return NULL;
}

static void contexts(void)
{
	CUcontext a, b, c;
	CUdevice d = -1;
	CUdeviceptr p = 0;
	unsigned flags = 1;
	unsigned long long one = 0, two = 0;
	int active = -1;
	pthread_t thread;
	WANT(cuMemAlloc(&p, 1) == CUDA_ERROR_INVALID_CONTEXT);
	WANT(cuCtxGetDevice(&d) == CUDA_ERROR_INVALID_CONTEXT);
	WANT(!cuCtxCreate(&a, CU_CTX_MAP_HOST, 0) && !cuCtxCreate(&b, 0, 1));
	WANT(!cuCtxGetCurrent(&c) && c == b);
	WANT(!cuCtxGetDevice(&d) && d == 1);
	WANT(!cuCtxPopCurrent(&c) && c == b);
	WANT(!cuCtxGetDevice(&d) && d == 0);
	WANT(!cuCtxGetFlags(&flags) && flags == CU_CTX_MAP_HOST);
	WANT(!cuCtxGetId(a, &one) && !cuCtxGetId(b, &two) && one != two);
	WANT(!cuCtxSetCurrent(b) && !cuCtxGetCurrent(&c) && c == b);
	WANT(!cuCtxSynchronize());
	pthread_create(&thread, NULL, without_context, NULL);
	pthread_join(thread, NULL);
	WANT(!cuMemAlloc(&p, MIB)); // all memory of the GPU
	WANT(!cuCtxDestroy(b));
	WANT(cuCtxDestroy(b) == CUDA_ERROR_INVALID_CONTEXT);
	WANT(cuCtxSetCurrent(b) == CUDA_ERROR_INVALID_CONTEXT);
	WANT(!cuCtxGetCurrent(&c) && !c);
	WANT(cuMemFree(p) == CUDA_ERROR_INVALID_VALUE); // freed with its context
	WANT(!cuDevicePrimaryCtxGetState(1, &flags, &active) && !active);
	WANT(!cuDevicePrimaryCtxRetain(&c, 1) && !cuDevicePrimaryCtxRetain(&b, 1) && b == c);
	WANT(!cuCtxSetCurrent(c) && !cuMemAlloc(&p, MIB));
	WANT(!cuDevicePrimaryCtxRelease(1));
	WANT(!cuDevicePrimaryCtxGetState(1, NULL, &active) && active);
	WANT(!cuDevicePrimaryCtxRelease(1) && cuDevicePrimaryCtxRelease(1) == CUDA_ERROR_INVALID_CONTEXT);
	WANT(cuMemAlloc(&p, 1) == CUDA_ERROR_INVALID_CONTEXT);
	WANT(!cuCtxDestroy(a));
}

static void memory(bool protect)
{
	CUcontext context;
	CUdeviceptr p = 0, q = 0, start = 0;
	size_t size = 0, unused = 0, total = 0;
	unsigned char out[4096], in[4096];
	void *host = NULL;
	int fd = -1, n;
	struct stat file;
	WANT(!cuCtxCreate(&context, 0, 0));
	WANT(cuMemAlloc(&p, 0) == CUDA_ERROR_INVALID_VALUE);
	WANT(cuMemAlloc(&p, MIB + 1) == CUDA_ERROR_OUT_OF_MEMORY);
	WANT(cuMemAlloc(&p, SIZE_MAX) == CUDA_ERROR_OUT_OF_MEMORY);
	WANT(!cuMemAlloc(&p, 100000) && p % (64 << 10) == 0);
	WANT(!cuMemAlloc(&q, MIB / 2));
	WANT(!cuMemGetInfo(&unused, &total) && total == MIB && unused == MIB / 2 - (128 << 10));
	WANT(cuMemAlloc(&start, MIB / 2) == CUDA_ERROR_OUT_OF_MEMORY);
	WANT(!cuMemGetAddressRange(&start, &size, p + 99999) && start == p && size == 128 << 10);
	WANT(cuMemGetAddressRange(&start, &size, (uintptr_t)out) == CUDA_ERROR_NOT_FOUND);
	WANT(can_touch(p) == !protect && can_touch(q + MIB / 2 - 1) == !protect);

	for (size_t i = 0; i < sizeof out; i++)
		out[i] = (unsigned char)(i * 131 + (i >> 8));
	WANT(!cuMemcpyHtoD(p + 4096, out, sizeof out));
	WANT(!cuMemcpyDtoD(q, p + 4096, sizeof out) && !cuMemcpyDtoH(in, q, sizeof in) && !memcmp(in, out, sizeof in));
	memset(in, 0, sizeof in);
	WANT(!cuMemcpy((uintptr_t)in, q, sizeof in) && !memcmp(in, out, sizeof in));
	WANT(cuMemcpyHtoD(p + (128 << 10) - 1, out, 2) == CUDA_ERROR_INVALID_VALUE);
	WANT(cuMemcpyHtoD(0, out, 1) == CUDA_ERROR_INVALID_VALUE);
	WANT(!cuMemsetD8(p, 7, 5) && !cuMemsetD32(p + 8, 0x01020304, 2) && !cuMemsetD16(p + 16, 0x0506, 1));
	WANT(cuMemsetD32(p + 2, 1, 1) == CUDA_ERROR_INVALID_VALUE);
	WANT(cuMemsetD32(p, 1, SIZE_MAX / 2) == CUDA_ERROR_INVALID_VALUE);
	WANT(!cuMemcpyDtoHAsync(in, p, 18, NULL) && !memcmp(in, "\7\7\7\7\7\0\0\0\4\3\2\1\4\3\2\1\6\5", 18));

	WANT(!cuMemGetHandleForAddressRange(&fd, p, 100000, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
	WANT(!fstat(fd, &file) && file.st_size == 128 << 10);
	WANT(pread(fd, in, sizeof in, 4096) == sizeof in && !memcmp(in, out, sizeof in));
	WANT(pwrite(fd, "from a NIC", 10, 0) == 10 && !cuMemcpyDtoH(in, p, 10) && !memcmp(in, "from a NIC", 10));
	WANT(fcntl(fd, F_GETFD) == FD_CLOEXEC && !close(fd));
	n = -1;
	WANT(cuMemGetHandleForAddressRange(&n, p + 4096, 4096, 1, 0) == CUDA_ERROR_NOT_SUPPORTED && n == -1);
	WANT(cuMemGetHandleForAddressRange(&n, p, (128 << 10) + 1, 1, 0) == CUDA_ERROR_INVALID_VALUE);
	WANT(cuMemGetHandleForAddressRange(&n, p, 4096, 2, 0) == CUDA_ERROR_INVALID_VALUE);
	WANT(cuMemGetHandleForAddressRange(&n, (uintptr_t)out, 64, 1, 0) == CUDA_ERROR_INVALID_VALUE);

	WANT(!cuMemAllocHost(&host, 5000) && can_touch((uintptr_t)host));
	WANT(cuMemFree((uintptr_t)host) == CUDA_ERROR_INVALID_VALUE && !cuMemFreeHost(host));
	WANT(!cuMemHostRegister(out, sizeof out, 0));
	WANT(cuMemHostRegister(out + 8, 8, 0) == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
	WANT(!cuMemHostGetDevicePointer(&start, out + 8, 0) && start == (uintptr_t)out + 8);
	WANT(!cuMemHostUnregister(out) && cuMemHostUnregister(out) == CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
	WANT(cuMemFree(p + 8) == CUDA_ERROR_INVALID_VALUE);
	WANT(!cuMemFree(p) && cuMemFree(p) == CUDA_ERROR_INVALID_VALUE && !cuMemFree(0) && !cuMemFree(q));
	WANT(!cuMemGetInfo(&unused, &total) && unused == MIB);
	WANT(!cuMemAlloc(&p, MIB) && !cuMemFree(p));
	WANT(!cuCtxDestroy(context));
}

static void pointers(void)
{
	CUcontext context, of = NULL;
	CUdeviceptr p = 0, start = 0;
	CUmemorytype type = 0;
	unsigned managed = 9, sync = 9, rdma = 9;
	int ordinal = 9, local = 0;
	void *host = NULL;
	size_t size = 0;
	CUpointer_attribute names[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
		CU_POINTER_ATTRIBUTE_CONTEXT, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
		CU_POINTER_ATTRIBUTE_RANGE_SIZE};
	void *values[] = {&type, &managed, &of, &ordinal, &start, &size};
	WANT(!cuCtxCreate(&context, 0, 1) && !cuMemAlloc(&p, 4096));
	WANT(!cuPointerGetAttributes(6, names, values, p + 5));
	WANT(type == CU_MEMORYTYPE_DEVICE && !managed && of == context && ordinal == 1 && start == p && size == 64 << 10);
	WANT(!cuPointerGetAttributes(6, names, values, (uintptr_t)&local));
	WANT(!type && !managed && !of && ordinal == -2 && !start && !size);
	WANT(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (uintptr_t)&local) == CUDA_ERROR_INVALID_VALUE);
	WANT(!cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p) && type == CU_MEMORYTYPE_DEVICE);
	WANT(!cuPointerGetAttribute(&rdma, CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, p) && rdma == 1);
	WANT(cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, p) == CUDA_ERROR_INVALID_VALUE);
	WANT(cuPointerGetAttribute(&host, 99, p) == CUDA_ERROR_INVALID_VALUE);
	WANT(!cuPointerGetAttribute(&sync, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p) && !sync);
	sync = 1;
	WANT(!cuPointerSetAttribute(&sync, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p));
	sync = 0;
	WANT(!cuPointerGetAttribute(&sync, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p) && sync == 1);
	WANT(!cuMemAllocHost(&host, 1) && !cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (uintptr_t)host));
	WANT(type == CU_MEMORYTYPE_HOST && !cuMemFreeHost(host));
	WANT(!cuCtxDestroy(context));
}

static void called(void *arg) { ++*(int *)arg; }

static void called_by_stream(CUstream stream, CUresult status, void *arg)
{
	WANT(stream && !status);
	called(arg);
}

static void streams(void)
{
	CUcontext context;
	CUstream stream;
	CUevent from, to;
	float ms = -1;
	int calls = 0;
	WANT(cuStreamCreate(&stream, 0) == CUDA_ERROR_INVALID_CONTEXT);
	WANT(!cuCtxCreate(&context, 0, 0) && !cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	WANT(!cuEventCreate(&from, 0) && !cuEventCreate(&to, 0));
	WANT(cuEventElapsedTime(&ms, from, to) == CUDA_ERROR_INVALID_HANDLE); // not recorded
	WANT(!cuEventRecord(from, stream) && !cuStreamWaitEvent(stream, from, 0) && !cuEventRecord(to, NULL));
	WANT(!cuEventQuery(to) && !cuEventSynchronize(to) && !cuEventElapsedTime(&ms, from, to) && ms >= 0);
	WANT(!cuStreamAddCallback(stream, called_by_stream, &calls, 0) && !cuLaunchHostFunc(stream, called, &calls));
	WANT(calls == 2 && !cuStreamSynchronize(stream) && !cuStreamQuery(NULL));
	WANT(!cuEventDestroy(from) && !cuEventDestroy(to) && !cuStreamDestroy(stream) && !cuCtxDestroy(context));
}

static void names(void)
{
	const char *text = NULL;
	CUresult (*function)(int *) = NULL, (*alloc)(CUdeviceptr *, size_t) = NULL, (*launch)(void) = NULL;
	CUdriverProcAddressQueryResult result = 9;
	int version = 0;
	WANT(!cuGetErrorName(CUDA_ERROR_NO_DEVICE, &text) && !strcmp(text, "CUDA_ERROR_NO_DEVICE"));
	WANT(!cuGetErrorString(CUDA_ERROR_NOT_SUPPORTED, &text) && strstr(text, "rackless emulated GPU"));
	WANT(cuGetErrorName(12345, &text) == CUDA_ERROR_INVALID_VALUE && !text);
	WANT(!cuGetProcAddress("cuDriverGetVersion", (void **)&function, 12000, 0, &result) && !result);
	WANT(function && !function(&version) && version == CUDA_VERSION);
	WANT(!cuGetProcAddress("cuMemAlloc", (void **)&alloc, 12000, 0, NULL) && alloc == cuMemAlloc_v2);
	WANT(!cuGetProcAddress("cuNone", (void **)&function, 12000, 0, &result) && !function && result == 1);
	WANT(cuGetProcAddress("printf", (void **)&function, 12000, 0, NULL) == CUDA_ERROR_NOT_FOUND);
	WANT(!cuGetProcAddress("cuLaunchKernel", (void **)&launch, 12000, 0, NULL));
	WANT(launch && launch() == CUDA_ERROR_NOT_SUPPORTED && launch() == CUDA_ERROR_NOT_SUPPORTED);
}

static void *churn(void *arg)
{
	CUcontext context = arg;
	WANT(!cuCtxSetCurrent(context));
	for (int i = 0; i < 200; i++) {
		CUdeviceptr p = 0;
		unsigned char back[512];
		WANT(!cuMemAlloc(&p, 64 << 10) && !cuMemsetD8(p, (unsigned char)i, sizeof back));
		WANT(!cuMemcpyDtoH(back, p, sizeof back) && back[0] == (unsigned char)i && back[511] == (unsigned char)i);
		WANT(!cuMemFree(p));
	}
	return NULL;
}

static void threads(void)
{
	CUcontext context;
	pthread_t thread[8];
	WANT(!cuCtxCreate(&context, 0, 0));
	for (int i = 0; i < 8; i++)
		pthread_create(&thread[i], NULL, churn, context);
	for (int i = 0; i < 8; i++)
		pthread_join(thread[i], NULL);
	WANT(!cuCtxDestroy(context));
}

int main(void)
{
	const char *protect = getenv("RACKLESS_GPU_PROTECT");
	devices();
	contexts();
	memory(protect && !strcmp(protect, "1"));
	pointers();
	streams();
	names();
	threads();
	return failures ? 1 : 0;
}
