// A render node: the file through which a process gets memory of a GPU.
#ifndef RACKLESS_NODE_H
#define RACKLESS_NODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// node_root is put before the names of files in /sys, /proc and /dev.
const char *node_root(void);

// All return -1, or MAP_FAILED, with errno set.
int node_open(const char *path);
int node_alloc(int node, size_t size, uint32_t *handle);
void *node_map(int node, uint32_t handle, size_t size, void *at); // at a fixed address, unless at is NULL
int node_export(int node, uint32_t handle);                       // a new file descriptor of the dma-buf
void node_free(int node, uint32_t handle);

// node_is_mapping reports whether a file name in /proc/PID/maps is that of memory of a node.
bool node_is_mapping(const char *name, const char *path);

#endif
