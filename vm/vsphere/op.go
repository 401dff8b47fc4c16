//go:build linux

package vsphere

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/vmware/govmomi/fault"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/property"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/rackless/rackless/host/change"
	"github.com/rackless/rackless/lab"
)

// Kinds returns the ops of journals, for a session.
func Kinds(c *Conn) change.Kinds {
	return change.Kinds{
		kindClone:    func() change.Op { return &cloneOp{machine: machine{conn: c}} },
		kindSettings: func() change.Op { return &settingsOp{machine: machine{conn: c}} },
		kindPower:    func() change.Op { return &powerOp{machine: machine{conn: c}} },
		kindHost:     func() change.Op { return &hostOp{conn: c} },
		kindSwitch:   func() change.Op { return &switchOp{conn: c} },

		kindCustomize: func() change.Op { return &customizeOp{machine: machine{conn: c}} },
	}
}

const (
	kindClone    = "vsphere-clone"
	kindSettings = "vsphere-settings"
	kindPower    = "vsphere-power"
	kindHost     = "vsphere-host"
	kindSwitch   = "vsphere-switch"

	kindCustomize = "vsphere-customize"
)

// markKey names a virtual machine's lab. Machines without it are never removed.
const markKey = "rackless.lab"

const absent = ""

type machine struct {
	Name       string `json:"name"`
	Datacenter string `json:"datacenter,omitempty"`
	Folder     string `json:"folder,omitempty"` // "" means the data centre's
	conn       *Conn
}

func (c *Conn) machine(l *lab.Lab, node string) machine {
	return machine{Name: lab.VMName(l.Name, node), Datacenter: l.VSphere.Datacenter, Folder: l.VSphere.Folder, conn: c}
}

func (m *machine) Subject() string { return path.Join(m.Datacenter, m.Folder, m.Name) }

// find returns nil if the machine does not exist.
func (m *machine) find(ctx context.Context) (*object.VirtualMachine, *mo.VirtualMachine, error) {
	_, folder, err := m.conn.place(ctx, m.Datacenter, m.Folder)
	if err != nil {
		return nil, nil, err
	}
	found, err := object.NewSearchIndex(m.conn.client.Client).FindChild(ctx, folder, m.Name)
	if err != nil || found == nil {
		return nil, nil, err
	}
	vm, ok := found.(*object.VirtualMachine)
	if !ok {
		return nil, nil, fmt.Errorf("%s is there, and no virtual machine", m.Name)
	}
	var have mo.VirtualMachine
	err = vm.Properties(ctx, vm.Reference(), []string{"config", "runtime.powerState", "runtime.host"}, &have)
	switch {
	case fault.Is(err, &types.ManagedObjectNotFound{}):
		return nil, nil, nil
	case err == nil && have.Config == nil:
		err = fmt.Errorf("%s: its configuration cannot be read: is its host connected?", m.Name)
	}
	return vm, &have, err
}

func (m *machine) settled(ctx context.Context) (*object.VirtualMachine, *mo.VirtualMachine, error) {
	vm, have, err := m.find(ctx)
	if err == nil && have != nil {
		err = m.conn.awaitTasks(ctx, vm.Reference())
	}
	if err != nil || have == nil {
		return nil, nil, err
	}
	return m.find(ctx)
}

// awaitTasks is needed because tasks continue after a connection was lost.
func (c *Conn) awaitTasks(ctx context.Context, ref types.ManagedObjectReference) error {
	var e mo.ManagedEntity
	pc := property.DefaultCollector(c.client.Client)
	if err := pc.RetrieveOne(ctx, ref, []string{"recentTask"}, &e); err != nil {
		return err
	}
	for _, ref := range e.RecentTask {
		var t mo.Task
		err := pc.RetrieveOne(ctx, ref, []string{"info.state"}, &t)
		if err == nil && (t.Info.State == types.TaskInfoStateQueued || t.Info.State == types.TaskInfoStateRunning) {
			// The object's state shows the result.
			if err := object.NewTask(c.client.Client, ref).WaitEx(ctx); err != nil && ctx.Err() != nil {
				return err
			}
		}
	}
	return nil
}

func finish(ctx context.Context) func(*object.Task, error) error {
	return func(t *object.Task, err error) error {
		if err == nil {
			err = t.WaitEx(ctx)
		}
		return explain(err)
	}
}

func explain(err error) error {
	switch {
	case err == nil:
		return nil
	case fault.Is(err, &types.ConcurrentAccess{}):
		return fmt.Errorf("somebody else has changed it meanwhile: %w", err)
	case fault.Is(err, &types.InvalidPowerState{}):
		return fmt.Errorf("it runs, and this can be changed only while it does not: rackless down, then up: %w", err)
	}
	return err
}

// A cloneOp makes a virtual machine, not started, from a template, or moves one from another host.
type cloneOp struct {
	machine
	Lab      string    `json:"lab"`
	Template string    `json:"template"`
	Host     string    `json:"host"`
	Clone    lab.Clone `json:"clone"`

	Datastore string `json:"datastore,omitempty"` // "" means the template's
	Pool      string `json:"pool,omitempty"`      // "" means the host's
}

func (o *cloneOp) Kind() string { return kindClone }

// Read returns the machine's lab, with its host if that is another, or "?" without a lab.
func (o *cloneOp) Read(ctx context.Context, _ *change.System) (change.State, error) {
	_, have, err := o.find(ctx)
	if err != nil || have == nil {
		return absent, err
	}
	mark := parameter(markKey).get(have.Config)
	if mark == "" {
		return "?", nil
	}
	var at types.ManagedObjectReference
	if have.Runtime.Host != nil {
		at = *have.Runtime.Host
	}
	host, err := o.conn.hostName(ctx, at)
	if host != o.Host {
		mark += elsewhere + host
	}
	return change.State(mark), err
}

// elsewhere separates a lab from the host to leave.
const elsewhere = " on "

// from returns the host to leave, or "".
func (o *cloneOp) from(s change.State) string {
	mark, host, _ := strings.Cut(string(s), elsewhere)
	if mark != o.Lab {
		return ""
	}
	return host
}

func (o *cloneOp) Done(s change.State) bool { return string(s) == o.Lab }

func (o *cloneOp) Do(ctx context.Context, s *change.System) error {
	f, folder, err := o.conn.place(ctx, o.Datacenter, o.Folder)
	if err != nil {
		return err
	}
	template, err := f.VirtualMachine(ctx, o.Template)
	if err != nil {
		return err
	}
	// One requested before the connection was lost is not repeated.
	if err := o.conn.awaitTasks(ctx, template.Reference()); err != nil {
		return err
	}
	switch now, err := o.Read(ctx, s); {
	case err != nil:
		return err
	case o.Done(now):
		return nil
	case o.from(now) != "":
		return o.move(ctx)
	case now != absent:
		return fmt.Errorf("%s is there, and not of lab %s: give it another name, or the lab another folder", o.Name,
			o.Lab)
	}
	where, err := o.location(ctx)
	if err != nil {
		return err
	}
	mark := []types.BaseOptionValue{&types.OptionValue{Key: markKey, Value: o.Lab}}
	spec := types.VirtualMachineCloneSpec{Location: *where, Config: &vmSpec{ExtraConfig: mark}}
	if o.Clone == lab.CloneLinked {
		var have mo.VirtualMachine
		if err := template.Properties(ctx, template.Reference(), []string{"snapshot"}, &have); err != nil {
			return err
		}
		if have.Snapshot == nil || have.Snapshot.CurrentSnapshot == nil {
			return fmt.Errorf("%s has no snapshot, and a linked clone lies on one: make one, or write clone: full",
				o.Template)
		}
		spec.Snapshot = have.Snapshot.CurrentSnapshot
		spec.Location.DiskMoveType = string(types.VirtualMachineRelocateDiskMoveOptionsCreateNewChildDiskBacking)
	}
	return finish(ctx)(template.Clone(ctx, folder, o.Name, spec))
}

// move also moves disks to the lab file's datastore, if any.
func (o *cloneOp) move(ctx context.Context) error {
	vm, have, err := o.settled(ctx)
	if err != nil || have == nil {
		return err
	}
	if now, err := o.Read(ctx, nil); err != nil || o.Done(now) {
		return err
	}
	where, err := o.location(ctx)
	if err != nil {
		return err
	}
	return finish(ctx)(vm.Relocate(ctx, *where, types.VirtualMachineMovePriorityDefaultPriority))
}

func (o *cloneOp) location(ctx context.Context) (*types.VirtualMachineRelocateSpec, error) {
	h, err := o.conn.host(ctx, o.Host)
	if err != nil {
		return nil, err
	}
	f, _, err := o.conn.place(ctx, o.Datacenter, o.Folder)
	if err != nil {
		return nil, err
	}
	pool, err := h.ResourcePool(ctx)
	if o.Pool != "" {
		pool, err = f.ResourcePool(ctx, o.Pool)
	}
	if err != nil {
		return nil, err
	}
	spec := &types.VirtualMachineRelocateSpec{Host: new(h.Reference()), Pool: new(pool.Reference())}
	if o.Datastore != "" {
		store, err := f.Datastore(ctx, o.Datastore)
		if err != nil {
			return nil, err
		}
		spec.Datastore = new(store.Reference())
	}
	return spec, nil
}

// Restore removes the machine with its disks, if it belongs to the lab.
func (o *cloneOp) Restore(ctx context.Context, s *change.System, _ change.State) error {
	f, _, err := o.conn.place(ctx, o.Datacenter, o.Folder)
	if err != nil {
		return err
	}
	// A removed template has none.
	if template, err := f.VirtualMachine(ctx, o.Template); err == nil {
		if err := o.conn.awaitTasks(ctx, template.Reference()); err != nil {
			return err
		}
	}
	vm, have, err := o.settled(ctx)
	if err != nil || have == nil || parameter(markKey).get(have.Config) != o.Lab {
		return err
	}
	if have.Runtime.PowerState != types.VirtualMachinePowerStatePoweredOff {
		if err := finish(ctx)(vm.PowerOff(ctx)); err != nil {
			return err
		}
	}
	return finish(ctx)(vm.Destroy(ctx))
}

type settingsOp struct {
	machine
	Want map[string]string `json:"want"`
}

func (o *settingsOp) Kind() string { return kindSettings }

// Read returns present values.
func (o *settingsOp) Read(ctx context.Context, _ *change.System) (change.State, error) {
	_, have, err := o.find(ctx)
	if err != nil || have == nil {
		return absent, err
	}
	return change.Encode(o.read(have.Config))
}

func (o *settingsOp) read(c *vmConfig) (map[string]string, error) {
	now := map[string]string{}
	for name := range o.Want {
		s, err := recorded(name)
		if err != nil {
			return nil, err
		}
		now[name] = s.get(c)
	}
	return now, nil
}

func (o *settingsOp) Done(s change.State) bool {
	now, err := change.Decode[map[string]string](s)
	return err == nil && maps.Equal(now, o.Want)
}

func (o *settingsOp) Do(ctx context.Context, _ *change.System) error { return o.write(ctx, o.Want) }

func (o *settingsOp) Restore(ctx context.Context, _ *change.System, before change.State) error {
	want, err := change.Decode[map[string]string](before)
	if err != nil {
		return err
	}
	return o.write(ctx, want)
}

// Restored accepts a missing machine.
func (o *settingsOp) Restored(before, now change.State) bool { return now == absent || now == before }

// write changes all at once. It fails if somebody changes the machine meanwhile.
func (o *settingsOp) write(ctx context.Context, want map[string]string) error {
	vm, have, err := o.settled(ctx)
	if err != nil || have == nil {
		return err
	}
	spec := vmSpec{ChangeVersion: have.Config.ChangeVersion}
	differs := false
	for _, name := range order(slices.Collect(maps.Keys(want))) {
		s, err := recorded(name)
		if err != nil {
			return err
		}
		if s.get(have.Config) == want[name] {
			continue
		}
		differs = true
		if err := s.set(&spec, have.Config, want[name]); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	if !differs {
		return nil
	}
	return finish(ctx)(vm.Reconfigure(ctx, spec))
}

type powerOp struct{ machine }

func (o *powerOp) Kind() string { return kindPower }

func (o *powerOp) Read(ctx context.Context, _ *change.System) (change.State, error) {
	_, have, err := o.find(ctx)
	if err != nil || have == nil {
		return absent, err
	}
	return change.State(have.Runtime.PowerState), nil
}

const poweredOn = change.State(types.VirtualMachinePowerStatePoweredOn)

func (o *powerOp) Done(s change.State) bool { return s == poweredOn }

func (o *powerOp) Do(ctx context.Context, _ *change.System) error {
	vm, have, err := o.settled(ctx)
	switch {
	case err != nil:
		return err
	case have == nil:
		return fmt.Errorf("%s is gone", o.Name)
	case o.Done(change.State(have.Runtime.PowerState)):
		return nil
	}
	return finish(ctx)(vm.PowerOn(ctx))
}

func (o *powerOp) Restore(ctx context.Context, _ *change.System, before change.State) error {
	vm, have, err := o.settled(ctx)
	if err != nil || have == nil || !o.Done(change.State(have.Runtime.PowerState)) || o.Done(before) {
		return err
	}
	return finish(ctx)(vm.PowerOff(ctx))
}

// Restored reports whether the machine is off again, or gone.
func (o *powerOp) Restored(before, now change.State) bool { return now == absent || now == before }
