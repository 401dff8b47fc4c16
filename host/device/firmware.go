package device

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/host/change"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
)

// firmwareTools are equivalent here: mstflint's, which distributions package, and the one of NVIDIA's MFT.
var firmwareTools = []string{"mstconfig", "mlxconfig"}

// Firmware returns the plan's settings of ConnectX and BlueField NICs, as commands with reasons. People should review
// them first: they take effect at the card's next reset, and a wrong setting can take it off the network.
func Firmware(p *plan.Plan, h *topology.Host) []string {
	var out []string
	for _, f := range firmwareSettings(p, h) {
		out = append(out, fmt.Sprintf("%s -d %s set %s=%d (%s)", firmwareTools[0], f.Card, f.Parameter, f.Value,
			f.why()))
	}
	return out
}

// A FirmwareSetting is a parameter in the firmware of an NVIDIA (Mellanox) NIC.
type FirmwareSetting struct {
	Card      topology.PCIAddr `json:"card"` // its function 0, because the ports of a card share their parameters
	Parameter string           `json:"parameter"`
	Value     int              `json:"value"`
	// AtLeast accepts larger values, because others may use the rest.
	AtLeast bool `json:"at_least,omitempty"`
	// Optional accepts cards without the parameter: among chips that can do InfiniBand, only some boards have
	// LINK_TYPE.
	Optional bool `json:"optional,omitempty"`
}

const (
	paramSRIOV    = "SRIOV_EN"
	paramVFs      = "NUM_OF_VFS"
	paramLinkType = "LINK_TYPE_P" // followed by the port number
	linkEthernet  = 2
)

func (f *FirmwareSetting) why() string {
	switch {
	case f.Parameter == paramSRIOV:
		return "without it the card offers no virtual functions"
	case f.Parameter == paramVFs:
		return fmt.Sprintf("the lab takes %d virtual functions of the card, and one more is the physical function's",
			f.Value-1)
	}
	return "the fabric is Ethernet, and cards that can do both may come as InfiniBand"
}

// firmwareSettings adds up the virtual functions of a card's ports, because they share NUM_OF_VFS.
func firmwareSettings(p *plan.Plan, h *topology.Host) []*FirmwareSetting {
	vfs := map[topology.PCIAddr]int{}
	var cards []topology.PCIAddr
	add := func(id string, count int) {
		a, err := topology.ParsePCIAddr(id)
		if err != nil || !isMellanox(h, a) {
			return
		}
		d := h.Device(a)
		a.Function = 0
		if d != nil && d.IsVirtual() && count == 0 {
			// On an emulated host, if the physical functions are on another machine, the firmware is out of reach.
			if card := h.Device(a); card == nil || card.IsVirtual() || !isMellanox(h, a) {
				return
			}
			count = 1
		}
		if _, seen := vfs[a]; !seen {
			cards = append(cards, a)
		}
		vfs[a] += count
	}
	for _, n := range p.Nodes {
		for _, c := range n.Cards {
			if c.Kind == plan.KindNIC {
				add(c.ID, 0)
			}
		}
	}
	for _, c := range p.VFs {
		add(c.PF, c.Count)
	}
	slices.SortFunc(cards, topology.PCIAddr.Compare)
	var out []*FirmwareSetting
	for _, card := range cards {
		if n := vfs[card]; n > 0 {
			out = append(out,
				&FirmwareSetting{Card: card, Parameter: paramSRIOV, Value: 1},
				&FirmwareSetting{Card: card, Parameter: paramVFs, Value: n + 1, AtLeast: true})
		}
		for port := 1; port <= 2 && !ethernetOnly(h, card); port++ {
			out = append(out, &FirmwareSetting{Card: card, Parameter: paramLinkType + strconv.Itoa(port),
				Value: linkEthernet, Optional: true})
		}
	}
	return out
}

// ethernetChips cannot do InfiniBand, so no board with one has LINK_TYPE. Source: pci.ids and NVIDIA's data sheets.
var ethernetChips = map[topology.ID16]string{0x1015: "ConnectX-4 Lx", 0x101d: "ConnectX-6 Dx", 0x101f: "ConnectX-6 Lx"}

func ethernetOnly(h *topology.Host, a topology.PCIAddr) bool {
	if d := h.Device(a); d != nil && d.Device != nil {
		return ethernetChips[*d.Device] != ""
	}
	n := h.NIC(a)
	return n != nil && slices.ContainsFunc(slices.Collect(maps.Values(ethernetChips)), func(chip string) bool {
		return strings.Contains(n.Model, chip)
	})
}

func isMellanox(h *topology.Host, a topology.PCIAddr) bool {
	if d := h.Device(a); d != nil {
		return d.Vendor != nil && *d.Vendor == topology.VendorMellanox
	}
	// Dumps of other tools may lack vendors.
	n := h.NIC(a)
	return n != nil && (strings.HasPrefix(n.Driver, "mlx") || strings.Contains(n.Model, "ConnectX") ||
		strings.Contains(n.Model, "BlueField"))
}

// Kind implements change.Op.
func (f *FirmwareSetting) Kind() string { return kindFirmware }

// Subject implements change.Op.
func (f *FirmwareSetting) Subject() string { return f.Card.String() + " " + f.Parameter }

const firmwareAbsent change.State = "absent"

// Read returns the value that the card will have after its next reset.
func (f *FirmwareSetting) Read(ctx context.Context, s *change.System) (change.State, error) {
	columns, err := f.query(ctx, s, false)
	if err != nil || len(columns) == 0 {
		return firmwareAbsent, err
	}
	return change.State(columns[len(columns)-1]), nil
}

func (f *FirmwareSetting) tool(ctx context.Context, run func(context.Context, ...string) ([]byte, error),
	args ...string) ([]byte, error) {
	for _, name := range firmwareTools {
		out, err := run(ctx, append([]string{name, "-d", f.Card.String()}, args...)...)
		if !errors.Is(err, exec.ErrNotFound) {
			return out, err
		}
	}
	return nil, errors.New("install mstflint (mstconfig) or NVIDIA's MFT (mlxconfig), or leave the firmware alone " +
		"(without --firmware)")
}

// query returns the value for the next boot, or none if the card lacks the parameter. With all, the default and the
// current value come before it.
func (f *FirmwareSetting) query(ctx context.Context, s *change.System, all bool) ([]string, error) {
	args := []string{"query", f.Parameter}
	if all {
		args = []string{"-e", "query", f.Parameter}
	}
	out, err := f.tool(ctx, s.Query, args...)
	if columns := parseFirmware(string(out), f.Parameter); len(columns) > 0 || err == nil {
		return columns, nil
	}
	said := string(out) + err.Error()
	if strings.Contains(said, "Unknown Parameter") || strings.Contains(said, "doesn't support") {
		return nil, nil
	}
	return nil, err
}

// parseFirmware reads mstconfig's output: "* NUM_OF_VFS 8" is 8, "SRIOV_EN True(1)" is 1. A star marks a changed value
// that waits for a reset.
func parseFirmware(text, parameter string) []string {
	for line := range strings.Lines(text) {
		fields := strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "*"))
		if len(fields) < 2 || fields[0] != parameter {
			continue
		}
		var values []string
		for _, v := range fields[1:] {
			if _, in, ok := strings.Cut(v, "("); ok {
				v = strings.TrimSuffix(in, ")")
			}
			if _, err := strconv.Atoi(v); err != nil {
				return nil
			}
			values = append(values, v)
		}
		return values
	}
	return nil
}

// Done implements change.Op.
func (f *FirmwareSetting) Done(state change.State) bool {
	if state == firmwareAbsent {
		return f.Optional
	}
	n, err := strconv.Atoi(string(state))
	return err == nil && (n == f.Value || f.AtLeast && n > f.Value)
}

// InForce reports whether the card already works with the value. It returns false if the tool cannot tell.
func (f *FirmwareSetting) InForce(ctx context.Context, s *change.System) (bool, error) {
	const currentAndNext = 3 // preceded by the default
	columns, err := f.query(ctx, s, true)
	if err != nil || len(columns) == 0 {
		return f.Optional, err
	}
	return len(columns) == currentAndNext && f.Done(change.State(columns[1])), nil
}

// Do implements change.Op.
func (f *FirmwareSetting) Do(ctx context.Context, s *change.System) error {
	return f.set(ctx, s, strconv.Itoa(f.Value))
}

// Restore does not rewrite a correct value, to spare the card's flash.
func (f *FirmwareSetting) Restore(ctx context.Context, s *change.System, before change.State) error {
	if before == firmwareAbsent {
		return nil
	}
	if now, err := f.Read(ctx, s); err != nil || now == before {
		return err
	}
	return f.set(ctx, s, string(before))
}

// Merge counts a value above the one set as somebody else's, though it satisfies the plan.
func (f *FirmwareSetting) Merge(_ context.Context, _ *change.System, u change.Undo) (change.State, []change.Changed,
	error) {
	set := strconv.Itoa(f.Value)
	return u.Whole(f, string(u.Now) == set, change.Changed{What: f.Subject(), Found: string(u.Now), Set: set})
}

// Shell runs a tool that asks for confirmation before it writes.
func (f *FirmwareSetting) Shell() []string {
	good := strconv.Itoa(f.Value)
	if f.AtLeast {
		good += " or more"
	}
	if f.Optional {
		good += ", or no such parameter"
	}
	return []string{
		fmt.Sprintf("%s -d %s query %s   # is it %s? then leave out the next line", firmwareTools[0], f.Card,
			f.Parameter, good),
		fmt.Sprintf("%s -d %s set %s=%d", firmwareTools[0], f.Card, f.Parameter, f.Value)}
}

func (f *FirmwareSetting) set(ctx context.Context, s *change.System, value string) error {
	_, err := f.tool(ctx, s.Program, "--yes", "set", f.Parameter+"="+value)
	return err
}
