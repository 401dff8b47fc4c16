// Package host turns a plan into a host in that state, and back.
//
// A [Store] keeps the lab, its plan, and the host as it was before any change. The [Steps] follow from these three
// alone, so that they come out the same after a reboot.
package host
