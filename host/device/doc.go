// Package device binds the PCI functions of a host to vfio-pci for a lab, creates virtual functions and sets their
// addresses, and undoes all of this. Its guards keep a lab from taking devices that the host needs.
package device
