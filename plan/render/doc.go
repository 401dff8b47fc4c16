// Package render turns a plan into files that can be applied by hand, without rackless: libvirt domains, kernel
// arguments, and settings of the guest. It runs and writes nothing, and the same [Input] gives the same bytes. A
// comment gives the reason for every unexpected setting.
//
// The commands that prepare a host by hand are part of the input: package host derives them from its ops.
//
// Names come from lab files and plans, which may have been edited. They are checked or quoted before they become part
// of a path, of XML, or of a shell command.
package render
