// Package render turns a plan into files that can be applied by hand, without rackless: libvirt
// domains, kernel arguments, units, settings of the guest. Nothing here runs or writes anything: an
// [Artifact] is a path and bytes.
//
// Everything is made of the [Input] alone, and the same input gives the same bytes. Each file
// starts with what made it and from what. Every setting that a reader would not expect has its
// reason beside it, because who applies the file by hand is the one to judge it.
//
// The scripts that change a host are assembled of two things: functions in shell/, one for each
// primitive change, and lines that call them, which package host collects from its ops. So a script
// changes what rackless prepare changes, and in its order. What is written here of a lab, a plan or
// a host is data of a script, never code.
//
// Names come from lab files and plans, which may have been edited. What becomes part of a path, of
// XML or of a shell command is checked or quoted first.
package render
