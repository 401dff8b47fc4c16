// Package device prepares the PCI functions of a host for a lab. Its guards keep a lab from taking devices that the
// host needs.
package device
