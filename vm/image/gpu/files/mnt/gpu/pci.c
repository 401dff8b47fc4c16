// Paths between PCI devices, by the rules of machine/topology.
#define _GNU_SOURCE
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu.h"
#include "node.h"

// place writes the bridges above a device and the device itself: "pci0000:00/0000:00:02.0/0000:01:00.0".
static bool place(const char *address, char text[PATH_MAX])
{
	char path[PATH_MAX], resolved[PATH_MAX];
	snprintf(path, sizeof path, "%s/sys/bus/pci/devices/%s", node_root(), address);
	if (!realpath(path, resolved))
		return false;
	const char *root = strstr(resolved, "/pci");
	for (const char *next = root; next && (next = strstr(next + 1, "/pci"));) // the nearest host bridge
		root = next;
	if (!root)
		return false;
	strcpy(text, root + 1);
	return true;
}

static int slashes(const char *text)
{
	int n = 0;
	for (; *text; text++)
		n += *text == '/';
	return n;
}

static int numa_node(const char *address)
{
	char text[16];
	return pci_text(address, "numa_node", text, sizeof text) ? atoi(text) : -1;
}

// same_device reports whether two addresses differ only in the function.
static bool same_device(const char *a, const char *b)
{
	const char *p = strrchr(a, '.'), *q = strrchr(b, '.');
	return p && q && p - a == q - b && !strncmp(a, b, (size_t)(p - a));
}

enum pci_path pci_between(const char *a, const char *b)
{
	char x[PATH_MAX], y[PATH_MAX];
	if (!strcmp(a, b))
		return PATH_SELF;
	if (same_device(a, b))
		return PATH_PIX;
	if (place(a, x) && place(b, y)) {
		size_t shared = 0; // length of the common part, up to and with a slash
		for (size_t i = 0; x[i] && x[i] == y[i]; i++)
			if (x[i] == '/')
				shared = i + 1;
		int common = 0; // elements in it: the host bridge, then bridges
		for (size_t i = 0; i < shared; i++)
			common += x[i] == '/';
		if (common > 1) // at most one bridge on each side below the nearest common one
			return slashes(x + shared) <= 1 && slashes(y + shared) <= 1 ? PATH_PIX : PATH_PXB;
		if (common == 1)
			return PATH_PHB;
	}
	return numa_node(a) == numa_node(b) ? PATH_NODE : PATH_SYS;
}

const char *pci_path_name(enum pci_path path)
{
	switch (path) {
	case PATH_SELF: return "X";
	case PATH_PIX: return "PIX";
	case PATH_PXB: return "PXB";
	case PATH_PHB: return "PHB";
	case PATH_NODE: return "NODE";
	default: return "SYS";
	}
}
