// Package render turns a plan into files that can be applied by hand, without rackless: libvirt
// domains, kernel arguments, settings of the guest. Nothing here runs or writes anything: an
// [Artifact] is a path and bytes.
//
// Everything is made of the [Input] alone, and the same input gives the same bytes. Each file
// starts with what made it and from what. Every setting that a reader would not expect has its
// reason beside it, because who applies the file by hand is the one to judge it.
//
// Nothing here changes a host. The commands that prepare one by hand come with the input: package host takes them from
// the ops by which rackless prepares a host itself.
//
// Names come from lab files and plans, which may have been edited. What becomes part of a path, of
// XML or of a shell command is checked or quoted first.
package render
