// Memory: each allocation on a GPU is a blob of its own. Its addresses are those of the blob in this process, or with
// RACKLESS_GPU_PROTECT=1 addresses that the CPU cannot reach, as those of a real GPU.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "driver.h"
#include "node.h"

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static struct memory *known; // in the order of their addresses, none of which overlap
static size_t nknown, room;

// place returns the index of the first memory that ends after an address. It is called with the lock.
static size_t place(uintptr_t at)
{
	size_t low = 0, high = nknown;
	while (low < high) {
		size_t middle = (low + high) / 2;
		if (known[middle].start + known[middle].size > at)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

static CUresult add(struct memory *m)
{
	static unsigned long long last;
	CUresult r = CUDA_SUCCESS;
	pthread_rwlock_wrlock(&lock);
	size_t i = place(m->start);
	if (i < nknown && known[i].start < m->start + m->size)
		r = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED; // the kernel gives out no address twice
	else if (nknown == room) {
		size_t more = room ? 2 * room : 64;
		struct memory *bigger = realloc(known, more * sizeof *known);
		if (bigger) {
			known = bigger;
			room = more;
		} else
			r = CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (!r) {
		m->id = ++last;
		memmove(known + i + 1, known + i, (nknown - i) * sizeof *known);
		known[i] = *m;
		nknown++;
	}
	pthread_rwlock_unlock(&lock);
	return r;
}

// take removes the memory of a kind that starts at an address, and copies it to m.
static bool take(uintptr_t start, enum memory_kind kind, struct memory *m)
{
	pthread_rwlock_wrlock(&lock);
	size_t i = place(start);
	bool ok = i < nknown && known[i].start == start && known[i].kind == kind;
	if (ok) {
		*m = known[i];
		memmove(known + i, known + i + 1, (--nknown - i) * sizeof *known);
	}
	pthread_rwlock_unlock(&lock);
	return ok;
}

bool memory_find(CUdeviceptr pointer, struct memory *m)
{
	pthread_rwlock_rdlock(&lock);
	size_t i = place((uintptr_t)pointer);
	bool ok = i < nknown && known[i].start <= pointer;
	if (ok)
		*m = known[i];
	pthread_rwlock_unlock(&lock);
	return ok;
}

void memory_set_sync(CUdeviceptr pointer, unsigned sync)
{
	pthread_rwlock_wrlock(&lock);
	size_t i = place((uintptr_t)pointer);
	if (i < nknown && known[i].start <= pointer)
		known[i].sync = sync;
	pthread_rwlock_unlock(&lock);
}

static bool protects(void)
{
	const char *text = getenv("RACKLESS_GPU_PROTECT");
	return text && *text && strcmp(text, "0");
}

// reserve returns addresses without access, aligned to GRAIN, or MAP_FAILED.
static char *reserve(size_t size)
{
	char *at = mmap(NULL, size + GRAIN, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (at == MAP_FAILED)
		return at;
	size_t before = -(uintptr_t)at & (GRAIN - 1);
	if (before)
		munmap(at, before);
	if (GRAIN - before)
		munmap(at + before + size, GRAIN - before);
	return at + before;
}

// map gives a blob its addresses.
static bool map(struct memory *m, int node)
{
	char *at = reserve(m->size);
	if (at == MAP_FAILED)
		return false;
	m->start = (uintptr_t)at;
	m->cpu = node_map(node, m->handle, m->size, protects() ? NULL : at);
	if (m->cpu != MAP_FAILED)
		return true;
	munmap(at, m->size);
	return false;
}

static void unmap(const struct memory *m)
{
	if ((uintptr_t)m->cpu != m->start)
		munmap(m->cpu, m->size);
	munmap((void *)m->start, m->size);
	node_free(device_node(m->device), m->handle);
}

// current returns the error of a call that needs a current context.
static CUresult current(CUcontext *context)
{
	if (device_count() < 0)
		return CUDA_ERROR_NOT_INITIALIZED;
	*context = context_current();
	return *context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t size)
{
	struct memory m = {.kind = DEVICE_MEMORY};
	CUresult r = current(&m.context);
	if (r)
		return r;
	if (!pointer || !size)
		return CUDA_ERROR_INVALID_VALUE;
	m.device = context_device(m.context);
	if (size > device_at(m.device)->memory)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (gpu_lost(device_at(m.device))) // the kernel would wait for its answer
		return CUDA_ERROR_UNKNOWN;
	m.size = (size + GRAIN - 1) & ~(GRAIN - 1);
	int node = device_node(m.device);
	if (node_alloc(node, m.size, &m.handle))
		return errno == ENOSPC || errno == ENOMEM ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_OPERATING_SYSTEM;
	if (!map(&m, node)) {
		r = errno == ENOSPC || errno == ENOMEM ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_MAP_FAILED;
		node_free(node, m.handle);
		return r;
	}
	r = add(&m);
	if (r)
		unmap(&m);
	else
		*pointer = m.start;
	return r;
}

EXPORT CUresult cuMemFree_v2(CUdeviceptr pointer)
{
	struct memory m;
	if (!pointer)
		return CUDA_SUCCESS;
	if (!take((uintptr_t)pointer, DEVICE_MEMORY, &m))
		return CUDA_ERROR_INVALID_VALUE;
	unmap(&m);
	return CUDA_SUCCESS;
}

void memory_release(CUcontext context)
{
	for (;;) {
		uintptr_t start = 0;
		pthread_rwlock_rdlock(&lock);
		for (size_t i = 0; i < nknown && !start; i++)
			if (known[i].kind == DEVICE_MEMORY && known[i].context == context)
				start = known[i].start;
		pthread_rwlock_unlock(&lock);
		if (!start)
			return;
		cuMemFree_v2(start);
	}
}

EXPORT CUresult cuMemGetInfo_v2(size_t *unused, size_t *total)
{
	CUcontext c;
	CUresult r = current(&c);
	if (r)
		return r;
	if (!unused || !total)
		return CUDA_ERROR_INVALID_VALUE;
	const struct gpu *g = device_at(context_device(c));
	*total = g->memory;
	*unused = g->memory - gpu_used(g);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemHostAlloc(void **pointer, size_t size, unsigned flags)
{
	(void)flags; // all host memory is portable and mapped
	struct memory m = {.kind = HOST_MEMORY};
	CUresult r = current(&m.context);
	if (r)
		return r;
	if (!pointer || !size)
		return CUDA_ERROR_INVALID_VALUE;
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	m.device = context_device(m.context);
	m.size = (size + page - 1) & ~(page - 1);
	m.cpu = mmap(NULL, m.size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (m.cpu == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	m.start = (uintptr_t)m.cpu;
	r = add(&m);
	if (r)
		munmap(m.cpu, m.size);
	else
		*pointer = m.cpu;
	return r;
}

EXPORT CUresult cuMemAllocHost_v2(void **pointer, size_t size) { return cuMemHostAlloc(pointer, size, 0); }

EXPORT CUresult cuMemFreeHost(void *pointer)
{
	struct memory m;
	if (!take((uintptr_t)pointer, HOST_MEMORY, &m))
		return CUDA_ERROR_INVALID_VALUE;
	munmap(m.cpu, m.size);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemHostRegister_v2(void *pointer, size_t size, unsigned flags)
{
	(void)flags;
	struct memory m = {.kind = REGISTERED_MEMORY, .start = (uintptr_t)pointer, .size = size, .cpu = pointer};
	CUresult r = current(&m.context);
	if (r)
		return r;
	if (!pointer || !size)
		return CUDA_ERROR_INVALID_VALUE;
	m.device = context_device(m.context);
	return add(&m);
}

EXPORT CUresult cuMemHostUnregister(void *pointer)
{
	struct memory m;
	return take((uintptr_t)pointer, REGISTERED_MEMORY, &m) ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

EXPORT CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *device, void *host, unsigned flags)
{
	struct memory m;
	if (!device || flags || !memory_find((uintptr_t)host, &m) || m.kind == DEVICE_MEMORY)
		return CUDA_ERROR_INVALID_VALUE;
	*device = (uintptr_t)host;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemGetAddressRange_v2(CUdeviceptr *start, size_t *size, CUdeviceptr pointer)
{
	struct memory m;
	if (!memory_find(pointer, &m))
		return CUDA_ERROR_NOT_FOUND;
	if (start)
		*start = m.start;
	if (size)
		*size = m.size;
	return CUDA_SUCCESS;
}

// cuMemGetHandleForAddressRange returns a dma-buf that begins at pointer. The driver exports whole blobs, so this must
// be the beginning of an allocation; the dma-buf may be longer than asked.
EXPORT CUresult cuMemGetHandleForAddressRange(void *handle, CUdeviceptr pointer, size_t size, CUmemRangeHandleType type,
	unsigned long long flags)
{
	struct memory m;
	if (!handle || !size || type != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD ||
		flags & ~(unsigned long long)CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE)
		return CUDA_ERROR_INVALID_VALUE;
	if (!memory_find(pointer, &m) || m.kind != DEVICE_MEMORY || size > m.start + m.size - pointer)
		return CUDA_ERROR_INVALID_VALUE;
	if (pointer != m.start) {
		static bool said;
		say_once(&said, "a dma-buf begins where its allocation does, so the export of a part is refused; UCX asks for "
			"some and needs none, as it registers whole allocations");
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	int fd = node_export(device_node(m.device), m.handle);
	if (fd < 0)
		return CUDA_ERROR_OPERATING_SYSTEM;
	memcpy(handle, &fd, sizeof fd);
	return CUDA_SUCCESS;
}
