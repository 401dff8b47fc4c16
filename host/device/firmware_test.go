package device

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/host/change"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
)

// The output has the form of mstconfig 4.2x; the values are invented.
type mellanox struct {
	tool          string
	next, current map[string]string
	sets          []string
}

func (c *mellanox) run(_ context.Context, argv []string) ([]byte, error) {
	if argv[0] != c.tool {
		return nil, fmt.Errorf("%s: %w", argv[0], exec.ErrNotFound)
	}
	args := strings.Join(argv[1:], " ")
	rest, ok := strings.CutPrefix(args, "-d 0000:81:00.0 ")
	if !ok {
		return nil, errors.New("-E- No such device")
	}
	if set, ok := strings.CutPrefix(rest, "--yes set "); ok {
		name, value, _ := strings.Cut(set, "=")
		text := value
		if name == paramSRIOV {
			text = map[string]string{"0": "False(0)", "1": "True(1)"}[value]
		}
		if strings.HasPrefix(name, paramLinkType) {
			text = map[string]string{"1": "IB(1)", "2": "ETH(2)"}[value]
		}
		c.next[name] = text
		c.sets = append(c.sets, set)
		return []byte("Applying... Done!\n-I- Please reboot machine to load new configurations.\n"), nil
	}
	_, name, _ := strings.Cut(rest, "query ")
	value, ok := c.next[name]
	if !ok {
		return nil, fmt.Errorf("mstconfig: exit status 3: -E- Unknown Parameter: %s", name)
	}
	head := "\nDevice #1:\n----------\n\nDevice type:    ConnectX6\nPCI device:     0000:81:00.0\n\n"
	if strings.HasPrefix(rest, "-e ") {
		star := " "
		if value != c.current[name] {
			star = "*"
		}
		return fmt.Appendf([]byte(head), "Configurations:          Default         Current         Next Boot\n%s     "+
			"   %s              %s       %s       %s\n", star, name, "0", c.current[name], value), nil
	}
	return fmt.Appendf([]byte(head), "Configurations:                              Next Boot\n         %s            "+
		"                       %s\n", name, value), nil
}

func newMellanox() *mellanox {
	c := &mellanox{tool: "mstconfig", current: map[string]string{paramSRIOV: "False(0)", paramVFs: "0",
		"LINK_TYPE_P1": "ETH(2)"}}
	c.next = map[string]string{paramSRIOV: "False(0)", paramVFs: "0", "LINK_TYPE_P1": "ETH(2)"}
	return c
}

func mellanoxPlan(t *testing.T, m *sim) (*plan.Plan, *labType) {
	t.Helper()
	for i := range m.host.PCI {
		if d := &m.host.PCI[i]; d.Address == addr(simPF) {
			d.Vendor = new(topology.VendorMellanox)
		}
	}
	m.put(m.function(simPF).path("vendor"), "0x15b3")
	return testPlan(t, []plan.PFCount{{PF: simPF, Count: 4, Lab: 1}}, wish{"b", []plan.NodeDevice{vfCard(simPF, 1)}})
}

func TestFirmwareIsShown(t *testing.T) {
	t.Parallel()
	m := newSim(t)
	p, _ := mellanoxPlan(t, m)
	p.VFs = append(p.VFs, plan.PFCount{PF: "0000:81:00.1", Count: 2}) // the other port, whose vendor is unknown
	got := Firmware(p, m.host)
	want := []string{
		"mstconfig -d 0000:81:00.0 set SRIOV_EN=1 (without it the card offers no virtual functions)",
		"mstconfig -d 0000:81:00.0 set NUM_OF_VFS=5 (the lab takes 4 virtual functions of the card, and one more is " +
			"the physical function's)",
		"mstconfig -d 0000:81:00.0 set LINK_TYPE_P1=2 (the fabric is Ethernet, and cards that can do both may come " +
			"as InfiniBand)",
		"mstconfig -d 0000:81:00.0 set LINK_TYPE_P2=2 (the fabric is Ethernet, and cards that can do both may come " +
			"as InfiniBand)",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if steps := m.steps(t, p, &labType{Name: p.Lab}, Options{}); slices.ContainsFunc(steps, func(s change.Step) bool {
		return s.Op.Kind() == kindFirmware
	}) {
		t.Error("a step sets it without being asked to")
	}
}

func TestFirmwareFitsTheCard(t *testing.T) {
	t.Parallel()
	const lx, lxVF, five, fiveVF = 0x1015, 0x1016, 0x1017, 0x1018
	names := map[uint16]string{lx: "MT27710 Family [ConnectX-4 Lx]",
		lxVF: "MT27710 Family [ConnectX-4 Lx Virtual Function]", five: "MT27800 Family [ConnectX-5]",
		fiveVF: "MT27800 Family [ConnectX-5 Virtual Function]"}
	for _, c := range []struct {
		what    string
		there   map[string]uint16
		numbers bool
		given   []string
		want    string
	}{
		{"Ethernet only", map[string]uint16{"0000:41:00.0": lx}, true, []string{"0000:41:00.0"}, ""},
		{"Ethernet only, by name", map[string]uint16{"0000:41:00.0": lx}, false, []string{"0000:41:00.0"}, ""},
		{"maybe InfiniBand", map[string]uint16{"0000:41:00.0": five}, true, []string{"0000:41:00.0"},
			"LINK_TYPE_P1=2 LINK_TYPE_P2=2"},
		{"virtual functions that are given whole", map[string]uint16{"0000:41:00.0": lx, "0000:41:00.2": lxVF,
			"0000:41:00.4": lxVF}, true, []string{"0000:41:00.2", "0000:41:00.4"}, "SRIOV_EN=1 NUM_OF_VFS=3"},
		{"a virtual machine with a virtual function", map[string]uint16{"0000:05:00.0": fiveVF}, true,
			[]string{"0000:05:00.0"}, ""},
		{"and with one whose slot has another", map[string]uint16{"0000:05:00.0": fiveVF, "0000:05:00.1": fiveVF}, true,
			[]string{"0000:05:00.1"}, ""},
	} {
		h, p := &topology.Host{}, &plan.Plan{Nodes: []plan.Node{{Name: "a"}}}
		for id, device := range c.there {
			d := topology.PCIDevice{Address: addr(id), DeviceName: names[device]}
			if c.numbers {
				d.Vendor, d.Device = new(topology.VendorMellanox), new(topology.ID16(device))
				h.PCI = append(h.PCI, d)
			}
			h.NICs = append(h.NICs, topology.NIC{Address: &d.Address, Model: names[device]})
		}
		for _, id := range c.given {
			p.Nodes[0].Cards = append(p.Nodes[0].Cards, plan.NodeDevice{Kind: plan.KindNIC, ID: id})
		}
		var got []string
		for _, f := range firmwareSettings(p, h) {
			got = append(got, fmt.Sprintf("%s=%d", f.Parameter, f.Value))
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %v, want %s", c.what, got, c.want)
		}
	}
}

func TestFirmwareIsSetWhereAskedToAndComesBack(t *testing.T) {
	t.Parallel()
	for _, tool := range firmwareTools {
		t.Run(tool, func(t *testing.T) {
			m := newSim(t)
			p, l := mellanoxPlan(t, m)
			card := newMellanox()
			card.tool = tool
			m.s.Run = func(ctx context.Context, argv []string) ([]byte, error) {
				if strings.HasSuffix(argv[0], "config") {
					return card.run(ctx, argv)
				}
				return m.program(ctx, argv)
			}
			m.put(m.function(simPF).path(fileTotal), "2")
			steps := m.steps(t, p, l, Options{Firmware: true})
			b := m.bench(t)
			var results []change.Result
			b.must(b.with(func(j *change.Journal) (err error) {
				results, err = change.Make(t.Context(), m.s, j, steps, nil)
				return err
			}))
			var got []string
			for _, r := range results {
				if r.Kind == kindFirmware || r.Kind == kindSRIOV {
					got = append(got, fmt.Sprintf("%s %s: %s", r.Kind, r.Subject, r.Status))
				}
			}
			want := []string{
				"nic-firmware 0000:81:00.0 SRIOV_EN: reboot", "nic-firmware 0000:81:00.0 NUM_OF_VFS: reboot",
				"nic-firmware 0000:81:00.0 LINK_TYPE_P1: in place", "nic-firmware 0000:81:00.0 LINK_TYPE_P2: in place",
				"sriov 0000:81:00.0: waiting",
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			card.current = map[string]string{paramSRIOV: "True(1)", paramVFs: "5", "LINK_TYPE_P1": "ETH(2)"}
			m.put(m.function(simPF).path(fileTotal), "5")
			b.must(b.make(steps))
			b.must(b.rollback())
			if diff := cmp.Diff([]string{"SRIOV_EN=1", "NUM_OF_VFS=5", "NUM_OF_VFS=0", "SRIOV_EN=0"},
				card.sets); diff != "" {
				t.Errorf("settings (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMoreVirtualFunctionsThanNeededAreLeft(t *testing.T) {
	t.Parallel()
	f := &FirmwareSetting{Card: addr(simPF), Parameter: paramVFs, Value: 5, AtLeast: true}
	for state, want := range map[change.State]bool{"4": false, "5": true, "16": true, firmwareAbsent: false,
		"": false} {
		if got := f.Done(state); got != want {
			t.Errorf("Done(%q) = %v", state, got)
		}
	}
}

func TestWithoutTheToolFirmwareIsAnError(t *testing.T) {
	t.Parallel()
	m := newSim(t)
	card := newMellanox()
	card.tool = "other"
	m.s.Run = card.run
	_, err := (&FirmwareSetting{Card: addr(simPF), Parameter: paramSRIOV, Value: 1}).Read(t.Context(), m.s)
	if err == nil || !strings.Contains(err.Error(), "install mstflint (mstconfig)") {
		t.Errorf("error %v", err)
	}
}

func TestParametersAreFoundInWhatTheToolPrints(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text string
		want []string
	}{
		{"         SRIOV_EN                            True(1)             \n", []string{"1"}},
		{"*        NUM_OF_VFS                          16\n", []string{"16"}},
		{"* NUM_OF_VFS  0  4  8 \n", []string{"0", "4", "8"}},
		{"         NUM_OF_VFS_X                        16\n", nil},
		{"         SRIOV_EN                            Array[0..7]\n", nil},
		{"", nil},
	} {
		parameter := paramVFs
		if strings.Contains(c.text, paramSRIOV) {
			parameter = paramSRIOV
		}
		if diff := cmp.Diff(c.want, parseFirmware(c.text, parameter)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", c.text, diff)
		}
	}
}
