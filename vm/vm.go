// Package vm is one QEMU process, whatever machine it makes: how it is found again from another
// process, and what it is doing.
//
// It knows nothing of labs and hosts, whose packages say what the machine is like.
package vm

// State is what a machine is doing.
type State string

// The states that can be told apart.
const (
	Running State = "running"
	Paused  State = "paused"
	Dead    State = "dead" // no such process any more
)
