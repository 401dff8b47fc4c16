// A render node for tests, below the directory RACKLESS_GPU_ROOT: blobs are files in memory, and a node has as many
// bytes as the file with its name.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "node.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static size_t used[4096]; // by node
static char names[4096][64];

const char *node_root(void)
{
	const char *root = getenv("RACKLESS_GPU_ROOT");
	return root ? root : "/nowhere";
}

int node_open(const char *path)
{
	char name[PATH_MAX];
	snprintf(name, sizeof name, "%s%s", node_root(), path);
	int node = open(name, O_RDWR | O_CLOEXEC);
	if (node >= 0)
		snprintf(names[node], sizeof names[node], "rackless%.50s", strrchr(path, '/') + 1);
	return node;
}

int node_alloc(int node, size_t size, uint32_t *handle)
{
	struct stat file;
	if (fstat(node, &file))
		return -1;
	pthread_mutex_lock(&lock);
	int ok = used[node] + size <= (size_t)file.st_size;
	if (ok)
		used[node] += size;
	pthread_mutex_unlock(&lock);
	errno = ENOSPC;
	int blob = ok ? memfd_create(names[node], MFD_CLOEXEC) : -1;
	if (blob < 0 || ftruncate(blob, (off_t)size))
		return -1;
	*handle = (uint32_t)blob;
	return 0;
}

void *node_map(int node, uint32_t handle, size_t size, void *at)
{
	(void)node;
	return mmap(at, size, PROT_READ | PROT_WRITE, MAP_SHARED | (at ? MAP_FIXED : 0), (int)handle, 0);
}

int node_export(int node, uint32_t handle)
{
	(void)node;
	return fcntl((int)handle, F_DUPFD_CLOEXEC, 0);
}

void node_free(int node, uint32_t handle)
{
	struct stat blob;
	fstat((int)handle, &blob);
	pthread_mutex_lock(&lock);
	used[node] -= (size_t)blob.st_size;
	pthread_mutex_unlock(&lock);
	close((int)handle);
}

bool node_is_mapping(const char *name, const char *path)
{
	char want[128];
	snprintf(want, sizeof want, "/memfd:rackless%s (deleted)", strrchr(path, '/') + 1);
	return !strcmp(name, want);
}
