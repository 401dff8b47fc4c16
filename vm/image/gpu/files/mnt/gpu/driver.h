// What the files of libcuda share.
#ifndef RACKLESS_DRIVER_H
#define RACKLESS_DRIVER_H

#include <stdbool.h>

#include "cuda.h"
#include "gpu.h"

// EXPORT marks functions for programs; all others stay in the library.
#define EXPORT __attribute__((visibility("default")))

#define GRAIN ((size_t)64 << 10) // of allocations, as of the pages of GPUs in BARs

// A memory is a range of addresses that this library knows.
enum memory_kind { DEVICE_MEMORY, HOST_MEMORY, REGISTERED_MEMORY };
struct memory {
	uintptr_t start; // as callers know it
	size_t size;     // of device memory, a multiple of GRAIN
	enum memory_kind kind;
	char *cpu; // where this library reads and writes it
	CUcontext context;
	CUdevice device;
	uint32_t handle; // of device memory, in its render node
	unsigned long long id;
	unsigned sync; // SYNC_MEMOPS, which is always so
};

// device_at returns the GPU with an ordinal of this process, or NULL.
const struct gpu *device_at(CUdevice device);
int device_count(void); // -1 before cuInit
int device_of(const struct gpu *g);
int device_node(CUdevice device); // its open render node, or -1

CUcontext context_current(void); // NULL if there is none
CUdevice context_device(CUcontext context);

// memory_find copies the memory that holds an address. The copy stays good until it is freed.
bool memory_find(CUdeviceptr pointer, struct memory *m);
void memory_set_sync(CUdeviceptr pointer, unsigned sync);
void memory_release(CUcontext context); // frees the device memory of a context

// say_once prints a message of the library, the first time that it is called with this flag.
void say_once(bool *said, const char *message);

#endif
