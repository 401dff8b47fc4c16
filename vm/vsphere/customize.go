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

// customizedKey is the parameter of a virtual machine that records the customization of its guest.
const customizedKey = "rackless.customized"

// A customizeOp gives a guest its name and addresses at its first start.
type customizeOp struct {
	machine
	Host    string         `json:"host"`
	Domain  string         `json:"domain"`
	Gateway string         `json:"gateway,omitempty"`
	DNS     []string       `json:"dns,omitempty"`
	First   int            `json:"first,omitempty"` // index of the adapter to the gateway
	NICs    []netip.Prefix `json:"nics"`            // of the adapters, in order; an invalid prefix means DHCP
}

func (o *customizeOp) Kind() string { return kindCustomize }

func (o *customizeOp) text() string {
	return fmt.Sprintf("%s.%s %v gateway %s dns %v", o.Host, o.Domain, o.NICs, o.Gateway, o.DNS)
}

// Read returns the record of the guest's customization.
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
	// A customization requested before a connection was lost already waits for the start.
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

// Restore deletes the record of the customization. A pending customization disappears with the machine, which is
// removed.
func (o *customizeOp) Restore(ctx context.Context, _ *change.System, before change.State) error {
	return o.mark(ctx, string(before))
}

// Restored reports whether the record is as before. A missing machine has no record.
func (o *customizeOp) Restored(before, now change.State) bool { return now == absent || now == before }

// customize returns the step that customizes the guest of the i-th node. Adapters of the template come first, then
// virtual functions in the order of settings.
func (m *maker) customize(i int, n *plan.Node, vm machine) change.Step {
	v := m.lab.VSphere.Customize
	o := &customizeOp{machine: vm, Host: n.Name, Domain: v.Domain}
	if v.Gateway != nil {
		o.Gateway = v.Gateway.String()
	}
	o.DNS = lists.Map(v.DNS, netip.Addr.String)
	o.First, o.NICs = m.addresses(i, n)
	s := change.Step{Op: o, What: fmt.Sprintf("customize %s as %s.%s", vm.Name, n.Name, v.Domain)}
	if m.late { // the order of the adapters is known only after settings are made
		s.Ready = func(context.Context, *change.System) (bool, error) {
			o.First, o.NICs = m.addresses(i, n)
			return true, nil
		}
	}
	return s
}

// addresses returns the addresses of the i-th node's adapters, in order. first is the adapter with the lab file's
// address.
func (m *maker) addresses(i int, n *plan.Node) (first int, all []netip.Prefix) {
	all = make([]netip.Prefix, len(m.networks))
	if len(all) > 0 {
		all[m.first] = m.lab.VSphere.Customize.AddressOf(i)
	}
	return m.first, append(all, fabricAddresses(n)...)
}

// fabricAddresses returns the addresses of a node's virtual functions by their PF, which is the order of settings.
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
