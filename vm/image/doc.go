// Package image builds boot images from Debian packages, without root, and keeps them in a cache, one directory for
// each image, named by a hash of its recipe.
//
// A [Kind] says how one sort of image is made: [Node] is that of the nodes of labs, [Host] that of
// emulated hosts.
package image
