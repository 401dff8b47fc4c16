// Who uses a GPU: each allocation is a mapping of its render node, and /proc lists the mappings of all processes.
#define _GNU_SOURCE
#include <ctype.h>
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu.h"
#include "node.h"

static uint64_t mapped(const char *pid, const struct gpu *g)
{
	char path[64], line[PATH_MAX + 128];
	uint64_t bytes = 0;
	snprintf(path, sizeof path, "/proc/%.20s/maps", pid);
	FILE *f = fopen(path, "re");
	if (!f)
		return 0; // ended, or another user's
	while (fgets(line, sizeof line, f)) {
		unsigned long long from, to;
		int name = 0;
		line[strcspn(line, "\n")] = 0;
		if (sscanf(line, "%llx-%llx %*s %*s %*s %*s %n", &from, &to, &name) == 2 && name &&
			node_is_mapping(line + name, g->node))
			bytes += to - from;
	}
	fclose(f);
	return bytes;
}

int gpu_users(const struct gpu *g, struct gpu_user *list, int max)
{
	int n = 0;
	DIR *dir = opendir("/proc");
	for (struct dirent *e; dir && (e = readdir(dir));) {
		if (!isdigit((unsigned char)*e->d_name))
			continue;
		uint64_t bytes = mapped(e->d_name, g);
		if (bytes && n < max)
			list[n] = (struct gpu_user){.pid = atoi(e->d_name), .bytes = bytes};
		n += bytes > 0;
	}
	if (dir)
		closedir(dir);
	return n;
}

uint64_t gpu_used(const struct gpu *g)
{
	struct gpu_user users[1024];
	int n = gpu_users(g, users, 1024);
	uint64_t bytes = 0;
	for (int i = 0; i < n && i < 1024; i++)
		bytes += users[i].bytes;
	return bytes < g->memory ? bytes : g->memory; // a forked process shows the mappings of its parent again
}
