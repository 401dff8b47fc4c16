// NVML's view of the machine around the GPUs.
#define _GNU_SOURCE
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "nvml.h"

#define WORD (8 * sizeof(unsigned long))

// mask sets the bits of a list such as 0-3,8-11.
static void mask(const char *list, unsigned long *words, unsigned count)
{
	memset(words, 0, count * sizeof *words);
	while (*list) {
		char *end;
		unsigned long from = strtoul(list, &end, 10), to = from;
		if (end == list)
			return;
		if (*end == '-')
			to = strtoul(end + 1, &end, 10);
		for (unsigned long i = from; i <= to && i < count * WORD; i++)
			words[i / WORD] |= 1ul << i % WORD;
		list = *end == ',' ? end + 1 : end;
		if (list == end)
			return;
	}
}

EXPORT nvmlReturn_t nvmlDeviceGetCpuAffinity(nvmlDevice_t device, unsigned count, unsigned long *words);
nvmlReturn_t nvmlDeviceGetCpuAffinity(nvmlDevice_t device, unsigned count, unsigned long *words)
{
	char list[512];
	nvmlReturn_t r = nvml_check(device, words);
	if (r || !count)
		return r ? r : INVALID_ARGUMENT;
	if (!pci_text(device->address, "local_cpulist", list, sizeof list) || !*list)
		return NOT_SUPPORTED;
	mask(list, words, count);
	return SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetCpuAffinityWithinScope(nvmlDevice_t device, unsigned count, unsigned long *words,
	unsigned scope);
nvmlReturn_t nvmlDeviceGetCpuAffinityWithinScope(nvmlDevice_t device, unsigned count, unsigned long *words,
	unsigned scope)
{
	(void)scope; // a node of the lab has one NUMA node a socket
	return nvmlDeviceGetCpuAffinity(device, count, words);
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryAffinity(nvmlDevice_t device, unsigned count, unsigned long *words,
	unsigned scope);
nvmlReturn_t nvmlDeviceGetMemoryAffinity(nvmlDevice_t device, unsigned count, unsigned long *words, unsigned scope)
{
	(void)scope;
	nvmlReturn_t r = nvml_check(device, words);
	if (r || !count)
		return r ? r : INVALID_ARGUMENT;
	if (device->numa < 0)
		return NOT_SUPPORTED;
	memset(words, 0, count * sizeof *words);
	if ((unsigned)device->numa < count * WORD)
		words[(unsigned)device->numa / WORD] |= 1ul << (unsigned)device->numa % WORD;
	return SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t a, nvmlDevice_t b, int *level);
nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t a, nvmlDevice_t b, int *level)
{
	nvmlReturn_t r = nvml_check(a, level);
	if (!r)
		r = nvml_check(b, level);
	if (r)
		return r;
	*level = (int)pci_between(a->address, b->address);
	return SUCCESS;
}

// nvmlDeviceGetTopologyNearestGpus lists the other GPUs at a level, up to count, and sets count to how many there are.
EXPORT nvmlReturn_t nvmlDeviceGetTopologyNearestGpus(nvmlDevice_t device, int level, unsigned *count,
	nvmlDevice_t *list);
nvmlReturn_t nvmlDeviceGetTopologyNearestGpus(nvmlDevice_t device, int level, unsigned *count, nvmlDevice_t *list)
{
	unsigned found = 0;
	const struct gpu *all;
	nvmlReturn_t r = nvml_check(device, count);
	if (r || (*count && !list))
		return r ? r : INVALID_ARGUMENT;
	int n = gpus(&all);
	for (int i = 0; i < n; i++) {
		if (device == &all[i] || (int)pci_between(device->address, all[i].address) != level)
			continue;
		if (found < *count)
			list[found] = &all[i];
		found++;
	}
	*count = found;
	return SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t a, nvmlDevice_t b, int capability, int *status);
nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t a, nvmlDevice_t b, int capability, int *status)
{
	enum { GPU_NOT_SUPPORTED = 2 };
	(void)capability;
	nvmlReturn_t r = nvml_check(a, status);
	if (!r)
		r = nvml_check(b, status);
	if (r)
		return r;
	*status = GPU_NOT_SUPPORTED;
	return SUCCESS;
}

// Values that an emulated GPU does not have. The functions look at no argument.
#define REFUSE(name) \
	EXPORT nvmlReturn_t name(void); \
	nvmlReturn_t name(void) { return NOT_SUPPORTED; }

REFUSE(nvmlDeviceGetApplicationsClock)
REFUSE(nvmlDeviceSetApplicationsClocks)
REFUSE(nvmlDeviceResetApplicationsClocks)
REFUSE(nvmlDeviceGetSupportedGraphicsClocks)
REFUSE(nvmlDeviceGetSupportedMemoryClocks)
REFUSE(nvmlDeviceGetClockInfo)
REFUSE(nvmlDeviceGetMaxClockInfo)
REFUSE(nvmlDeviceGetAttributes_v2)
REFUSE(nvmlDeviceGetGpuInstanceId)
REFUSE(nvmlDeviceGetComputeInstanceId)
REFUSE(nvmlDeviceGetMigDeviceHandleByIndex)
REFUSE(nvmlDeviceGetProcessUtilization)
REFUSE(nvmlDeviceGetUtilizationRates)
REFUSE(nvmlDeviceGetTemperature)
REFUSE(nvmlDeviceGetPowerUsage)
REFUSE(nvmlDeviceGetPowerManagementLimit)
REFUSE(nvmlDeviceGetFanSpeed)
REFUSE(nvmlDeviceGetPerformanceState)
REFUSE(nvmlDeviceGetEccMode)
REFUSE(nvmlDeviceGetSerial)
REFUSE(nvmlDeviceGetNumaNodeId)
REFUSE(nvmlDeviceGetFieldValues)
REFUSE(nvmlDeviceGetGpuFabricInfo)
REFUSE(nvmlDeviceGetGpuFabricInfoV)
REFUSE(nvmlDeviceGetNvLinkState)
REFUSE(nvmlDeviceGetNvLinkVersion)
REFUSE(nvmlDeviceGetNvLinkCapability)
REFUSE(nvmlDeviceGetNvLinkRemotePciInfo_v2)
REFUSE(nvmlDeviceGetNvLinkRemoteDeviceType)
REFUSE(nvmlDeviceGetNvLinkRemotePciInfo)
REFUSE(nvmlDeviceGetNvLinkErrorCounter)
REFUSE(nvmlDeviceGetEncoderUtilization)
REFUSE(nvmlDeviceGetDecoderUtilization)
REFUSE(nvmlDeviceGetSamples)
REFUSE(nvmlDeviceGetPcieThroughput)
REFUSE(nvmlDeviceGetPcieReplayCounter)
REFUSE(nvmlDeviceGetTemperatureThreshold)
REFUSE(nvmlDeviceGetNumFans)
REFUSE(nvmlDeviceGetPowerManagementMode)
REFUSE(nvmlDeviceGetPowerManagementDefaultLimit)
REFUSE(nvmlDeviceGetPowerManagementLimitConstraints)
REFUSE(nvmlDeviceGetEnforcedPowerLimit)
REFUSE(nvmlDeviceGetTotalEnergyConsumption)
REFUSE(nvmlDeviceGetPowerState)
REFUSE(nvmlDeviceGetCurrentClocksEventReasons)
REFUSE(nvmlDeviceGetCurrentClocksThrottleReasons)
REFUSE(nvmlDeviceGetSupportedClocksThrottleReasons)
REFUSE(nvmlDeviceGetPersistenceMode)
REFUSE(nvmlDeviceGetDisplayActive)
REFUSE(nvmlDeviceGetDisplayMode)
REFUSE(nvmlDeviceGetBrand)
REFUSE(nvmlDeviceGetArchitecture)
REFUSE(nvmlDeviceGetNumGpuCores)
REFUSE(nvmlDeviceGetMemoryBusWidth)
REFUSE(nvmlDeviceGetBoardId)
REFUSE(nvmlDeviceGetMultiGpuBoard)
REFUSE(nvmlDeviceGetVbiosVersion)
REFUSE(nvmlDeviceGetVirtualizationMode)
REFUSE(nvmlDeviceGetTotalEccErrors)
REFUSE(nvmlDeviceGetMemoryErrorCounter)
REFUSE(nvmlDeviceGetRetiredPages)
REFUSE(nvmlDeviceGetRetiredPagesPendingStatus)
REFUSE(nvmlDeviceGetRemappedRows)
REFUSE(nvmlDeviceGetSupportedEventTypes)
REFUSE(nvmlDeviceRegisterEvents)
REFUSE(nvmlEventSetCreate)
REFUSE(nvmlEventSetWait_v2)
REFUSE(nvmlEventSetFree)
REFUSE(nvmlSystemGetProcessName)
