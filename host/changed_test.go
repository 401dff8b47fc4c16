package host_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/host"
	"github.com/rackless/rackless/host/change"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/inspect"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/plan/build"
	"github.com/rackless/rackless/plan/search"
)

func epyc(t testing.TB) *host.Prepared {
	t.Helper()
	h, err := inspect.ReadFile(context.Background(), "../examples/hosts/epyc-7551p.ttar")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../examples/epyc-pair.yaml")
	if err != nil {
		t.Fatal(err)
	}
	l, err := lab.Parse("epyc-pair.yaml", text)
	if err != nil {
		t.Fatal(err)
	}
	p, err := build.Problem(h, l, build.Options{HostName: "epyc-7551p"})
	if err != nil {
		t.Fatal(err)
	}
	r, err := search.Solve(context.Background(), p, search.Options{})
	if err != nil {
		t.Fatal(err)
	}
	pl := plan.Assemble(h, l, p, plan.Outcome{Placement: r.Placement, Bound: r.Bound, Optimal: r.Optimal})
	return &host.Prepared{Lab: l, Plan: pl, Host: h, Made: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), By: "test"}
}

func clone(t testing.TB, h *topology.Host) *topology.Host {
	t.Helper()
	data, err := json.Marshal(h)
	if err != nil {
		t.Fatal(err)
	}
	c := &topology.Host{}
	if err := json.Unmarshal(data, c); err != nil {
		t.Fatal(err)
	}
	c.Complete()
	return c
}

func device(h *topology.Host, address string) *topology.PCIDevice {
	for i := range h.PCI {
		if h.PCI[i].Address.String() == address {
			return &h.PCI[i]
		}
	}
	return nil
}

func TestWhatMakesAPlanOld(t *testing.T) {
	t.Parallel()
	p := epyc(t)
	vm00 := p.Plan.Nodes[0]
	first := vm00.VCPUs[0]
	tests := []struct {
		name string
		set  func(h *topology.Host)
		want []string
	}{
		{name: "nothing has changed", set: func(*topology.Host) {}},
		{name: "drivers, isolation and pages are what prepare changes", set: func(h *topology.Host) {
			isolated := topology.CPUs(vm00.VCPUs...)
			h.CPUs.Isolated = &isolated
			for i := range h.PCI {
				h.PCI[i].Driver = "vfio-pci"
			}
			for i := range h.NUMANodes {
				h.NUMANodes[i].FreeBytes = new(uint64)
			}
		}},
		{name: "the GPU is gone", set: func(h *topology.Host) {
			h.PCI = slices.DeleteFunc(h.PCI, func(d topology.PCIDevice) bool {
				return d.Address.String() == "0000:06:00.0"
			})
		}, want: []string{"0000:06:00.0 is not there any more: a card was taken out, or addresses have moved"}},
		{name: "another card is at the address of the NIC", set: func(h *topology.Host) {
			other := topology.ID16(0x1017)
			device(h, "0000:41:00.0").Device = &other
		}, want: []string{"0000:41:00.0 is 0x15b3:0x1017, and was 0x15b3:0x1015: addresses have moved"}},
		{name: "the NIC is on another NUMA node", set: func(h *topology.Host) {
			device(h, "0000:41:00.0").NUMANode = new(0)
		}, want: []string{"0000:41:00.0 is on NUMA node 0, and was on 2"}},
		{name: "SMT is off", set: func(h *topology.Host) {
			for i := range h.Cores {
				h.Cores[i].CPUs = topology.CPUs(h.Cores[i].CPUs.Min())
			}
		}},
		{name: "a node has lost half of its memory", set: func(h *topology.Host) {
			n := &h.NUMANodes[vm00.Memory[0].NUMANode]
			n.MemoryBytes = new(*n.MemoryBytes / 2)
		}},
		{name: "a virtual machine has come to the same CPU", set: func(h *topology.Host) {
			h.Tenants = append(h.Tenants, topology.Tenant{Name: "db",
				Pins: []topology.Pin{{CPUs: topology.CPUs(first)}}})
		}},
		{name: "the lab's own nodes do not count", set: func(h *topology.Host) {
			h.Tenants = append(h.Tenants, topology.Tenant{Name: "epyc-pair.vm00",
				Pins: []topology.Pin{{CPUs: topology.CPUs(first)}}})
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := clone(t, p.Host)
			tt.set(h)
			got := host.Changed(p, h)
			switch tt.name {
			case "SMT is off", "a node has lost half of its memory", "a virtual machine has come to the same CPU":
				if len(got) == 0 {
					t.Error("not noticed")
				}
				t.Log(got[0])
				return
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestWhatIsStoredIsWhatIsLoaded(t *testing.T) {
	t.Parallel()
	p := epyc(t)
	s := host.Store{Dir: filepath.Join(t.TempDir(), "host")}
	if _, err := s.Load(); !errors.Is(err, host.ErrNotPrepared) {
		t.Errorf("error %v, want that it is not prepared", err)
	}
	j, err := s.Open(p, false)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(s.Dir, "prepared.json"))
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v, %v; want 0600", info.Mode(), err)
	}
	got, err := s.Load()
	if err != nil {
		t.Fatal(err)
	}
	asJSON := func(v any) string {
		b, err := json.MarshalIndent(v, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	if diff := cmp.Diff(asJSON(p), asJSON(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if err := s.Clear(j); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(s.Dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory is left: %v", err)
	}
}

// Another rackless may come and go between prepare's reads and its opening of the journal.
func TestAPreparationIsNotBegunOnWhatHasChangedInTheMeantime(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name      string
		loaded    bool
		meanwhile func(t *testing.T, s host.Store, p *host.Prepared)
		want      string
	}{
		{"goes on, and nothing happened", true, func(*testing.T, host.Store, *host.Prepared) {}, ""},
		{"goes on, and it was rolled back", true, func(t *testing.T, s host.Store, p *host.Prepared) {
			j, err := s.Open(p, true)
			if err == nil {
				err = s.Clear(j)
			}
			if err != nil {
				t.Fatal(err)
			}
		}, "this host is not prepared for a lab any more: it was undone in the meantime"},
		{"goes on, and it was rolled back and prepared anew", true, func(t *testing.T, s host.Store, p *host.Prepared) {
			other := *p
			other.Made = p.Made.Add(time.Second)
			if err := s.Save(&other); err != nil {
				t.Fatal(err)
			}
		}, "this host has been prepared for lab epyc-pair in the meantime: rackless rollback first"},
		{"a new one, and another was first", false, func(*testing.T, host.Store, *host.Prepared) {},
			"this host has been prepared for lab epyc-pair in the meantime: rackless rollback first"},
		{"the journal is taken", true, func(t *testing.T, s host.Store, _ *host.Prepared) {
			j, err := change.Open(s.Journal(), host.Kinds())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = j.Close() })
		}, "another rackless is changing this machine"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := epyc(t)
			s := host.Store{Dir: filepath.Join(t.TempDir(), "host")}
			if err := s.Save(p); err != nil {
				t.Fatal(err)
			}
			tt.meanwhile(t, s, p)
			j, err := s.Open(p, tt.loaded)
			if tt.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				if err := j.Close(); err != nil {
					t.Fatal(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("got  %v\nwant %s", err, tt.want)
			}
		})
	}
}
