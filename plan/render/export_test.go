package render

import (
	"testing"

	"github.com/rackless/rackless/machine/topology"
)

// StandInVendor is the subsystem vendor of devices that stand in for devices of a host.
const StandInVendor = "0xfffe"

// SwitchedGuest returns a host with switches, QEMU's arguments for the buses of a node on it, and the devices of the
// host by their addresses in the guest.
func SwitchedGuest(t *testing.T) (*topology.Host, []string, map[string]string) {
	t.Helper()
	in := switched(t)
	domains, err := Domains(in)
	if err != nil {
		t.Fatal(err)
	}
	return in.Host, busesOf(t, readDomain(t, domains[0].Data)), switchedInGuest
}
