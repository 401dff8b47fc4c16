// Checks of libnvidia-ml on the machine of driver.c, whose second GPU is alone in its NUMA node.
#include <stdio.h>
#include <string.h>

static int failures;

#define WANT(condition) \
	do { \
		if (!(condition)) { \
			printf("%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
			failures++; \
		} \
	} while (0)

typedef void *device;
int nvmlInit_v2(void);
int nvmlInitWithFlags(unsigned flags);
int nvmlShutdown(void);
const char *nvmlErrorString(int result);
int nvmlSystemGetDriverVersion(char *, unsigned);
int nvmlDeviceGetCount_v2(unsigned *);
int nvmlDeviceGetHandleByIndex_v2(unsigned, device *);
int nvmlDeviceGetHandleByPciBusId_v2(const char *, device *);
int nvmlDeviceGetHandleByUUID(const char *, device *);
int nvmlDeviceGetIndex(device, unsigned *);
int nvmlDeviceGetName(device, char *, unsigned);
int nvmlDeviceGetUUID(device, char *, unsigned);
int nvmlDeviceGetMinorNumber(device, unsigned *);
int nvmlDeviceGetPciInfo_v3(device, void *);
int nvmlDeviceGetMemoryInfo(device, unsigned long long *);
int nvmlDeviceGetComputeRunningProcesses_v3(device, unsigned *, void *);
int nvmlDeviceGetMigMode(device, unsigned *, unsigned *);
int nvmlDeviceGetCpuAffinity(device, unsigned, unsigned long *);
int nvmlDeviceGetMemoryAffinity(device, unsigned, unsigned long *, unsigned);
int nvmlDeviceGetTopologyCommonAncestor(device, device, int *);
int nvmlDeviceGetTopologyNearestGpus(device, int, unsigned *, device *);
int nvmlDeviceGetNvLinkState(device, unsigned, unsigned *);
int nvmlDeviceGetUtilizationRates(device, void *);
int nvmlDeviceGetCurrPcieLinkGeneration(device, unsigned *);

int main(void)
{
	unsigned n = 0, current = 9, pending = 9, index = 9;
	device a, b, other = NULL;
	char text[96], uuid[64];
	unsigned long long memory[3];
	unsigned long words[2] = {~0ul, ~0ul};
	int level = 0;
	struct {
		char legacy[16];
		unsigned domain, bus, device, ids, subsystem;
		char address[32];
	} pci;

	WANT(nvmlDeviceGetCount_v2(&n) == 1); // not initialized
	WANT(nvmlShutdown() == 1);
	WANT(!nvmlInit_v2() && !nvmlInitWithFlags(0) && !nvmlShutdown());
	WANT(!nvmlDeviceGetCount_v2(&n) && n == 2);
	WANT(!nvmlDeviceGetHandleByIndex_v2(0, &a) && !nvmlDeviceGetHandleByIndex_v2(1, &b) && a != b);
	WANT(nvmlDeviceGetHandleByIndex_v2(2, &other) == 2);
	WANT(nvmlDeviceGetName(&n, text, sizeof text) == 2);
	WANT(!nvmlSystemGetDriverVersion(text, sizeof text) && !strcmp(text, "rackless emulated GPU"));
	WANT(!nvmlDeviceGetName(a, text, sizeof text) && !strcmp(text, "rackless emulated GPU"));
	WANT(nvmlDeviceGetName(a, text, 5) == 7);
	WANT(!nvmlDeviceGetUUID(b, uuid, sizeof uuid) && !nvmlDeviceGetHandleByUUID(uuid, &other) && other == b);
	WANT(!nvmlDeviceGetHandleByPciBusId_v2("00000000:04:00.0", &other) && other == a);
	WANT(nvmlDeviceGetHandleByPciBusId_v2("0000:05:00.0", &other) == 6);
	WANT(!nvmlDeviceGetIndex(b, &index) && index == 1);
	WANT(!nvmlDeviceGetMinorNumber(a, &index) && index == 1); // its render node is renderD129
	WANT(!nvmlDeviceGetPciInfo_v3(b, &pci) && pci.bus == 0x84 && pci.ids == 0x10501af4);
	WANT(!strcmp(pci.legacy, "0000:84:00.0") && !strcmp(pci.address, "00000000:84:00.0"));
	WANT(!nvmlDeviceGetMemoryInfo(a, memory) && memory[0] == 1 << 20 && memory[1] == 1 << 20 && !memory[2]);
	n = 0;
	WANT(!nvmlDeviceGetComputeRunningProcesses_v3(a, &n, NULL) && n == 0);
	WANT(!nvmlDeviceGetMigMode(a, &current, &pending) && !current && !pending);
	WANT(!nvmlDeviceGetCpuAffinity(b, 2, words) && words[0] == 0xf0 && words[1] == 0);
	WANT(!nvmlDeviceGetMemoryAffinity(b, 1, words, 0) && words[0] == 2);
	WANT(!nvmlDeviceGetTopologyCommonAncestor(a, b, &level) && level == 50);
	n = 1;
	WANT(!nvmlDeviceGetTopologyNearestGpus(a, 50, &n, &other) && n == 1 && other == b);
	WANT(!nvmlDeviceGetTopologyNearestGpus(a, 10, &n, &other) && n == 0);
	WANT(nvmlDeviceGetNvLinkState(a, 0, &n) == 3 && !strcmp(nvmlErrorString(3), "Not Supported"));
	WANT(nvmlDeviceGetUtilizationRates(a, words) == 3 && nvmlDeviceGetCurrPcieLinkGeneration(b, &n) == 3);
	WANT(!nvmlDeviceGetCurrPcieLinkGeneration(a, &n) && n == 4);
	WANT(!nvmlShutdown());
	return failures ? 1 : 0;
}
