// Package guest is what is inside a node: it builds the image that nodes boot, from Debian packages
// and without root, keeps images in a cache, runs commands in a node through the QEMU guest agent,
// and tells a fresh clone which node it is.
package guest
