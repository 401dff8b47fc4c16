package planner

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/rackless/rackless/plan/fleet"
	"github.com/rackless/rackless/topology"
)

// TestALabOfAFleetHoldsItsEmulatorCores is a case that was seen: lab b got the virtual CPUs 12, 44, 20 and 52, on which
// the emulator threads of lab a ran.
func TestALabOfAFleetHoldsItsEmulatorCores(t *testing.T) {
	t.Parallel()
	h, name, err := ReadHost(t.Context(), "../examples/hosts/epyc-7551p.ttar", nil)
	if err != nil {
		t.Fatal(err)
	}
	f, err := fleet.New(fleet.BestFit)
	if err == nil {
		err = f.Add(name, h)
	}
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	err = Stream{Fleet: f, Name: "requests", JSON: true}.Run(t.Context(), strings.NewReader(
		`{"name":"a","nodes":{"vm":{"count":4,"cpus":8,"memory":"4GiB","nics":0}},"affinity":[{"nodes":["vm"],"numa":"different"}]}
{"name":"b","nodes":{"vm":{"cpus":16,"memory":"4GiB","nics":0}}}
{"name":"c","nodes":{"vm":{"cpus":4,"memory":"4GiB","nics":0}}}
`), &out)
	if err != nil {
		t.Fatal(err)
	}
	var held topology.CPUSet
	labs := 0
	for line := range strings.Lines(out.String()) {
		var a FleetAnswer
		if err := json.Unmarshal([]byte(line), &a); err != nil {
			t.Fatal(err)
		}
		var own topology.CPUSet
		for _, n := range a.Nodes {
			own = own.Union(n.EmulatorCPUs).Union(topology.CPUs(n.VCPUs...))
		}
		if own.Overlaps(held) {
			t.Errorf("lab %s has CPUs %s, others have them", a.Request, own.Intersect(held))
		}
		held = held.Union(own)
		if len(a.Nodes) > 0 {
			labs++
		}
	}
	if labs != 3 {
		t.Errorf("%d labs found a place:\n%s", labs, out.String())
	}
}
