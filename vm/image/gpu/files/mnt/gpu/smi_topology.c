// The matrix of nvidia-smi topo -m. RDMA devices are its NICs.
#define _GNU_SOURCE
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "node.h"
#include "smi.h"

#define NIC_MAX 64

struct nic {
	char name[64];
	char address[32];
};

static int nics(struct nic *list)
{
	char pattern[PATH_MAX], device[PATH_MAX];
	glob_t files;
	int n = 0;
	snprintf(pattern, sizeof pattern, "%s/sys/class/infiniband/*/device", node_root());
	if (glob(pattern, 0, NULL, &files))
		return 0;
	for (size_t i = 0; i < files.gl_pathc && n < NIC_MAX; i++) {
		const char *path = files.gl_pathv[i];
		if (!realpath(path, device)) // soft RDMA devices have none
			continue;
		const char *end = strrchr(path, '/'), *start = end;
		while (start > path && start[-1] != '/')
			start--;
		snprintf(list[n].name, sizeof list[n].name, "%.*s", (int)(end - start), start);
		snprintf(list[n].address, sizeof list[n].address, "%.31s", strrchr(device, '/') + 1);
		n += strchr(list[n].address, ':') != NULL; // on PCI
	}
	globfree(&files);
	return n;
}

int smi_topology(void)
{
	const struct gpu *g;
	struct nic nic[NIC_MAX];
	int n = gpus(&g), m = nics(nic);
	for (int i = 0; i < n; i++)
		printf("\tGPU%d", i);
	for (int i = 0; i < m; i++)
		printf("\tNIC%d", i);
	printf("\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n");
	for (int row = 0; row < n + m; row++) {
		const char *a = row < n ? g[row].address : nic[row - n].address;
		if (row < n)
			printf("GPU%d", row);
		else
			printf("NIC%d", row - n);
		for (int column = 0; column < n + m; column++) {
			const char *b = column < n ? g[column].address : nic[column - n].address;
			if (row == column)
				printf("\t X ");
			else
				printf("\t%s", pci_path_name(pci_between(a, b)));
		}
		if (row < n) {
			char cpus[256] = "N/A", numa[16] = "N/A";
			if (!pci_text(a, "local_cpulist", cpus, sizeof cpus) || !*cpus)
				strcpy(cpus, "N/A");
			if (g[row].numa >= 0)
				snprintf(numa, sizeof numa, "%d", g[row].numa);
			printf("\t%s\t%s\t\tN/A", cpus, numa);
		}
		printf("\n");
	}
	printf("\nLegend:\n\n  X    = Self\n"
		"  SYS  = Connection across the link between NUMA nodes\n"
		"  NODE = Connection across host bridges of one NUMA node\n"
		"  PHB  = Connection across a PCIe host bridge\n"
		"  PXB  = Connection across several PCIe bridges, and no host bridge\n"
		"  PIX  = Connection across at most one PCIe bridge\n");
	if (m)
		printf("\nNIC Legend:\n\n");
	for (int i = 0; i < m; i++)
		printf("  NIC%d: %s\n", i, nic[i].name);
	return 0;
}
