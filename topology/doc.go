// Package topology is a machine as values, and questions about it: CPUs, memory, PCI devices and
// the paths between them.
//
// It is pure: no I/O, no clock, no globals. Package inspect fills a [Host] from a live machine, a
// snapshot or another tool's dump; everything that plans, checks or draws reads it.
//
// # What is not known
//
// A fact that was not read is absent, never zero: a nil pointer, an empty string or a nil slice,
// and no key in JSON. Where zero is a value of its own (a NUMA node without memory, no free
// hugepage) the field is a pointer, and nil means "nobody said".
//
// # Words
//
// They are hwloc's and the kernel's. A CPU is a logical CPU (hwloc: PU), numbered as the kernel
// numbers it. A core is a physical core with one or more CPUs. A package is what sits in a socket.
package topology
