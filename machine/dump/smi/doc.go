// Package smi reads the text of nvidia-smi topo -m: the matrix of paths between GPUs and RDMA NICs.
//
// A row that lacks a cell is an error, because a wrong path would be worse than none. If the two cells of a pair
// contradict each other, their path is unknown; many contradictions are an error.
//
// The matrix is symmetric, so most paths of truncated or missing rows are in other rows. Paths between the devices of
// missing rows are unknown, and Host.Unread says so. The first complete matrix is read; others are noted there too.
//
// Two facts are derived:
//
//   - CPUs of a NUMA node: the CPU affinity of the GPUs on it, if they agree and the list is complete. In a container
//     with limited CPUs, the tool shows only these.
//   - The node of a NIC: nvidia-smi calls a path NODE or nearer only inside one node. A NIC that is far (SYS) from
//     every GPU is on some other node, which stays unknown.
package smi
