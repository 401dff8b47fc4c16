//go:build linux

package vsphere

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/vmware/govmomi/fault"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/rackless/rackless/host/change"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/plan"
)

// customizedKey is a virtual machine's parameter.
const customizedKey = "rackless.customized"

// A customizeOp gives a guest its name and addresses at its first start.
type customizeOp struct {
	machine
	Host    string         `json:"host"`
	Domain  string         `json:"domain"`
	Gateway string         `json:"gateway,omitempty"`
	DNS     []string       `json:"dns,omitempty"`
	First   int            `json:"first,omitempty"` // of the adapter to the gateway
	NICs    []netip.Prefix `json:"nics"`            // in order; an invalid prefix means DHCP
}

func (o *customizeOp) Kind() string { return kindCustomize }

func (o *customizeOp) text() string {
	return fmt.Sprintf("%s.%s %v gateway %s dns %v", o.Host, o.Domain, o.NICs, o.Gateway, o.DNS)
}

// Read returns the record.
func (o *customizeOp) Read(ctx context.Context, _ *change.System) (change.State, error) {
	_, have, err := o.find(ctx)
	if err != nil || have == nil {
		return absent, err
	}
	return change.State(parameter(customizedKey).get(have.Config)), nil
}

func (o *customizeOp) Done(s change.State) bool { return string(s) == o.text() }

func (o *customizeOp) Do(ctx context.Context, _ *change.System) error {
	vm, have, err := o.settled(ctx)
	if err == nil && have == nil {
		err = fmt.Errorf("%s is gone", o.Name)
	}
	if err != nil {
		return err
	}
	cards := slices.DeleteFunc(slices.Clone(have.Config.Hardware.Device), func(d types.BaseVirtualDevice) bool {
		_, ok := d.(types.BaseVirtualEthernetCard)
		return !ok
	})
	if len(cards) != len(o.NICs) {
		return fmt.Errorf("%s has %d network adapters, want %d", o.Name, len(cards), len(o.NICs))
	}
	err = finish(ctx)(vm.Customize(ctx, o.spec()))
	// One requested before a connection was lost waits already.
	if err != nil && !fault.Is(err, &types.CustomizationPending{}) {
		return err
	}
	return o.mark(ctx, o.text())
}

func (o *customizeOp) spec() types.CustomizationSpec {
	s := types.CustomizationSpec{Identity: &types.CustomizationLinuxPrep{Domain: o.Domain,
		HostName: &types.CustomizationFixedName{Name: o.Host}}, GlobalIPSettings: types.CustomizationGlobalIPSettings{
		DnsSuffixList: []string{o.Domain}, DnsServerList: o.DNS}}
	for i, nic := range o.NICs {
		at := types.CustomizationIPSettings{Ip: &types.CustomizationDhcpIpGenerator{}}
		if nic.IsValid() {
			at.Ip = &types.CustomizationFixedIp{IpAddress: nic.Addr().String()}
			at.SubnetMask = net.IP(net.CIDRMask(nic.Bits(), 32)).String()
		}
		if i == o.First && o.Gateway != "" {
			at.Gateway = []string{o.Gateway}
		}
		s.NicSettingMap = append(s.NicSettingMap, types.CustomizationAdapterMapping{Adapter: at})
	}
	return s
}

func (o *customizeOp) mark(ctx context.Context, text string) error {
	vm, have, err := o.find(ctx)
	if err != nil || have == nil {
		return err
	}
	var spec vmSpec
	if err := parameter(customizedKey).set(&spec, have.Config, text); err != nil {
		return err
	}
	return finish(ctx)(vm.Reconfigure(ctx, spec))
}

// Restore deletes the record. A pending customization disappears with the machine.
func (o *customizeOp) Restore(ctx context.Context, _ *change.System, before change.State) error {
	return o.mark(ctx, string(before))
}

// Restored accepts a missing machine.
func (o *customizeOp) Restored(before, now change.State) bool { return now == absent || now == before }

// customize makes the i-th node's step. Adapters of the template come first, then virtual functions in the order of
// settings.
func (m *maker) customize(i int, n *plan.Node, vm machine) change.Step {
	v := m.lab.VSphere.Customize
	o := &customizeOp{machine: vm, Host: n.Name, Domain: v.Domain}
	if v.Gateway != nil {
		o.Gateway = v.Gateway.String()
	}
	o.DNS = lists.Map(v.DNS, netip.Addr.String)
	o.First, o.NICs = m.addresses(i, n)
	s := change.Step{Op: o, What: fmt.Sprintf("customize %s as %s.%s", vm.Name, n.Name, v.Domain)}
	if m.late { // the order is known after settings are made
		s.Ready = func(context.Context, *change.System) (bool, error) {
			o.First, o.NICs = m.addresses(i, n)
			return true, nil
		}
	}
	return s
}

// addresses are in order. first is the adapter with the lab file's address.
func (m *maker) addresses(i int, n *plan.Node) (first int, all []netip.Prefix) {
	all = make([]netip.Prefix, len(m.networks))
	if len(all) > 0 {
		all[m.first] = m.lab.VSphere.Customize.AddressOf(i)
	}
	return m.first, append(all, fabricAddresses(n)...)
}

// fabricAddresses are by PF, the order of settings.
func fabricAddresses(n *plan.Node) []netip.Prefix {
	type vf struct {
		pf   string
		addr netip.Prefix
	}
	var vfs []vf
	port := 0
	for _, card := range n.Cards {
		switch {
		case card.Kind == plan.KindGPU || port >= len(n.NICs):
			continue
		case card.Kind == plan.KindVF:
			vfs = append(vfs, vf{card.ID, n.NICs[port].Addr})
		}
		port++
	}
	slices.SortStableFunc(vfs, func(a, b vf) int { return strings.Compare(a.pf, b.pf) })
	return lists.Map(vfs, func(f vf) netip.Prefix { return f.addr })
}
