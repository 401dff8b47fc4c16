// Package guest is what is inside a node as it runs: it runs commands there through the QEMU guest
// agent, and tells a fresh clone which node it is. Package image makes what nodes boot.
package guest
