// Package guest talks to a running node: it runs commands through the QEMU guest agent, and gives a new clone its
// identity. Package image makes the images that nodes boot.
package guest
