// Package host turns a plan into a host in that state, and back. The [Steps] follow only from a [Store]: the lab, its
// plan, and the host as it was before any change, so that they come out the same after a reboot.
package host
