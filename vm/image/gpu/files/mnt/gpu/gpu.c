#define _GNU_SOURCE
#include <ctype.h>
#include <glob.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpu.h"
#include "node.h"

#define VIRTIO_VENDOR 0x1af4
#define VIRTIO_GPU 0x1050
#define MEMORY_BAR 2
#define FIRST_RENDER_NODE 128

// The names of rackless' models by their subsystem ids, as on the host.
static const struct {
	unsigned subsystem;
	const char *name;
} models[] = {
	{0x4c00, GPU_NAME},
	{0x4c01, "rackless emulated H20"},
	{0x4c02, "rackless emulated H100"},
	{0x4c03, "rackless emulated A100"},
	{0x4c04, "rackless emulated L40S"},
};

static struct gpu found[GPU_MAX];
static int count;

bool pci_text(const char *address, const char *file, char *text, size_t size)
{
	char path[PATH_MAX];
	snprintf(path, sizeof path, "%s/sys/bus/pci/devices/%s/%s", node_root(), address, file);
	FILE *f = fopen(path, "re");
	if (!f)
		return false;
	bool ok = fgets(text, (int)size, f) != NULL;
	fclose(f);
	if (ok)
		text[strcspn(text, "\n")] = 0;
	return ok;
}

static unsigned pci_number(const char *address, const char *file)
{
	char text[32];
	return pci_text(address, file, text, sizeof text) ? (unsigned)strtoul(text, NULL, 0) : 0;
}

// bar_size returns the size of a BAR from the device's list of ranges, one a line.
static uint64_t bar_size(const char *address, int bar)
{
	char path[PATH_MAX], line[128];
	unsigned long long first = 0, last = 0;
	snprintf(path, sizeof path, "%s/sys/bus/pci/devices/%s/resource", node_root(), address);
	FILE *f = fopen(path, "re");
	if (!f)
		return 0;
	for (int i = 0; i <= bar && fgets(line, sizeof line, f); i++) {
		first = last = 0;
		if (i == bar && sscanf(line, "%llx %llx", &first, &last) != 2)
			first = last = 0;
	}
	fclose(f);
	return last > first ? last - first + 1 : 0;
}

// find_node finds the render node of a device. Its directory is in that of the virtio device, or of the PCI device.
static bool find_node(struct gpu *g)
{
	static const char *const places[] = {"virtio*/drm", "drm"};
	for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
		char pattern[PATH_MAX];
		glob_t files;
		snprintf(pattern, sizeof pattern, "%s/sys/bus/pci/devices/%s/%s/renderD*", node_root(), g->address, places[i]);
		if (glob(pattern, 0, NULL, &files))
			continue;
		const char *name = strrchr(files.gl_pathv[0], '/') + 1;
		snprintf(g->node, sizeof g->node, "/dev/dri/%.32s", name);
		g->minor = (unsigned)strtoul(name + strlen("renderD"), NULL, 10) - FIRST_RENDER_NODE;
		globfree(&files);
		return true;
	}
	return false;
}

// make_uuid derives a UUID from the names of the machine and of its slot: a node keeps it, and no other has it.
static void make_uuid(struct gpu *g)
{
	char text[HOST_NAME_MAX + 32] = "", host[HOST_NAME_MAX + 1] = "";
	gethostname(host, sizeof host - 1);
	snprintf(text, sizeof text, "%s %s", host, g->address);
	for (int half = 0; half < 2; half++) {
		uint64_t hash = 0xcbf29ce484222325u + (uint64_t)half; // FNV-1a
		for (const char *c = text; *c; c++)
			hash = (hash ^ (unsigned char)*c) * 0x100000001b3u;
		for (int i = 0; i < 8; i++)
			g->uuid[8 * half + i] = (unsigned char)(hash >> (8 * i));
	}
	g->uuid[6] = (g->uuid[6] & 0x0f) | 0x80; // version 8 of RFC 9562: made by its own rule
	g->uuid[8] = (g->uuid[8] & 0x3f) | 0x80;
}

static bool read_gpu(struct gpu *g, const char *address)
{
	memset(g, 0, sizeof *g);
	snprintf(g->address, sizeof g->address, "%.19s", address);
	if (pci_number(address, "vendor") != VIRTIO_VENDOR || pci_number(address, "device") != VIRTIO_GPU)
		return false;
	if (sscanf(address, "%x:%x:%x.%x", &g->domain, &g->bus, &g->device, &g->function) != 4 || !find_node(g))
		return false;
	g->ids = VIRTIO_GPU << 16 | VIRTIO_VENDOR;
	g->subsystem = pci_number(address, "subsystem_device") << 16 | pci_number(address, "subsystem_vendor");
	g->name = GPU_NAME;
	for (size_t i = 0; i < sizeof models / sizeof *models; i++)
		if (models[i].subsystem == g->subsystem >> 16)
			g->name = models[i].name;
	char text[32];
	g->numa = pci_text(address, "numa_node", text, sizeof text) ? atoi(text) : -1;
	make_uuid(g);
	g->memory = bar_size(address, MEMORY_BAR);
	return g->memory > 0; // a display without memory of its own is no GPU
}

static int compare(const void *a, const void *b)
{
	const struct gpu *x = a, *y = b;
	uint64_t p = (uint64_t)x->domain << 16 | x->bus << 8 | x->device << 3 | x->function;
	uint64_t q = (uint64_t)y->domain << 16 | y->bus << 8 | y->device << 3 | y->function;
	return p < q ? -1 : p > q;
}

static void find(void)
{
	char pattern[PATH_MAX];
	glob_t devices;
	snprintf(pattern, sizeof pattern, "%s/sys/bus/pci/devices/*", node_root());
	if (glob(pattern, 0, NULL, &devices))
		return;
	for (size_t i = 0; i < devices.gl_pathc && count < GPU_MAX; i++)
		if (read_gpu(&found[count], strrchr(devices.gl_pathv[i], '/') + 1))
			count++;
	globfree(&devices);
	qsort(found, (size_t)count, sizeof *found, compare);
}

int gpus(const struct gpu **list)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, find);
	if (list)
		*list = found;
	return count;
}

int gpu_by_address(const char *address)
{
	unsigned domain = 0, bus, device, function = 0;
	if (sscanf(address, "%x:%x:%x.%x", &domain, &bus, &device, &function) < 3) {
		domain = function = 0;
		if (sscanf(address, "%x:%x.%x", &bus, &device, &function) < 2)
			return -1;
	}
	const struct gpu *list;
	int n = gpus(&list);
	for (int i = 0; i < n; i++)
		if (list[i].domain == domain && list[i].bus == bus && list[i].device == device &&
			list[i].function == function)
			return i;
	return -1;
}

bool gpu_lost(const struct gpu *g)
{
	char path[PATH_MAX];
	unsigned char ids[4] = {0};
	snprintf(path, sizeof path, "%s/sys/bus/pci/devices/%s/config", node_root(), g->address);
	FILE *f = fopen(path, "re");
	if (!f)
		return false;
	size_t n = fread(ids, 1, sizeof ids, f);
	fclose(f);
	return n == sizeof ids && !memcmp(ids, "\xff\xff\xff\xff", sizeof ids);
}

void gpu_uuid_text(const struct gpu *g, char text[GPU_UUID_TEXT])
{
	char *at = text + sprintf(text, "GPU-");
	for (int i = 0; i < 16; i++)
		at += sprintf(at, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", g->uuid[i]);
}
