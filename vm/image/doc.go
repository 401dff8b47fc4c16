// Package image builds boot images from Debian packages, without root. It caches them in one directory per image,
// named by a hash of the recipe.
//
// A [Kind] is one sort of image: [Node] is the image of lab nodes, [Host] the image of emulated hosts.
package image
