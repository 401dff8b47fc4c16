package checks

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/finding"
)

type adaptedLab struct {
	*fakeLab
	adapters []Adapter
	err      error
}

func (a *adaptedLab) Adapters(context.Context) ([]Adapter, error) { return a.adapters, a.err }

func newAdaptedLab(t *testing.T, change func(a *Adapter)) *adaptedLab {
	f := &adaptedLab{fakeLab: newFakeLab(t, testLab(t, 2, 1))}
	for _, n := range f.lab.Nodes {
		f.adapters = append(f.adapters, Adapter{Node: n.Name, NIC: "eth0", Model: "connectx-4-lx", Connected: true,
			Driver: true,
			LinkUp: true})
	}
	change(&f.adapters[1])
	return f
}

func TestFaultsOfAdapters(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(a *Adapter)
		want   string // failing check, or ""
		lost   bool
	}{
		{"none", func(*Adapter) {}, "", false},
		{"a link that went down twice", func(a *Adapter) { a.LinkDowns = 2 }, "", false},
		{"a driver that is not there yet", func(a *Adapter) { a.Driver = false }, "", false},
		{"lost", func(a *Adapter) { a.Connected = false }, IDAdapter, true},
		{"off the bus", func(a *Adapter) { a.Fault = FaultBus }, IDAdapterBus, true},
		{"fatal error", func(a *Adapter) { a.Fault, a.LinkUp = FaultFirmware, false }, IDAdapterFirmware, true},
		{"crash", func(a *Adapter) { a.Fault, a.Crash, a.LinkUp = FaultFirmware, "nil map", false }, IDAdapterFirmware,
			true},
		{"assertion", func(a *Adapter) { a.Fault, a.LinkUp = FaultAssert, false }, IDAdapterFirmware, true},
		{"hung", func(a *Adapter) { a.Fault = FaultCommands }, IDAdapterCommands, true},
		{"lost and hung", func(a *Adapter) { a.Connected, a.Fault = false, FaultCommands }, IDAdapter, true},
		{"cable", func(a *Adapter) { a.Fault, a.LinkUp = FaultCable, false }, IDAdapterCable, false},
		{"link", func(a *Adapter) { a.Fault, a.LinkUp = FaultLink, false }, IDAdapterLink, false},
		{"flaps", func(a *Adapter) { a.Fault = FaultFlap }, IDAdapterFlaps, false},
		{"flaps and is down now", func(a *Adapter) { a.Fault, a.LinkUp = FaultFlap, false }, IDAdapterFlaps, false},
		{"flapped of itself", func(a *Adapter) { a.Flaps, a.LinkDowns = true, 3 }, IDAdapterFlaps, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newAdaptedLab(t, tt.change)
			if tt.want != "" && !tt.lost {
				d := f.nodes["vm01"].facts.Netdev("eth0")
				d.State, d.Carrier = "down", new(false)
			}
			all, err := Lab(t.Context(), f.lab, f, nil, func(string) {})
			if err != nil {
				t.Fatal(err)
			}
			var failed []string
			checks := 0
			for _, g := range all {
				if finding.GroupOf(g.ID) == finding.Adapter {
					checks++
					if g.Status != finding.OK {
						failed = append(failed, g.ID+" "+g.Subject)
						if crash := tt.name == "crash"; strings.HasSuffix(g.Have, "has failed: nil map") != crash ||
							strings.HasSuffix(g.Fix, "rackless logs --daemon pair") != crash {
							t.Errorf("it has %q; %q", g.Have, g.Fix)
						}
						if g.Fix == "" || g.Consequence == "" || g.Evidence == "" || g.Code == "" {
							t.Errorf("the finding lacks something: %+v", g)
						}
					}
				}
				if g.ID == IDLink && g.Status != finding.OK && tt.want != "" && !strings.Contains(g.Fix,
					"rackless nic fault pair/vm01 --clear") &&
					tt.want != IDAdapter && tt.name != "flapped of itself" {
					t.Errorf("the fix of the link is %q", g.Fix)
				}
			}
			var want []string
			if tt.want != "" {
				want = []string{tt.want + " vm01 eth0"}
			}
			if diff := cmp.Diff(want, failed); diff != "" || checks != len(adapterChecks) {
				t.Errorf("%d checks, -want +got:\n%s", checks, diff)
			}
			for _, c := range f.calls {
				if tt.lost && strings.HasPrefix(c, "vm01 ibv_") || tt.want != "" && strings.Contains(c, "pingpong") {
					t.Errorf("ran %q", c)
				}
			}
			if err := Broken(f.lab, f.adapters, "vm01", "eth0"); (err != nil) != (tt.want != "") {
				t.Errorf("a figure of it: %v", err)
			}
			if err := Broken(f.lab, f.adapters, "vm00", "eth0"); err != nil {
				t.Errorf("a figure of the other: %v", err)
			}
		})
	}
}

func TestADaemonThatDoesNotAnswerIsAFinding(t *testing.T) {
	f := newAdaptedLab(t, func(*Adapter) {})
	f.err = errors.New("its daemon does not answer")
	all, err := Lab(t.Context(), f.lab, f, []string{IDAdapter}, func(string) {})
	if err != nil || len(all) != 1 || all[0].Status != finding.Failed || !strings.Contains(all[0].Have,
		"does not answer") {
		t.Errorf("%v, %+v", err, all)
	}
}

func TestALabWithoutAdaptersHasNoChecksOfThem(t *testing.T) {
	f := newAdaptedLab(t, func(*Adapter) {})
	f.adapters = nil
	for _, g := range checkLab(t, f.fakeLab) {
		if finding.GroupOf(g.ID) == finding.Adapter {
			t.Errorf("%+v", g)
		}
	}
}

func TestTheFixNamesTheSecondNIC(t *testing.T) {
	l := &lab.Lab{Name: "pair"}
	a := Adapter{Node: "vm00", NIC: "eth1", Connected: true, Fault: FaultCable}
	if got, want := a.fix(l), "rackless nic fault pair/vm00 --nic eth1 --clear"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

type claimedLab struct {
	*fakeLab
	claimed []string
}

func (c *claimedLab) Claims(context.Context) ([]string, error) { return c.claimed, nil }

func TestAClaimOfAnothersAddressIsSeen(t *testing.T) {
	f := &claimedLab{newFakeLab(t, testLab(t, 2, 1)), []string{"vm01 has claimed an address"}}
	out, err := Lab(t.Context(), f.lab, f, []string{IDIdentity}, func(string) {})
	if err != nil || len(out) != 1 || out[0].Status != finding.Failed || !strings.Contains(out[0].Have, f.claimed[0]) {
		t.Errorf("%v, %+v", err, out)
	}
}
