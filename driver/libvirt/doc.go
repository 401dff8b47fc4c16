// Package libvirt runs lab nodes as libvirt domains, on this machine or on another, under KVM or emulated.
//
// It talks to libvirt through virsh, which is wherever libvirt is and knows all of its transports.
// virsh is kept running and is given command after command: one command takes 0.4 to 1 ms then, and
// 20 to 23 ms as a process of its own; over ssh the difference is the whole handshake (measured
// with libvirt 9.0 on 2 cores).
//
// Domains that are not rackless' own, which is to say without its element in their <metadata>, are
// listed and never touched.
package libvirt
