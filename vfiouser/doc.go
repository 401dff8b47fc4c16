// Package vfiouser is the server side of the vfio-user protocol, version 0.0: a PCI device in this process for a QEMU
// that connects with vfio-user-pci. The protocol is described in QEMU's docs/interop/vfio-user.rst.
package vfiouser
