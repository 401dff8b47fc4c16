package vsphere

import (
	"context"

	"github.com/vmware/govmomi/view"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/rackless/rackless/machine/dump/esxi"
	"github.com/rackless/rackless/machine/topology"
)

func (c *Conn) tenants(ctx context.Context, host types.ManagedObjectReference) ([]topology.Tenant, error) {
	v, err := view.NewManager(c.client.Client).CreateContainerView(ctx, host, []string{"VirtualMachine"}, true)
	if err != nil {
		return nil, err
	}
	defer v.Destroy(context.WithoutCancel(ctx)) // also ends with the session
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
