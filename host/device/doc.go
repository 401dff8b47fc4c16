// Package device prepares the PCI functions of a host for a lab: it binds functions to vfio-pci, creates virtual
// functions and sets their addresses, and undoes all of that. It is also where the guards are that keep a lab from
// taking what the host needs.
//
// [Steps] says what is to be done, as steps of package change; what they do is in the ops [Module],
// [Driver], [Driverctl], [SRIOV], [Link] and [FirmwareSetting]. An op reads and writes sysfs
// through a change.System, and what only netlink can do through a [Network].
package device
