// Package image builds boot images from Debian packages, without root, and caches them by a hash of the recipe. A
// [Kind] is one sort of image, such as [Node] or [Host].
package image
