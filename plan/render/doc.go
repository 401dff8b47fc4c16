// Package render turns a plan into files that can be applied by hand, without rackless: libvirt domains, kernel
// arguments, and settings of the guest. It runs and writes nothing: an [Artifact] is a path and bytes.
//
// Files depend only on the [Input], and the same input gives the same bytes. Each file starts with its origin. A
// comment gives the reason for every unexpected setting, so that a person can judge it before applying the file.
//
// Package render does not change a host. The commands that prepare one by hand are part of the input: package host
// derives them from the ops with which rackless prepares a host itself.
//
// Names come from lab files and plans, which may have been edited. They are checked or quoted before they become part
// of a path, of XML, or of a shell command.
package render
