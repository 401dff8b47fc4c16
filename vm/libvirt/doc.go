// Package libvirt runs lab nodes as libvirt domains, locally or remotely, under KVM or emulated.
//
// It speaks libvirt's own protocol (github.com/digitalocean/go-libvirt). It reaches other machines by TLS, or by the
// local ssh program with the user's configuration, keys and known hosts (see dial). It never runs virsh, so libvirt's
// client is not needed. Unlike virsh, it cannot log in by SASL.
//
// Domains without rackless' element in their <metadata> are listed but never touched.
package libvirt
