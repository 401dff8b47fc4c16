// Package libvirt runs lab nodes as libvirt domains, locally or remotely, under KVM or emulated. It speaks libvirt's
// own protocol, reaches other machines by TLS or the ssh program, and needs no virsh. Unlike virsh, it cannot log in by
// SASL.
//
// Domains without rackless' element in their <metadata> are listed but never touched.
package libvirt
