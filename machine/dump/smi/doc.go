// Package smi reads the text of nvidia-smi topo -m: the matrix of paths between GPUs and RDMA NICs.
//
// The matrix often stands in a log, a bug report or a web page, between other text, with its tabs turned into spaces.
// A header names the columns, and each row is one line, in the order of the columns. A row that lacks a cell, or that
// contradicts the others, is an error that names line and row: a wrong path would be worse than none.
//
// # Cut texts
//
// The matrix is symmetric, so most paths of a row that is cut off stand in the other rows. The first rows may be
// missing together with the header, or the last rows. Paths between the devices of missing rows are not known, and
// Host.Unread says so.
//
// # Several matrices
//
// A text may hold several, of several machines. The first complete one is read; a later one that differs, or an earlier
// one that is not complete, is noted in Host.Unread.
//
// # What is derived
//
// The tool states paths, CPU and NUMA affinity of GPUs and the node of GPU memory. Two facts follow from them and are
// filled in:
//
//   - CPUs of a NUMA node: the CPU affinity of the GPUs on it, if they agree and the list is whole. In a container that
//     may use some CPUs only, the tool shows just those.
//   - The node of a NIC: nvidia-smi calls a path NODE or nearer only inside one node, so a NIC that is that near to a
//     GPU of node 1 is on node 1. A NIC that is far (SYS) from every GPU is on some other node, and stays without one.
package smi
