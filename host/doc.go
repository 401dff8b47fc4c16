// Package host turns a plan into a host in that state, and back.
//
// What is prepared is kept in a [Store]: the lab, its plan, and the host as it was read before
// anything was changed. The [Steps] follow from these three alone, so that they come out the same
// after a reboot, when the host itself looks different. How they are made and undone is the
// business of package change; what they are, of packages boot, device and tune.
package host
