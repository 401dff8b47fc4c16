// Package smi reads the text of nvidia-smi topo -m: the matrix of paths between GPUs and RDMA NICs.
//
// The matrix is often part of a log, a bug report or a web page, within other text and with its tabs turned into
// spaces. A header names the columns, and each row is one line, in the order of the columns. A row that lacks a cell
// is an error that names line and row, because a wrong path would be worse than none. If the two cells of a pair
// contradict each other, their path is unknown; many contradictions are an error.
//
// # Cut texts
//
// The matrix is symmetric, so most paths of a truncated row are in other rows. The first rows may be missing together
// with the header, or the last rows. Paths between the devices of missing rows are unknown, and Host.Unread says so.
//
// # Several matrices
//
// A text may hold matrices of several machines. The first complete one is read. A later one that differs, or an
// earlier one that is incomplete, is noted in Host.Unread.
//
// # Derived facts
//
// The tool reports paths, CPU and NUMA affinity of GPUs, and the node of GPU memory. Two facts are derived:
//
//   - CPUs of a NUMA node: the CPU affinity of the GPUs on it, if they agree and the list is complete. In a container
//     with limited CPUs, the tool shows only these.
//   - The node of a NIC: nvidia-smi calls a path NODE or nearer only inside one node, so a NIC that near to a GPU of
//     node 1 is on node 1. A NIC that is far (SYS) from every GPU is on some other node, which stays unknown.
package smi
