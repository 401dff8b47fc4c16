// The part of CUDA's runtime API that libcudart.so.12 has. It is for programs that exist: none is compiled with it.
#ifndef RACKLESS_RUNTIME_H
#define RACKLESS_RUNTIME_H

#include "cuda.h"

#define EXPORT __attribute__((visibility("default")))

// Errors of the runtime have the numbers of the driver's, and these are the ones beside them.
typedef int cudaError_t;
enum {
	cudaSuccess = 0,
	cudaErrorInvalidValue = 1,
	cudaErrorMemoryAllocation = 2,
	cudaErrorInitializationError = 3,
	cudaErrorNotSupported = 801,
};

enum memory_type { MEMORY_UNREGISTERED = 0, MEMORY_HOST = 1, MEMORY_DEVICE = 2 };

struct pointer_attributes {
	int type, device;
	void *device_pointer, *host_pointer;
};

// device_properties has the layout of cudaDeviceProp of version 12, with names for what is not zero.
struct device_properties {
	char name[256];
	char uuid[16];
	char luid[8];
	unsigned luid_mask;
	size_t memory;
	size_t shared_per_block;
	int registers_per_block, warp_size;
	size_t pitch;
	int threads_per_block, thread_dimensions[3], grid[3], clock;
	size_t constant;
	int major, minor;
	size_t texture_alignment, texture_pitch_alignment;
	int overlap, processors, timeout, integrated, maps_host, compute_mode;
	int textures[40]; // limits of textures and surfaces
	size_t surface_alignment;
	int concurrent_kernels, ecc, bus, device, domain, tcc, async_engines, unified_addressing;
	int rest[30], registers_host, between[4];
	int gpudirect, gpudirect_flush, gpudirect_ordering;
	int last[68];
};
_Static_assert(sizeof(struct device_properties) == 1032, "the size that programs reserve");
_Static_assert(offsetof(struct device_properties, bus) == 584, "the place of pciBusID");
_Static_assert(offsetof(struct device_properties, gpudirect) == 748, "the place of gpuDirectRDMASupported");

// runtime_ready gives the calling thread the primary context of its device, if it has no context.
cudaError_t runtime_ready(void);
int runtime_device(void); // of the calling thread
cudaError_t runtime_end(CUresult result); // notes an error as the last one of the thread, and returns the result

#endif
