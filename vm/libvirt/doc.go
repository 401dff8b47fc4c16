// Package libvirt runs lab nodes as libvirt domains, on this machine or on another, under KVM or emulated.
//
// It speaks libvirt's own protocol (github.com/digitalocean/go-libvirt). Other machines are reached
// by TLS, or by the ssh program of this machine, with the user's configuration, keys and known hosts
// (see dial). libvirt's own client is not needed: virsh is run nowhere here. What virsh can and this
// package cannot is to log in by SASL.
//
// Domains that are not rackless' own, which is to say without its element in their <metadata>, are
// listed and never touched.
package libvirt
