// Package image makes what machines boot from Debian packages, without root, and keeps it in a cache,
// one directory an image, named by a hash of what it is made from.
//
// A [Kind] says how one sort of image is made: [Node] is that of the nodes of labs, [Host] that of
// emulated hosts.
package image
