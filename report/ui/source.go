package ui

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/diagnose"
	"github.com/rackless/rackless/machine/inspect"
	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/rack/doctor"
	"github.com/rackless/rackless/rack/verify"
	"github.com/rackless/rackless/rdma/fabric"
	"github.com/rackless/rackless/report/hostview"
	"github.com/rackless/rackless/report/live"
	"github.com/rackless/rackless/study"
	"github.com/rackless/rackless/study/conduct"
	"github.com/rackless/rackless/study/document"
	"github.com/rackless/rackless/study/lock"
	"github.com/rackless/rackless/study/record"
	"github.com/rackless/rackless/study/results"
	"github.com/rackless/rackless/study/store"
)

// A Source reads the labs, studies and results of a user.
type Source struct {
	Dirs rack.Dirs
	DB   string    // the database of studies
	Lock lock.Lock // of studies

	mu      sync.Mutex
	details map[string]live.Result // by directory, which never changes
}

var _ live.Source = (*Source)(nil)

// Labs implements live.Source. Unresponsive nodes of one lab do not delay the others.
func (u *Source) Labs(ctx context.Context) ([]live.Lab, error) {
	racks, err := rack.OpenAll(u.Dirs)
	labs := make([]live.Lab, len(racks))
	var wg sync.WaitGroup
	for i, r := range racks {
		wg.Go(func() {
			defer r.Close()
			labs[i] = liveLab(r.Describe(ctx))
			labs[i].Emulated = r.Emulated()
			if k, err := verify.LastRecord(u.Dirs, r.Lab.Name); err == nil && k.At.After(labs[i].Created) {
				labs[i].Checked, labs[i].Findings = k.At, k.Findings
			}
		})
	}
	wg.Wait()
	return labs, err
}

func liveLab(l rack.Description) live.Lab {
	out := live.Lab{Name: l.Name, Ready: l.Ready, HasSwitch: l.Switch != "none", Driver: l.Driver, Accelerator: l.Accel,
		Reason: l.Reason, Created: l.Created}
	for _, n := range l.Nodes {
		node := live.Node{Name: n.Name, State: n.State, Error: n.Error, CPUs: n.CPUs, Memory: n.Memory}
		if n.Started != nil {
			node.Started = *n.Started
		}
		for _, c := range n.NICs {
			node.NICs = append(node.NICs, live.NIC{Name: c.Name, Address: c.Address, RDMA: c.RDMA, GID: c.GID})
		}
		out.Nodes = append(out.Nodes, node)
	}
	return out
}

// Fabric implements live.Source.
func (u *Source) Fabric(ctx context.Context, name string) (live.Fabric, error) {
	r, err := rack.Open(u.Dirs, name)
	if err != nil {
		return live.Fabric{}, err
	}
	defer r.Close()
	c, err := r.Switch()
	if err != nil {
		return live.Fabric{}, err
	}
	have, err := c.Counters(ctx)
	if err != nil {
		return live.Fabric{}, err
	}
	out := liveFabric(have, r.Lab, r.Ports)
	if r.Lab.Fabric.Topology != "" {
		flows, err := c.Flows(ctx)
		if err != nil {
			return live.Fabric{}, err
		}
		out.Flows = flows.Flows
	}
	return out, nil
}

// liveFabric names ports after NICs, in whose order ports returns a node's ports.
func liveFabric(c fabric.Counters, l *lab.Lab, ports func(node string) []string) live.Fabric {
	type nic struct{ node, name string }
	of := make(map[string]nic)
	// Readers of a page know nodes and NICs.
	for _, n := range l.Nodes {
		for i, port := range ports(n.Name) {
			of[port] = nic{n.Name, n.NICs[i].Name}
		}
	}
	out := live.Fabric{At: c.At, Started: c.Started}
	for _, p := range c.Ports {
		out.Ports = append(out.Ports, live.Port{PortCounters: p, Node: of[p.Name].node, NIC: of[p.Name].name,
			Impaired: linkWords(p.Link)})
	}
	return out
}

// linkWords returns text such as "set down, delay 50us, loss 0.1%", or "".
func linkWords(l fabric.Link) string {
	var words []string
	if l.Down {
		words = append(words, "set down")
	}
	for _, key := range fabric.LinkKeys() {
		// A seed alone impairs nothing.
		if v := l.Get(key); v != "0" && key != "seed" {
			words = append(words, key+" "+v)
		}
	}
	return strings.Join(words, ", ")
}

// RDMA implements live.Source. It runs a program in every node, so it fails while a study measures.
func (u *Source) RDMA(ctx context.Context, name string) ([]live.NodeRDMA, error) {
	by, err := u.Lock.Holder() // busy nodes of any lab would disturb it
	if err != nil {
		return nil, err
	}
	if by != nil {
		return nil, errors.New("a study measures, and must not be disturbed")
	}
	r, err := rack.Open(u.Dirs, name)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	all := make([]live.NodeRDMA, len(r.Lab.Nodes))
	room := make(chan struct{}, 16) // concurrent nodes, which share this machine's CPUs
	var wg sync.WaitGroup
	for i, n := range r.Lab.Nodes {
		wg.Go(func() {
			room <- struct{}{}
			defer func() { <-room }()
			all[i].Node = n.Name
			f, err := r.Facts(ctx, n.Name)
			if err != nil {
				all[i].Err = err
				return
			}
			for _, d := range f.RDMADevices() {
				c := f.Counters[d.Name]
				all[i].Devices = append(all[i].Devices, live.RDMADevice{Name: d.Name, Port: c.Port, HW: c.HW})
			}
		})
	}
	wg.Wait()
	return all, nil
}

// Host implements live.Source. Booting a VM to check KVM would disturb measurements.
func (u *Source) Host(ctx context.Context) (live.Host, error) {
	h, err := inspect.Read(ctx, inspect.Live())
	if err != nil {
		return live.Host{}, err
	}
	r := doctor.Look(ctx, doctor.Options{Dirs: u.Dirs, NoBoot: true, Progress: &rack.Progress{}})
	uses := []live.HostUse{{For: "emulated labs", Checks: r.Checks}, {For: "emulated hosts", Checks: r.Emulated.Checks},
		{For: "labs on its own devices", Checks: r.RealHost.Checks}}
	return live.Host{Document: hostview.NewDocument(h, diagnose.Host(h)), Doctor: uses}, nil
}

// Studies implements live.Source. SQL counts the runs: there may be millions of figures.
func (u *Source) Studies(ctx context.Context) ([]live.Study, error) {
	db, err := store.OpenReader(ctx, u.DB)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer db.Close()
	studies, err := db.Studies(ctx)
	if err != nil {
		return nil, err
	}
	outcomes, err := conduct.Outcomes(ctx, db)
	if err != nil {
		return nil, err
	}
	measuring, err := lock.HeldIn(u.Dirs.Run)
	if err != nil {
		return nil, err
	}
	var all []live.Study
	latest, at := -1, time.Time{}
	for i, s := range studies {
		o := outcomes[s.ID]
		all = append(all, liveStudy(s, o))
		// The study that started a run last is the running one.
		began := s.Created
		if o.Last.After(began) {
			began = o.Last
		}
		if latest < 0 || began.After(at) {
			latest, at = i, began
		}
	}
	for i := range all {
		all[i].Running = measuring && i == latest
		if !all[i].Running {
			all[i].Cell = "" // of an interrupted run
		}
	}
	return all, nil
}

// liveStudy estimates by completed runs, because failed ones end early. A budget may end the study sooner.
func liveStudy(s *store.Study, o store.Outcome) live.Study {
	out := live.Study{Name: s.Name, Created: s.Created}
	var spec study.Spec
	if err := json.Unmarshal(s.Spec, &spec); err != nil {
		out.Error = err.Error()
		return out
	}
	out.Question, out.Lab = spec.Question, cmp.Or(spec.Lab, spec.Simulation)
	perBlock := len(spec.Block(1))
	out.Total = spec.Blocks * perBlock
	out.Done, out.Failed, out.Disturbed, out.Emulated = o.Done, o.Failed, o.Disturbed, o.Emulated
	var cell []string
	for _, f := range spec.Factors {
		if level, ok := o.Cell[f.Name]; ok {
			cell = append(cell, f.Name+"="+level)
		}
	}
	out.Cell = strings.Join(cell, " ")
	made := out.Done + o.GivenUp
	if out.Total > 0 && made >= out.Total {
		out.Complete = true
		return out
	}
	if out.Done == 0 {
		return out
	}
	// The plan does not tell how long a boot or a tool takes.
	each := o.Took / float64(out.Done)
	if out.Total > 0 {
		out.Left = time.Duration(float64(out.Total-made) * each * float64(time.Second))
	}
	if spec.Budget > 0 {
		left := spec.Budget.Seconds() - o.Spent
		// As the conductor decides: a block that no longer fits is not started.
		if perBlock > 0 && made%perBlock == 0 && float64(perBlock)*each > left {
			out.Complete, out.Left = true, 0
			return out
		}
		if budget := time.Duration(max(0, left) * float64(time.Second)); out.Left == 0 || budget < out.Left {
			out.Left = budget
		}
	}
	return out
}

// Study implements live.Source.
func (u *Source) Study(ctx context.Context, name string) (*study.Document, error) {
	if ext := filepath.Ext(name); ext == ".yaml" || ext == ".yml" {
		return nil, fmt.Errorf("study %q: not a name of a study", name) // it would be read as a file
	}
	db, err := document.Open(ctx, u.DB)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	return document.Load(ctx, db, name, "", nil)
}

func (u *Source) results() results.Store { return results.Store{Data: u.Dirs.Data} }

// Results implements live.Source. Results that no page lists are only named: there may be thousands.
func (u *Source) Results(ctx context.Context) ([]live.Result, error) {
	stored, err := u.results().List("")
	if err != nil {
		return nil, err
	}
	slices.Reverse(stored)
	seen := make(map[string]bool)
	all := make([]live.Result, len(stored))
	for i, r := range stored {
		all[i] = live.Result{Lab: r.Lab, Time: r.Time}
		// The metrics need the last one of each lab.
		if ctx.Err() == nil && (i < live.MaxResults || !seen[r.Lab]) {
			all[i] = u.detail(r)
		}
		seen[r.Lab] = true
	}
	return all, context.Cause(ctx)
}

func (u *Source) detail(r results.Result) live.Result {
	// A stored result never changes.
	u.mu.Lock()
	have, ok := u.details[r.Dir]
	u.mu.Unlock()
	if ok {
		return have
	}
	out := live.Result{Lab: r.Lab, Time: r.Time, Detailed: true}
	data, err := results.Load(r.Dir)
	if err != nil {
		out.Error = err.Error() // not cached: it may be repaired
		return out
	}
	out.Generated, out.Emulated, out.Findings = data.Generated, data.Emulated, data.Findings
	for _, s := range data.Samples {
		if s.Error != "" {
			out.Failed++
			continue
		}
		out.Figures++
		out.Emulated = out.Emulated || s.Emulated
		out.Tests = lists.Add(out.Tests, s.Test)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.details == nil {
		u.details = make(map[string]live.Result)
	}
	u.details[r.Dir] = out
	return out
}

// Result implements live.Source.
func (u *Source) Result(_ context.Context, r live.Result) (record.Record, error) {
	return results.Load(filepath.Join(u.results().Dir(), r.Lab, r.Time))
}
