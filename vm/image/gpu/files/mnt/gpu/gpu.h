// The emulated GPUs of this machine: virtio GPUs whose BAR 2 is their memory. Everything is read from sysfs and /proc.
#ifndef RACKLESS_GPU_H
#define RACKLESS_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define GPU_NAME "rackless emulated GPU"
#define GPU_MAX 64

// Programs compare these numbers with what they need. No kernel runs, so they promise nothing else.
#define GPU_API_VERSION 12080
#define GPU_CAPABILITY_MAJOR 9
#define GPU_CAPABILITY_MINOR 0

struct gpu {
	char address[20]; // in sysfs: 0000:04:00.0
	unsigned domain, bus, device, function;
	unsigned ids, subsystem; // device above vendor, 16 bits each
	const char *name;        // of the model, by the subsystem
	char node[64];           // /dev/dri/renderD128
	unsigned minor;          // of the render nodes, from 0
	uint64_t memory;         // bytes
	int numa;                // -1 if unknown
	unsigned char uuid[16];
};

// gpus returns the number of GPUs that have a driver, and sets list to them in the order of their PCI addresses.
int gpus(const struct gpu **list);

// gpu_by_address returns the index of the GPU with a PCI address in any usual form, or -1.
int gpu_by_address(const char *address);

// gpu_lost reports whether a GPU has fallen off the bus: its configuration space reads as ones.
bool gpu_lost(const struct gpu *g);

#define GPU_UUID_TEXT 41
// gpu_uuid_text writes "GPU-" and the UUID.
void gpu_uuid_text(const struct gpu *g, char text[GPU_UUID_TEXT]);

// pci_text reads a file of a PCI device in sysfs, without the newline. It returns false if there is none.
bool pci_text(const char *address, const char *file, char *text, size_t size);

// A pci_path is the kind of way between two devices, in the numbers of NVML.
enum pci_path { PATH_SELF = 0, PATH_PIX = 10, PATH_PXB = 20, PATH_PHB = 30, PATH_NODE = 40, PATH_SYS = 50 };

// pci_between returns the path between two PCI devices, by their place in the tree of bridges and their NUMA nodes.
enum pci_path pci_between(const char *a, const char *b);
const char *pci_path_name(enum pci_path path);

// A gpu_user is a process that has memory of a GPU mapped.
struct gpu_user {
	pid_t pid;
	uint64_t bytes;
};

// gpu_users fills list with the processes that this one may look into, up to max, and returns how many there are.
int gpu_users(const struct gpu *g, struct gpu_user *list, int max);
uint64_t gpu_used(const struct gpu *g);

#endif
