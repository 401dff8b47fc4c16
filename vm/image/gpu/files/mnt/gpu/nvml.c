// NVML: what is known of the GPUs, and that the rest is not.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nvml.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int users;

static bool ready(void)
{
	pthread_mutex_lock(&lock);
	bool ok = users > 0;
	pthread_mutex_unlock(&lock);
	return ok;
}

nvmlReturn_t nvml_check(nvmlDevice_t device, const void *answer)
{
	const struct gpu *all;
	if (!ready())
		return UNINITIALIZED;
	int n = gpus(&all);
	for (int i = 0; i < n; i++)
		if (device == &all[i])
			return !answer ? INVALID_ARGUMENT : gpu_lost(device) ? GPU_IS_LOST : SUCCESS;
	return INVALID_ARGUMENT;
}

static nvmlReturn_t text(char *to, unsigned size, const char *from)
{
	if (strlen(from) >= size)
		return INSUFFICIENT_SIZE;
	strcpy(to, from);
	return SUCCESS;
}

EXPORT nvmlReturn_t nvmlInitWithFlags(unsigned flags);
nvmlReturn_t nvmlInitWithFlags(unsigned flags)
{
	enum { NO_GPUS = 1 };
	if (!gpus(NULL) && !(flags & NO_GPUS))
		return DRIVER_NOT_LOADED;
	pthread_mutex_lock(&lock);
	users++;
	pthread_mutex_unlock(&lock);
	return SUCCESS;
}

EXPORT nvmlReturn_t nvmlInit_v2(void);
nvmlReturn_t nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
EXPORT nvmlReturn_t nvmlInit(void);
nvmlReturn_t nvmlInit(void) { return nvmlInitWithFlags(0); }

EXPORT nvmlReturn_t nvmlShutdown(void);
nvmlReturn_t nvmlShutdown(void)
{
	pthread_mutex_lock(&lock);
	bool ok = users > 0;
	users -= ok;
	pthread_mutex_unlock(&lock);
	return ok ? SUCCESS : UNINITIALIZED;
}

EXPORT const char *nvmlErrorString(nvmlReturn_t result);
const char *nvmlErrorString(nvmlReturn_t result)
{
	switch (result) {
	case SUCCESS: return "Success";
	case UNINITIALIZED: return "Uninitialized";
	case INVALID_ARGUMENT: return "Invalid Argument";
	case NOT_SUPPORTED: return "Not Supported";
	case NOT_FOUND: return "Not Found";
	case INSUFFICIENT_SIZE: return "Insufficient Size";
	case DRIVER_NOT_LOADED: return "Driver Not Loaded";
	case GPU_IS_LOST: return "GPU is lost";
	}
	return "Unknown Error";
}

EXPORT nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned size);
nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned size)
{
	return !ready() ? UNINITIALIZED : version ? text(version, size, GPU_NAME) : INVALID_ARGUMENT;
}

EXPORT nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned size);
nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned size)
{
	return version ? text(version, size, "12 (" GPU_NAME ")") : INVALID_ARGUMENT;
}

EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version);
nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version)
{
	if (!version)
		return INVALID_ARGUMENT;
	*version = GPU_API_VERSION;
	return SUCCESS;
}

EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version);
nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version) { return nvmlSystemGetCudaDriverVersion_v2(version); }

EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count);
nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count)
{
	if (!ready() || !count)
		return ready() ? INVALID_ARGUMENT : UNINITIALIZED;
	*count = (unsigned)gpus(NULL);
	return SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetCount(unsigned *count);
nvmlReturn_t nvmlDeviceGetCount(unsigned *count) { return nvmlDeviceGetCount_v2(count); }

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device);
nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device)
{
	const struct gpu *all;
	if (!ready())
		return UNINITIALIZED;
	if (!device || index >= (unsigned)gpus(&all))
		return INVALID_ARGUMENT;
	*device = &all[index];
	return gpu_lost(*device) ? GPU_IS_LOST : SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned index, nvmlDevice_t *device);
nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned index, nvmlDevice_t *device)
{
	return nvmlDeviceGetHandleByIndex_v2(index, device);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *address, nvmlDevice_t *device);
nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *address, nvmlDevice_t *device)
{
	if (!ready() || !address)
		return ready() ? INVALID_ARGUMENT : UNINITIALIZED;
	int i = gpu_by_address(address);
	return i < 0 ? NOT_FOUND : nvmlDeviceGetHandleByIndex_v2((unsigned)i, device);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *address, nvmlDevice_t *device);
nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *address, nvmlDevice_t *device)
{
	return nvmlDeviceGetHandleByPciBusId_v2(address, device);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device);
nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
	const struct gpu *all;
	if (!ready() || !uuid)
		return ready() ? INVALID_ARGUMENT : UNINITIALIZED;
	int n = gpus(&all);
	for (int i = 0; i < n; i++) {
		char have[GPU_UUID_TEXT];
		gpu_uuid_text(&all[i], have);
		if (!strcmp(have, uuid))
			return nvmlDeviceGetHandleByIndex_v2((unsigned)i, device);
	}
	return NOT_FOUND;
}

EXPORT nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned *index);
nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned *index)
{
	const struct gpu *all;
	nvmlReturn_t r = nvml_check(device, index);
	gpus(&all);
	if (!r)
		*index = (unsigned)(device - all);
	return r;
}

EXPORT nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned size);
nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned size)
{
	nvmlReturn_t r = nvml_check(device, name);
	return r ? r : text(name, size, device->name);
}

EXPORT nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned size);
nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned size)
{
	char have[GPU_UUID_TEXT];
	nvmlReturn_t r = nvml_check(device, uuid);
	if (r)
		return r;
	gpu_uuid_text(device, have);
	return text(uuid, size, have);
}

EXPORT nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned *minor);
nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned *minor)
{
	nvmlReturn_t r = nvml_check(device, minor);
	if (!r)
		*minor = device->minor;
	return r;
}

struct pci_info {
	char legacy[16];
	unsigned domain, bus, device, ids, subsystem;
	char address[32];
};
_Static_assert(sizeof(struct pci_info) == 68, "the size of nvmlPciInfo_t");

EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, struct pci_info *info);
nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, struct pci_info *info)
{
	nvmlReturn_t r = nvml_check(device, info);
	if (r)
		return r;
	memset(info, 0, sizeof *info);
	info->domain = device->domain;
	info->bus = device->bus;
	info->device = device->device;
	info->ids = device->ids;
	info->subsystem = device->subsystem;
	snprintf(info->legacy, sizeof info->legacy, "%04X:%02X:%02X.%X", device->domain & 0xffffu, device->bus & 0xffu,
		device->device & 0x1fu, device->function & 7u);
	snprintf(info->address, sizeof info->address, "%08X:%02X:%02X.%X", device->domain, device->bus & 0xffu,
		device->device & 0x1fu, device->function & 7u);
	return SUCCESS;
}

// link reads a file of the PCIe link in sysfs.
static nvmlReturn_t link(nvmlDevice_t device, const char *file, double *value)
{
	char have[64], *end;
	nvmlReturn_t r = nvml_check(device, value);
	if (r)
		return r;
	*value = pci_text(device->address, file, have, sizeof have) ? strtod(have, &end) : 0;
	return *value > 0 ? SUCCESS : NOT_SUPPORTED;
}

// generation returns the PCIe generation of a speed in GT/s.
static unsigned generation(double speed)
{
	unsigned g = 1;
	for (double limit = 3; speed > limit && g < 7; limit *= 2)
		g++;
	return g;
}

#define PCIE_GENERATION(name, file) \
	EXPORT nvmlReturn_t name(nvmlDevice_t device, unsigned *answer); \
	nvmlReturn_t name(nvmlDevice_t device, unsigned *answer) \
	{ \
		double speed; \
		nvmlReturn_t r = answer ? link(device, file, &speed) : INVALID_ARGUMENT; \
		if (!r) \
			*answer = generation(speed); \
		return r; \
	}

#define PCIE_WIDTH(name, file) \
	EXPORT nvmlReturn_t name(nvmlDevice_t device, unsigned *answer); \
	nvmlReturn_t name(nvmlDevice_t device, unsigned *answer) \
	{ \
		double lanes; \
		nvmlReturn_t r = answer ? link(device, file, &lanes) : INVALID_ARGUMENT; \
		if (!r) \
			*answer = (unsigned)lanes; \
		return r; \
	}

PCIE_GENERATION(nvmlDeviceGetCurrPcieLinkGeneration, "current_link_speed")
PCIE_GENERATION(nvmlDeviceGetMaxPcieLinkGeneration, "max_link_speed")
PCIE_GENERATION(nvmlDeviceGetGpuMaxPcieLinkGeneration, "max_link_speed")
PCIE_WIDTH(nvmlDeviceGetCurrPcieLinkWidth, "current_link_width")
PCIE_WIDTH(nvmlDeviceGetMaxPcieLinkWidth, "max_link_width")

struct memory_info {
	unsigned long long total, unused, used;
};

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, struct memory_info *info);
nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, struct memory_info *info)
{
	nvmlReturn_t r = nvml_check(device, info);
	if (!r) {
		uint64_t used = gpu_used(device);
		*info = (struct memory_info){.total = device->memory, .unused = device->memory - used, .used = used};
	}
	return r;
}

struct memory_info_v2 {
	unsigned version;
	unsigned long long total, reserved, unused, used;
};

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, struct memory_info_v2 *info);
nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, struct memory_info_v2 *info)
{
	struct memory_info plain;
	nvmlReturn_t r = info ? nvmlDeviceGetMemoryInfo(device, &plain) : INVALID_ARGUMENT;
	if (!r) {
		info->total = plain.total;
		info->reserved = 0;
		info->unused = plain.unused;
		info->used = plain.used;
	}
	return r;
}

// nvmlDeviceGetBAR1MemoryInfo: all memory of the GPU is behind its BAR.
EXPORT nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, struct memory_info *info);
nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, struct memory_info *info)
{
	return nvmlDeviceGetMemoryInfo(device, info);
}

struct process_info {
	unsigned pid;
	unsigned long long used;
	unsigned instance, compute_instance; // of MIG
};

EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *count,
	struct process_info *list);
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *count, struct process_info *list)
{
	struct gpu_user have[256];
	nvmlReturn_t r = nvml_check(device, count);
	if (r)
		return r;
	unsigned n = (unsigned)gpu_users(device, have, 256), room = *count;
	*count = n;
	if (n > room || n > 256)
		return INSUFFICIENT_SIZE;
	if (n && !list)
		return INVALID_ARGUMENT;
	for (unsigned i = 0; i < n; i++)
		list[i] = (struct process_info){.pid = (unsigned)have[i].pid, .used = have[i].bytes, .instance = -1u,
			.compute_instance = -1u};
	return SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned *count,
	struct process_info *list);
nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned *count, struct process_info *list)
{
	(void)list;
	nvmlReturn_t r = nvml_check(device, count);
	if (!r)
		*count = 0;
	return r;
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, int *mode);
nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, int *mode)
{
	nvmlReturn_t r = nvml_check(device, mode);
	if (!r)
		*mode = 0;
	return r;
}

EXPORT nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor);
nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor)
{
	nvmlReturn_t r = nvml_check(device, major);
	if (r || !minor)
		return r ? r : INVALID_ARGUMENT;
	*major = GPU_CAPABILITY_MAJOR;
	*minor = GPU_CAPABILITY_MINOR;
	return SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned *current, unsigned *pending);
nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned *current, unsigned *pending)
{
	nvmlReturn_t r = nvml_check(device, current);
	if (r || !pending)
		return r ? r : INVALID_ARGUMENT;
	*current = *pending = 0;
	return SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned *count);
nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned *count)
{
	nvmlReturn_t r = nvml_check(device, count);
	if (!r)
		*count = 0;
	return r;
}
