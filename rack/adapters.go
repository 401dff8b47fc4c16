package rack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rackless/rackless/internal/atomicfile"
	"github.com/rackless/rackless/internal/wait"
	"github.com/rackless/rackless/rack/verify/checks"
	"github.com/rackless/rackless/rdma/fabric"
	"github.com/rackless/rackless/vm"
)

// NoAdapter is the state of a node that lost an emulated adapter. QEMU does not reconnect, so Up restarts the node.
const NoAdapter vm.State = "no-adapter"

// An Adapted runtime emulates the adapters of its nodes.
type Adapted interface {
	checks.AdapterReader
	// SetFault makes an adapter fail, or work as before if f is empty.
	SetFault(ctx context.Context, node string, nic int, f checks.Fault) error
	// ResetAdapter returns when the node works as before.
	ResetAdapter(ctx context.Context, node string, nic int) error
}

// Adapters implements checks.AdapterReader.
func (r *Rack) Adapters(ctx context.Context) ([]checks.Adapter, error) {
	if a, ok := r.runtime.(Adapted); ok {
		return a.Adapters(ctx)
	}
	return nil, nil
}

// Claims implements checks.ClaimReader.
func (r *Rack) Claims(ctx context.Context) (all []string, err error) {
	if !r.driver.Emulated {
		return nil, nil
	}
	c, err := r.Switch()
	if err != nil {
		return nil, err
	}
	have, err := c.Counters(ctx)
	if err != nil {
		return nil, err
	}
	for _, p := range have.Ports {
		if p.Foreign > 0 {
			all = append(all, fmt.Sprintf("%s has sent frames from the MAC address of another node's NIC", p.Name))
		}
	}
	adapters, err := r.Adapters(ctx)
	for _, a := range adapters {
		if a.Refused > 0 {
			all = append(all, fmt.Sprintf("%s has claimed a RoCE address of another node's NIC", a.Node))
		}
	}
	return all, err
}

// HasHostCards reports to package check whether nodes may have cards of a host.
func (r *Rack) HasHostCards() bool { return !r.driver.Emulated }

// Adapted returns the runtime that controls a node's adapter, and the NIC's index. An empty nic means the first.
func (r *Rack) Adapted(node, nic string) (Adapted, int, error) {
	for _, n := range r.Lab.Nodes {
		if n.Name != node {
			continue
		}
		a, ok := r.runtime.(Adapted)
		if !ok || !n.ConnectX() {
			return nil, 0, fmt.Errorf("node %s has no emulated ConnectX: its lab file says nic: %s; use nic: "+
				"connectx-4-lx", node, n.NIC)
		}
		for i := range n.NICs {
			if nic == "" || n.NICs[i].Name == nic {
				return a, i, nil
			}
		}
		return nil, 0, fmt.Errorf("node %s has no NIC %s", node, nic)
	}
	return nil, 0, fmt.Errorf("lab %s has no node %s", r.Lab.Name, node)
}

// adapterWorks returns an error if an adapter has failed: its figures would not be the lab's.
func (r *Rack) adapterWorks(node, nic string) error {
	all, err := r.Adapters(context.Background())
	if err != nil {
		return err
	}
	return checks.Broken(r.Lab, all, node, nic)
}

// Fail gives an adapter a fault, for the time last if that is set.
func Fail(ctx context.Context, x Adapted, node string, nic int, f checks.Fault, last time.Duration) error {
	if err := x.SetFault(ctx, node, nic, f); err != nil || last == 0 {
		return err
	}
	_ = wait.For(ctx, last) // an interrupted wait also ends the fault
	return x.SetFault(context.WithoutCancel(ctx), node, nic, "")
}

// linksFile holds the requested links by port.
const linksFile = "links.json"

// SetLinks changes links, validated by fabric.ChangeLinks, and returns the counters afterwards. It records all links as
// wanted, or removes the record if none is impaired then.
func (r *Rack) SetLinks(ctx context.Context, c *fabric.Client, changes []fabric.PortLink) (fabric.Counters, error) {
	for _, p := range changes {
		if err := c.SetLink(ctx, p.Name, p.Link); err != nil {
			return fabric.Counters{}, err
		}
	}
	after, err := c.Counters(ctx)
	if err != nil {
		return after, err
	}
	if slices.ContainsFunc(after.Ports, func(p fabric.PortCounters) bool { return p.Link.Impaired() }) {
		return after, r.RecordLinks(after)
	}
	// Without requested links, studies and other programs may change links freely.
	if err := os.Remove(filepath.Join(r.Dir, linksFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return after, err
	}
	return after, nil
}

// RecordLinks records the present links as wanted.
func (r *Rack) RecordLinks(have fabric.Counters) error {
	want := make(map[string]fabric.Link)
	for _, p := range have.Ports {
		want[p.Name] = p.Link
	}
	return atomicfile.WriteJSON(filepath.Join(r.Dir, linksFile), want)
}

// LinksSet reports whether links are recorded.
func (r *Rack) LinksSet() bool {
	_, err := os.Stat(filepath.Join(r.Dir, linksFile))
	return err == nil
}

// SwitchLinks implements checks.LinkReader, except for shut ports.
func (r *Rack) SwitchLinks(ctx context.Context) ([]checks.SwitchLink, error) {
	want := make(map[string]fabric.Link)
	err := atomicfile.ReadJSON(filepath.Join(r.Dir, linksFile), &want)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	c, err := r.Switch()
	if err != nil {
		return nil, err
	}
	have, err := c.Counters(ctx)
	if err != nil {
		return nil, err
	}
	var out []checks.SwitchLink
	for _, p := range have.Ports {
		w, known := want[p.Name]
		if !known {
			continue
		}
		l := checks.SwitchLink{Port: p.Name, Have: "as set", Want: "as set"}
		var is, asked, flags []string
		for _, key := range fabric.LinkKeys() {
			if a, b := p.Link.Get(key), w.Get(key); a != b {
				is, asked, flags = append(is, key+" "+a), append(asked, key+" "+b), append(flags, "--"+key+" "+b)
			}
		}
		if len(is) > 0 {
			l.Have, l.Want = strings.Join(is, ", "), strings.Join(asked, ", ")
			l.Fix = fmt.Sprintf("rackless link set %s --port %s %s", r.Lab.Name, p.Name, strings.Join(flags, " "))
		}
		out = append(out, l)
	}
	return out, nil
}
