package render

import (
	"testing"

	"github.com/rackless/rackless/machine/topology"
)

// StandInVendor is the vendor of the subsystem of devices that stand for those of a host.
const StandInVendor = "0xfffe"

// SwitchedGuest returns a host with switches, what is on the buses of a node of it as QEMU's arguments, and the devices
// of the host by their addresses in the guest.
func SwitchedGuest(t *testing.T) (*topology.Host, []string, map[string]string) {
	t.Helper()
	in := switched(t)
	domains, err := Domains(in)
	if err != nil {
		t.Fatal(err)
	}
	return in.Host, busesOf(t, readDomain(t, domains[0].Data)), switchedInGuest
}
