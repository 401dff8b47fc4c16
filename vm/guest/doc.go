// Package guest talks to a running node: it runs commands there through the QEMU guest agent, and gives a new clone its
// identity. Package image makes what nodes boot.
package guest
