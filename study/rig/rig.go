// Package rig sets up a lab and its machine for a cell of a study, measures there, and records the state of the
// machine. Closing a rig undoes its changes. The interface site hides the differences between emulated labs and labs on
// a host.
package rig

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/bench/tool"
	"github.com/rackless/rackless/host/change"
	"github.com/rackless/rackless/host/tune"
	"github.com/rackless/rackless/internal/parallel"
	"github.com/rackless/rackless/internal/userfile"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/rack/mpi"
	"github.com/rackless/rackless/rdma/fabric"
	"github.com/rackless/rackless/study"
	"github.com/rackless/rackless/vm/guest"
)

// A Rig is a lab with its machine, set up for a study.
type Rig struct {
	Progress func(string) // of long steps; may be nil
	// Look, if set, is called once the first cell's lab is up, before impairments and load. An error fails the run; the
	// next calls it again.
	Look func(context.Context, *rack.Rack) error

	dirs    rack.Dirs
	spec    *study.Spec
	file    string // path of the lab file
	text    []byte
	options rack.Options
	limit   time.Duration // time limit of a tool; 0 is bench's

	site      site
	machine   machine
	all       topology.CPUSet // CPUs available to this process
	protected topology.CPUSet // CPUs of nodes
	looked    bool            // Look has returned nil
	dissolved bool            // Load has removed prepare's CPU partition

	rack     *rack.Rack // nil before the first Apply
	lab      *lab.Lab
	settings map[string]string // of the applied cell
	load     contender         // may be nil
	spent    float64           // CPU seconds of ended loads and programs outside of nodes
	seen     map[int]float64   // CPU seconds by nodes', switches' and helpers' process

	flows *bench.Runner
}

// A site is the platform of a study's lab.
type site interface {
	// survey reads the CPUs of the lab and the like.
	survey() error
	// check is called for all cells before the first run, so that a study does not fail after hours.
	check(l *lab.Lab, settings map[string]string) error
	// ready returns a [BootError] if another boot is needed.
	ready(settings map[string]string) error
	// apply brings up everything but load.
	apply(ctx context.Context, l *lab.Lab, settings map[string]string) error
	restore(ctx context.Context) error
	// loadCPUs returns the CPUs of load at a level of isolation. outside is set if load must leave systemd's slices,
	// which prepare has confined.
	loadCPUs(isolation string) (cpus topology.CPUSet, outside bool)
	// accelerator guesses if the user selected none.
	accelerator() string
	// helpers returns processes that work for the lab besides nodes and switch.
	helpers() []int
	describe(s *study.HostState)
	environment() []study.Fact
}

// New reads the lab file and checks the machine, without starting anything. planner may be nil unless keys of a lab
// file on this host are factors.
func New(dirs rack.Dirs, spec *study.Spec, labFile string, o rack.Options, planner Planner) (*Rig, error) {
	r := &Rig{dirs: dirs, spec: spec, file: labFile, options: o, machine: machine{root: os.DirFS("/")},
		seen: map[int]float64{}}
	// Only prepared hosts have a placement.
	r.site = &emulatedSite{r}
	if o.Place != nil {
		r.site = &hostSite{Rig: r, place: o.Place, planner: planner, plans: map[string]*plan.Plan{}}
	}
	var err error
	if r.text, err = userfile.Read(labFile, userfile.Text); err != nil {
		return nil, err
	}
	if r.all, err = ownCPUs(); err != nil {
		return nil, err
	}
	if err := r.site.survey(); err != nil {
		return nil, err
	}
	for _, m := range spec.Measure {
		_, incast := m.Incast()
		if _, err := tool.EngineByName(m.Test); err != nil && !incast {
			return nil, fmt.Errorf("measure: %w", err)
		}
		for _, place := range []bench.Place{{CPUs: m.CPU, Memory: m.NUMA}, {CPUs: m.ServerCPU, Memory: m.ServerNUMA}} {
			if err := place.Check(); err != nil {
				return nil, fmt.Errorf("measure: %s: %w", m.Test, err)
			}
		}
	}
	// An impossible cell would end the study hours later.
	for _, c := range spec.Cells() {
		if err := r.check(spec.Settings(c)); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// LabText returns the text of the lab file.
func (r *Rig) LabText() []byte { return r.text }

func (r *Rig) check(settings map[string]string) error {
	if level, ok := settings[study.FactorContention]; ok {
		if kind, n := study.Load(level); n > 0 {
			if err := loadTool(); err != nil {
				return fmt.Errorf("factor %s: level %s: %w of kind %s", study.FactorContention, level, err, kind)
			}
		}
	}
	l, err := r.labFor(settings)
	if err != nil {
		return err
	}
	// site.check uses the cell's lab.
	r.lab = l
	if err := r.site.check(l, settings); err != nil {
		return err
	}
	if err := r.checkIncast(l); err != nil {
		return err
	}
	for _, m := range r.spec.Measure {
		name := r.spec.TestName(m, settings)
		e, err := tool.EngineByName(name)
		switch _, incast := m.Incast(); {
		case incast && name != m.Test:
			return fmt.Errorf("measure: %s: it takes no words of factors, and one makes it %s", m.Test, name)
		case err != nil && !incast:
			return fmt.Errorf("measure: %w", err)
		}
		if nic, ok := e.NIC(); ok {
			if err := r.checkNIC(l, e.Name, nic); err != nil {
				return err
			}
		}
		if g, ok := e.Group(); ok {
			if _, _, err := (&mpi.Launcher{Lab: l}).Size(study.Group(g, settings)); err != nil {
				return fmt.Errorf("measure: %s: %w", m.Test, err)
			}
		}
	}
	client, server, err := r.pair(l)
	if err != nil || settings[study.FactorContention] != study.ContentionNetwork {
		return err
	}
	if n := len(others(l, client, server)); n < 2 {
		return fmt.Errorf("factor %s: level %s: it takes two nodes with a NIC that are not measured, and lab %s has "+
			"%s besides %s and %s: give nodes a count of 4", study.FactorContention, study.ContentionNetwork, l.Name,
			[]string{"none", "one"}[n], client, server)
	}
	return nil
}

// checkNIC wants the pair to have a NIC of this number.
func (r *Rig) checkNIC(l *lab.Lab, test string, nic int) error {
	client, server, err := r.pair(l)
	for _, n := range l.Nodes {
		if err == nil && (n.Name == client || n.Name == server) && nic >= len(n.NICs) {
			err = fmt.Errorf("measure: %s: node %s has no NIC %d: it has %d, numbered from 0", test, n.Name, nic,
				len(n.NICs))
		}
	}
	return err
}

// Ready returns a [BootError] if a cell needs another boot.
func (r *Rig) Ready(settings map[string]string) error { return r.site.ready(settings) }

// Apply sets up a cell, except for its load.
func (r *Rig) Apply(ctx context.Context, settings map[string]string) error {
	if err := r.Rest(ctx); err != nil {
		return err
	}
	l, err := r.labFor(settings)
	if err != nil {
		return err
	}
	r.settings = settings
	return r.site.apply(ctx, l, settings)
}

// Load starts the load of an applied cell, and returns once it is running.
func (r *Rig) Load(ctx context.Context, settings map[string]string) error {
	cpus, outside := r.site.loadCPUs(settings[study.FactorIsolation])
	if outside {
		var err error
		if r.dissolved, err = tune.MachinePartition().Dissolve(ctx, r.system()); err != nil {
			return err
		}
	}
	switch kind, workers := study.Load(settings[study.FactorContention]); {
	case workers > 0:
		l, err := startLoad(kind, workers, cpus, outside)
		if err != nil {
			return err
		}
		r.load = l
	case kind == study.ContentionNetwork:
		client, server, err := r.pair(r.lab)
		if err != nil {
			return err
		}
		r.load = startTraffic(r.rack, others(r.lab, client, server))
	default:
		return nil
	}
	return r.load.settle(ctx)
}

// look calls Look until it succeeds once.
func (r *Rig) look(ctx context.Context) error {
	if r.Look == nil || r.looked {
		return nil
	}
	r.tell("look at the lab")
	// A killed study may leave links impaired.
	if err := r.repairLinks(ctx); err != nil {
		return err
	}
	if err := r.Look(ctx, r.rack); err != nil {
		return err
	}
	r.looked = true
	return nil
}

func (r *Rig) tell(what string) {
	if r.Progress != nil {
		r.Progress(what)
	}
}

// upWith does nothing for a running lab.
func (r *Rig) upWith(ctx context.Context, l *lab.Lab, o rack.Options) error {
	// Details would hide the progress of days.
	o.Progress = func(e rack.Event) {
		if e.Step != "" {
			r.tell(e.Step)
		}
	}
	r.remember() // CPU times are lost with stopped nodes
	if err := r.closeRack(); err != nil {
		return err
	}
	var err error
	r.rack, err = rack.Up(ctx, r.dirs, l, o)
	r.lab = l
	if err != nil {
		return err
	}
	return r.setUp(ctx)
}

func (r *Rig) setUp(ctx context.Context) error {
	if len(r.spec.Setup) == 0 {
		return nil
	}
	script := "set -e\n" + strings.Join(r.spec.Setup, "\n")
	return parallel.InOrder(ctx, r.lab.Nodes, func(ctx context.Context, n lab.Node) error {
		res, err := r.rack.Run(ctx, n.Name, guest.Command{Argv: []string{"sh", "-c", script}})
		if err == nil && res.ExitCode != 0 {
			err = fmt.Errorf("exit status %d: %s", res.ExitCode, bytes.TrimSpace(append(res.Stderr, res.Stdout...)))
		}
		if err != nil {
			err = fmt.Errorf("setup on %s: %w", n.Name, err)
		}
		return err
	}, func(err error) error { return err })
}

// Rest ends the load and restores the partition that keeps others off the nodes' CPUs.
func (r *Rig) Rest(ctx context.Context) error {
	var err error
	if r.load != nil {
		var spent float64
		spent, err = r.load.stop()
		r.spent += spent
		r.load = nil
	}
	if r.dissolved {
		again := tune.MachinePartition().Do(context.WithoutCancel(ctx), r.system())
		r.dissolved = again != nil
		err = errors.Join(err, again)
	}
	return err
}

func (r *Rig) system() *change.System { return &change.System{Root: "/"} }

// Leave ends the load and leaves the lab as it is, for a caller that takes it down next.
func (r *Rig) Leave() error { return errors.Join(r.Rest(context.Background()), r.closeRack()) }

// Close ends the load, removes impairments, and returns nodes to planned or unrestricted CPUs. The lab stays up.
func (r *Rig) Close() error {
	ctx := context.Background()
	return errors.Join(r.Rest(ctx), r.site.restore(ctx), r.closeRack())
}

func (r *Rig) closeRack() error {
	if r.rack == nil {
		return nil
	}
	err := r.rack.Close()
	r.rack = nil
	return err
}

func (r *Rig) repairLinks(ctx context.Context) error {
	if !slices.ContainsFunc(r.spec.Factors, func(f study.Factor) bool { _, ok := study.LinkKey(f.Name); return ok }) {
		return nil
	}
	return r.setLinks(ctx, fabric.Link{})
}

func (r *Rig) setLinks(ctx context.Context, l fabric.Link) error {
	c, err := r.rack.Switch()
	if err != nil {
		return err
	}
	return c.SetLink(ctx, fabric.AllPorts, l)
}
