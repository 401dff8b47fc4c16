package vsphere

import (
	"context"
	"path"
	"slices"

	"github.com/vmware/govmomi/view"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/dump/esxi"
	"github.com/rackless/rackless/machine/topology"
)

// VMName is the name of a node's virtual machine, as that of its domain under libvirt.
func VMName(l *lab.Lab, node string) string { return l.Name + "." + node }

// Without returns a host as it is without the nodes of a lab in vSphere, which are no tenants beside themselves, and
// without their template while that is off: it is not going to be started.
func Without(l *lab.Lab, h *topology.Host) *topology.Host {
	if l.VSphere == nil {
		return h
	}
	other := *h
	other.Tenants = slices.DeleteFunc(slices.Clone(h.Tenants), func(t topology.Tenant) bool {
		return t.State == esxi.Off && t.Name == path.Base(l.VSphere.Template) ||
			slices.ContainsFunc(l.Nodes, func(n lab.Node) bool { return t.Name == VMName(l, n.Name) })
	})
	return &other
}

// tenants returns the virtual machines of a host with what they hold.
func (c *Conn) tenants(ctx context.Context, host types.ManagedObjectReference) ([]topology.Tenant, error) {
	v, err := view.NewManager(c.client.Client).CreateContainerView(ctx, host, []string{"VirtualMachine"}, true)
	if err != nil {
		return nil, err
	}
	defer v.Destroy(context.WithoutCancel(ctx)) // it ends with the session, too
	var vms []mo.VirtualMachine
	err = v.Retrieve(ctx, []string{"VirtualMachine"}, []string{"name", "config", "runtime.powerState"}, &vms)
	if err != nil {
		return nil, err
	}
	var all []topology.Tenant
	for i := range vms {
		if t, ok := esxi.Tenant(&vms[i]); ok {
			all = append(all, t)
		}
	}
	return all, nil
}
