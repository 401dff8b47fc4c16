// Package topology models a machine and the paths between its devices. It is pure: no I/O, no clock, no globals.
//
// A fact that was not read is absent, never zero: a nil pointer, an empty string or a nil slice, and no key in JSON. If
// zero is a valid value, the field is a pointer. Swap areas, modules, reset methods and the driver may be known to be
// empty, so each has a flag: SwapKnown, ModulesKnown, ResetKnown, DriverKnown. ParentUnknown is the reverse, because in
// most sources a nil Parent means a root bus.
//
// A [NIC] and a [GPU] have their own Driver and NUMANode, and a NIC has SRIOV and PF, because some sources know a card
// only by its name. [Host.Complete] copies these facts from the card's function. Use the card's fields first.
//
// Terms are hwloc's and the kernel's. A CPU is a logical CPU (hwloc: PU) with the kernel's number, a core a physical
// one, a package the processor in a socket.
package topology
