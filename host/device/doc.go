// Package device prepares the PCI functions of a host for a lab: it binds functions to vfio-pci, creates virtual
// functions and sets their addresses, and undoes all of this. Its guards keep a lab from taking devices that the host
// needs.
//
// [Steps] returns the work as steps of package change. The ops are [Module], [Driver], [Driverctl], [SRIOV], [Link]
// and [FirmwareSetting]. They read and write sysfs through a change.System, and use netlink through a [Network].
package device
