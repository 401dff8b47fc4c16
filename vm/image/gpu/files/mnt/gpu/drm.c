// The render node of the kernel's virtio_gpu driver. Memory of the GPU is a blob of the host that is mapped in the BAR.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/ioctl.h>
#include <linux/types.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include "node.h"

// The calls of the kernel's DRM interface that are used here: Debian's headers of the kernel leave it out.
struct create_blob {
	__u32 memory, flags; // BLOB_HOST, BLOB_MAPPABLE | BLOB_SHAREABLE
	__u32 handle, resource;
	__u64 size;
	__u32 pad, command_size;
	__u64 command, id;
};
struct map_blob {
	__u64 offset; // for mmap
	__u32 handle, pad;
};
struct export_blob {
	__u32 handle, flags;
	__s32 fd;
};
struct close_blob {
	__u32 handle, pad;
};
#define BLOB_HOST 2
#define BLOB_MAPPABLE 1
#define BLOB_SHAREABLE 2
#define CREATE_BLOB _IOWR('d', 0x40 + 10, struct create_blob)
#define MAP_BLOB _IOWR('d', 0x40 + 1, struct map_blob)
#define EXPORT_BLOB _IOWR('d', 0x2d, struct export_blob)
#define CLOSE_BLOB _IOW('d', 0x09, struct close_blob)

const char *node_root(void) { return ""; }

int node_open(const char *path) { return open(path, O_RDWR | O_CLOEXEC); }

static int call(int node, unsigned long request, void *arg)
{
	int r;
	do
		r = ioctl(node, request, arg);
	while (r < 0 && (errno == EINTR || errno == EAGAIN));
	return r;
}

int node_alloc(int node, size_t size, uint32_t *handle)
{
	struct create_blob blob = {.memory = BLOB_HOST, .flags = BLOB_MAPPABLE | BLOB_SHAREABLE, .size = size};
	if (call(node, CREATE_BLOB, &blob))
		return -1;
	*handle = blob.handle;
	return 0;
}

void *node_map(int node, uint32_t handle, size_t size, void *at)
{
	struct map_blob map = {.handle = handle};
	if (call(node, MAP_BLOB, &map))
		return MAP_FAILED;
	return mmap(at, size, PROT_READ | PROT_WRITE, MAP_SHARED | (at ? MAP_FIXED : 0), node, (off_t)map.offset);
}

int node_export(int node, uint32_t handle)
{
	struct export_blob blob = {.handle = handle, .flags = O_CLOEXEC | O_RDWR};
	return call(node, EXPORT_BLOB, &blob) ? -1 : blob.fd;
}

void node_free(int node, uint32_t handle)
{
	struct close_blob blob = {.handle = handle};
	call(node, CLOSE_BLOB, &blob);
}

bool node_is_mapping(const char *name, const char *path) { return !strcmp(name, path); }
