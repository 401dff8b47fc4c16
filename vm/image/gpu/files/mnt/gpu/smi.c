// A small nvidia-smi for emulated GPUs: the parts that scripts use.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "smi.h"

void smi_bus_id(const struct gpu *g, char text[24])
{
	snprintf(text, 24, "%08X:%02X:%02X.%X", g->domain, g->bus & 0xffu, g->device & 0x1fu, g->function & 7u);
}

bool smi_lost(const struct gpu *all, int i)
{
	bool is = gpu_lost(&all[i]);
	if (is)
		printf("Unable to determine the device handle for GPU%d: %s: GPU is lost.  Reboot the system to recover this GPU\n",
			i, all[i].address);
	return is;
}

static int list(void)
{
	const struct gpu *g;
	int n = gpus(&g), status = 0;
	for (int i = 0; i < n; i++) {
		if (smi_lost(g, i)) {
			status = SMI_LOST;
			continue;
		}
		char uuid[GPU_UUID_TEXT];
		gpu_uuid_text(&g[i], uuid);
		printf("GPU %d: %s (UUID: %s)\n", i, g[i].name, uuid);
	}
	return status;
}

static int table(void)
{
	const struct gpu *g;
	int n = gpus(&g), status = 0;
	printf("| %-3s | %-22s | %-16s | %-23s |\n", "GPU", "Name", "Bus-Id", "Memory-Usage");
	printf("|-----|------------------------|------------------|-------------------------|\n");
	for (int i = 0; i < n; i++) {
		if (smi_lost(g, i)) {
			status = SMI_LOST;
			continue;
		}
		char bus[24], memory[64];
		smi_bus_id(&g[i], bus);
		snprintf(memory, sizeof memory, "%lluMiB / %lluMiB", (unsigned long long)gpu_used(&g[i]) >> 20,
			(unsigned long long)g[i].memory >> 20);
		printf("| %3d | %-22s | %-16s | %23s |\n", i, g[i].name, bus, memory);
	}
	return status;
}

static int usage(FILE *to)
{
	fprintf(to, "nvidia-smi for rackless' emulated GPUs\n\n"
		"    nvidia-smi                    the GPUs and their memory\n"
		"    nvidia-smi -L                 a line for each GPU, with its UUID\n"
		"    nvidia-smi topo -m            paths between GPUs and NICs\n"
		"    nvidia-smi -q [-i GPU]        what is known of each GPU\n"
		"    nvidia-smi --query-gpu=index,name,uuid,memory.total --format=csv[,noheader][,nounits] [-i GPU]\n");
	return to == stdout ? 0 : 2;
}

// numbered returns the index of a GPU by its index, UUID or address. If there is none it ends the program.
static int numbered(const char *text)
{
	const struct gpu *g;
	int n = gpus(&g);
	char *end;
	long index = strtol(text, &end, 10);
	if (end != text && !*end && index >= 0 && index < n)
		return (int)index;
	for (int i = 0; i < n; i++) {
		char uuid[GPU_UUID_TEXT];
		gpu_uuid_text(&g[i], uuid);
		if (!strcmp(uuid, text))
			return i;
	}
	int i = strchr(text, ':') ? gpu_by_address(text) : -1;
	if (i >= 0)
		return i;
	printf("No devices were found\n");
	exit(6);
}

// option returns the value of an option, written as "-i 0" or "--id=0", and steps over it; NULL if it is another one.
static const char *option(char **args, int *at, const char *brief, const char *full)
{
	const char *arg = args[*at];
	size_t n = strlen(full);
	if (!strncmp(arg, full, n) && arg[n] == '=')
		return arg + n + 1;
	if ((!strcmp(arg, brief) || !strcmp(arg, full)) && args[*at + 1])
		return args[++*at];
	return NULL;
}

int main(int count, char **args)
{
	const char *fields = NULL, *format = "", *value;
	int only = -1, mode = 0;
	if (count > 1 && (!strcmp(args[1], "-h") || !strcmp(args[1], "--help")))
		return usage(stdout);
	if (!gpus(NULL)) {
		printf("No devices were found\n");
		fprintf(stderr, "nvidia-smi: no %s with a driver: does lspci -d 1af4:1050 show one, and "
			"is virtio_gpu loaded?\n", GPU_NAME);
		return 6;
	}
	if (count > 1 && !strcmp(args[1], "topo"))
		return count == 3 && (!strcmp(args[2], "-m") || !strcmp(args[2], "--matrix")) ? smi_topology() : usage(stderr);
	for (int i = 1; i < count; i++) {
		if (!strcmp(args[i], "-L") || !strcmp(args[i], "--list-gpus"))
			mode = 'L';
		else if (!strcmp(args[i], "-q") || !strcmp(args[i], "--query"))
			mode = 'q';
		else if ((value = option(args, &i, "", "--query-gpu")))
			fields = value;
		else if ((value = option(args, &i, "", "--format")))
			format = value;
		else if ((value = option(args, &i, "-i", "--id")))
			only = numbered(value);
		else
			return usage(stderr);
	}
	if (fields)
		return smi_query(fields, format, only);
	return mode == 'L' ? list() : mode == 'q' ? smi_details(only) : table();
}
