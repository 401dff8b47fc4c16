// Package vcenter is the driver "vsphere" of package rack: each node is a virtual machine of an ESXi host, with the
// CPUs, memory and devices from a plan. Up makes the steps of package vsphere, in a journal, which Down undoes; guests
// are reached by VMware Tools.
package vcenter

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/vmware/govmomi/vim25/types"

	"github.com/rackless/rackless/host/change"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/rdma/fabric"
	"github.com/rackless/rackless/vm"
	"github.com/rackless/rackless/vm/guest"
	"github.com/rackless/rackless/vm/vsphere"
)

func init() {
	rack.Register(rack.Driver{
		Name:  string(lab.DriverVSphere),
		Where: "in vSphere",
		// Disks of many gigabytes are removed one by one.
		DownLimit:  30 * time.Minute,
		NeedsPlace: true,
		Check:      supported,
		Survey:     survey,
		New:        func(r *rack.Rack) rack.Runtime { return &runtime{Rack: r} },
	})
}

// supported refuses images, because nodes are clones.
func supported(l *lab.Lab) error {
	for _, n := range l.Nodes {
		if n.Image != lab.DefaultImage {
			return fmt.Errorf("lab %s: node %s asks for image %s, and driver vsphere clones %s: leave image out",
				l.Name, n.Name, n.Image, l.VSphere.Template)
		}
	}
	return nil
}

func survey(ctx context.Context, l *lab.Lab, place *rack.Placement) ([]change.Result, error) {
	c, err := vsphere.Open(ctx, "")
	if err != nil {
		return nil, err
	}
	defer c.Close(context.WithoutCancel(ctx)) // a session also ends by itself
	steps, err := vsphere.Steps(ctx, c, l, place.Plan, place.Host)
	if err != nil {
		return nil, err
	}
	return change.Survey(ctx, new(change.System), steps)
}

type runtime struct {
	*rack.Rack
	conn rack.Conn[vsphere.Conn]
	kept []string // by the last Down
}

func (r *runtime) session(ctx context.Context) (*vsphere.Conn, error) {
	return r.conn.Open(func() (*vsphere.Conn, error) { return vsphere.Open(ctx, r.State.URI) })
}

// Close ends the session.
func (r *runtime) Close() error {
	return r.conn.Close(func(c *vsphere.Conn) error {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		c.Close(ctx) // vCenter ends the session of a lost connection
		return nil
	})
}

// journal survives a restart, unlike a lab's directory.
func (r *runtime) journal() string {
	return filepath.Join(r.Dirs.Data, "vsphere", r.Lab.Name, "journal")
}

// Up makes the remaining steps.
func (r *runtime) Up(ctx context.Context, old *rack.State, o rack.Options, p *rack.Progress) error {
	p.Begin("vSphere")
	if old != nil {
		r.State.URI = old.URI
	}
	c, err := r.session(ctx)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(r.State.Lab.Nodes, func(n lab.Node) bool { return len(n.Setup) > 0 }) {
		if err := c.ReachesGuests(); err != nil {
			return fmt.Errorf("lab %s has setup: %w", r.Lab.Name, err)
		}
	}
	steps, err := vsphere.Steps(ctx, c, r.State.Lab, o.Place.Plan, o.Place.Host)
	if err != nil {
		return err
	}
	r.State.URI, r.State.Accel = c.URL, "esxi"
	if err := os.MkdirAll(r.Dir, 0o700); err != nil {
		return err
	}
	if err := r.Save(); err != nil {
		return err
	}
	if err := r.make(ctx, c, steps, p); err != nil {
		return err
	}
	for _, n := range r.State.Lab.Nodes {
		node := &rack.Node{Name: n.Name, Accelerator: r.State.Accel, Started: time.Now().UTC(), Ready: true}
		// A node that has moved has been restarted.
		if old != nil && old.Lab.VSphere.Host == r.Lab.VSphere.Host {
			if have, ok := old.Node(n.Name); ok {
				node.Started = have.Started
			}
		}
		r.State.Nodes = append(r.State.Nodes, node)
	}
	r.State.Ready = true
	return r.Save()
}

func (r *runtime) make(ctx context.Context, c *vsphere.Conn, steps []change.Step, p *rack.Progress) (err error) {
	j, err := change.Open(r.journal(), vsphere.Kinds(c))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, j.Close()) }()
	n := 0
	results, err := vsphere.Make(ctx, j, steps, func(s change.Result) {
		if s.Status == change.Pending {
			p.Note("%s", s.What)
			return
		}
		n++
		p.Count(n, len(steps))
	})
	if err != nil {
		return err
	}
	for _, s := range results {
		if s.Status == change.Boot || s.Status == change.Waiting {
			return &rack.UnfinishedError{Do: fmt.Sprintf("host %s has to be restarted (%s): put it into maintenance "+
				"mode, restart it, then rackless up again; rackless down %s undoes the changes",
				r.Lab.VSphere.Host, s.What, r.Lab.Name)}
		}
	}
	return nil
}

// Down undoes the journal's changes, if any.
func (r *runtime) Down(ctx context.Context) (err error) {
	entries, err := change.ReadJournal(r.journal(), vsphere.Kinds(nil))
	if err != nil {
		return err
	}
	if len(entries) == 0 {
		return nil
	}
	c, err := r.session(ctx)
	if err != nil {
		return err
	}
	j, err := change.Open(r.journal(), vsphere.Kinds(c))
	if err != nil {
		return err
	}
	results, err := change.Rollback(ctx, new(change.System), j, nil)
	for _, res := range results {
		for _, c := range res.Changed {
			r.kept = append(r.kept, c.String())
		}
	}
	if err = errors.Join(err, j.Close()); err != nil {
		return err
	}
	return os.RemoveAll(filepath.Dir(r.journal()))
}

// Kept implements rack.Keeper.
func (r *runtime) Kept() []string { return r.kept }

// NodeState returns the state of the node's virtual machine.
func (r *runtime) NodeState(ctx context.Context, n *rack.Node) (vm.State, error) {
	c, err := r.session(ctx)
	if err != nil {
		return "", err
	}
	s, err := c.PowerState(ctx, r.State.Lab, n.Name)
	switch s {
	case types.VirtualMachinePowerStatePoweredOn:
		return vm.Running, err
	case types.VirtualMachinePowerStateSuspended:
		return vm.Paused, err
	}
	return vm.Dead, err
}

const toolsLimit = 5 * time.Minute

// Agent waits for VMware Tools in a node just started.
func (r *runtime) Agent(ctx context.Context, node string) (*guest.Agent, error) {
	c, err := r.session(ctx)
	if err != nil {
		return nil, err
	}
	limit := time.Duration(0)
	if n, ok := r.State.Node(node); ok {
		limit = toolsLimit - time.Since(n.Started)
	}
	return c.Agent(ctx, r.State.Lab, node, limit)
}

// Console returns an error with the way to find it.
func (r *runtime) Console(_ context.Context, n *rack.Node) (net.Conn, error) {
	return nil, fmt.Errorf("the console of node %s is that of virtual machine %s in the vSphere Client", n.Name,
		lab.VMName(r.Lab.Name, n.Name))
}

// Logs returns nothing: they are in the datastore, which rackless does not read.
func (r *runtime) Logs(string) rack.Logs { return rack.Logs{} }

// Switch returns an error: the NICs are the host's.
func (r *runtime) Switch() (*fabric.Client, error) {
	return nil, fmt.Errorf("lab %s is on NICs of its host: there is no switch of rackless between them", r.Lab.Name)
}

// SwitchState returns SwitchNone.
func (r *runtime) SwitchState() rack.SwitchState { return rack.SwitchNone }
