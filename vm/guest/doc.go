// Package guest runs commands in a node through the QEMU guest agent, and gives a new clone its identity.
package guest
