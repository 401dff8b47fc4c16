// Package render turns a plan into files that can be applied by hand, without rackless: libvirt domains, kernel
// arguments, and settings of the guest. It writes nothing, and the same [Input] gives the same bytes. A comment gives
// the reason for every unexpected setting.
//
// Names come from files that may have been edited. They are checked or quoted before they become part of a path, of
// XML, or of a shell command.
package render
