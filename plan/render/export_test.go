package render

import (
	"testing"

	"github.com/rackless/rackless/machine/topology"
)

// StandInVendor marks devices that stand in for the host's.
const StandInVendor = "0xfffe"

// SwitchedGuest returns QEMU's arguments for the buses, and the host's devices by their addresses in the guest.
func SwitchedGuest(t *testing.T) (*topology.Host, []string, map[string]string) {
	t.Helper()
	in := switched(t)
	domains, err := Domains(in)
	if err != nil {
		t.Fatal(err)
	}
	return in.Host, busesOf(t, readDomain(t, domains[0].Data)), switchedInGuest
}
