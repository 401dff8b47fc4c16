// Package rig sets up a lab, emulated or on this host, and the machine below it for a cell of a study, measures there,
// and records the state of the machine. What it changes is gone when it is closed: load ends, links are whole, threads
// may run everywhere again.
//
// What a setting takes differs between emulated labs and labs on a host; the difference is behind
// the interface site.
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

// A Rig is a lab and its machine, ready for a study.
type Rig struct {
	Progress func(string) // told of what takes long; may be nil
	// Look is called once, when the first cell's lab is up, before its links are impaired and load
	// begins; its error ends that run, and with it the study if it stays. May be nil.
	Look func(context.Context, *rack.Rack) error

	dirs    rack.Dirs
	spec    *study.Spec
	file    string // the lab file
	text    []byte
	options rack.Options
	limit   time.Duration // for a tool; 0: bench's own

	site      site
	machine   machine
	all       topology.CPUSet // CPUs that this process may use
	protected topology.CPUSet // the ones that nodes are pinned to
	looked    bool            // Look was called, and found nothing wrong
	dissolved bool            // the nodes have lost the partition of CPUs that prepare made

	rack     *rack.Rack // nil before the first Apply
	lab      *lab.Lab
	settings map[string]string // of the cell that was applied
	load     contender         // nil where there is none
	spent    float64           // CPU seconds of loads and of programs outside of nodes that have ended
	seen     map[int]float64   // CPU seconds of nodes and switches, by process

	flows *bench.Runner // of incasts
}

// A site is what the lab of a study runs on. It knows which settings of a cell are possible there
// and how: on emulated nodes by their threads and their switch, on a host by another plan.
type site interface {
	// survey finds out what the site has, which CPUs are the lab's above all.
	survey() error
	// check returns an error for settings that are not possible. All cells are checked before the first
	// run: a study of hours must not end at a cell that was never possible.
	check(l *lab.Lab, settings map[string]string) error
	// ready returns a [BootError] if the host has to be booted otherwise for the settings.
	ready(settings map[string]string) error
	// apply brings the lab up as the settings have it, but for load.
	apply(ctx context.Context, l *lab.Lab, settings map[string]string) error
	// restore undoes what apply has changed.
	restore(ctx context.Context) error
	// loadCPUs returns the CPUs that load on this machine may use at a level of isolation, and
	// whether it has to leave what prepare confined all slices of systemd to.
	loadCPUs(isolation string) (cpus topology.CPUSet, outside bool)
	// accelerator guesses what will execute the nodes if no accelerator was asked for.
	accelerator() string
	// helpers are processes that work for the lab beside its nodes and its switch.
	helpers() []int
	// describe adds to the state of the host what only the site knows.
	describe(s *study.HostState)
	// environment says where the lab is, for the report.
	environment() []study.Fact
}

// New reads the lab file and finds out what the machine has. Nothing is started. planner is asked
// for labs that are placed on this host, where the lab file is a factor; it may be nil for others.
func New(dirs rack.Dirs, spec *study.Spec, labFile string, o rack.Options, planner Planner) (*Rig, error) {
	r := &Rig{dirs: dirs, spec: spec, file: labFile, options: o, machine: machine{root: os.DirFS("/")},
		seen: map[int]float64{}}
	// Whether there is a placement decides: only labs that a host was prepared for have one.
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
	// What cannot be done is known before anything is measured.
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
	// Every cell is checked now: one that is not possible would otherwise end the study hours later, when its turn
	// comes.
	for _, c := range spec.Cells() {
		if err := r.check(spec.Settings(c)); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// LabText returns the lab file as it was read.
func (r *Rig) LabText() []byte { return r.text }

// check refuses settings of a cell that are not possible here.
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
	// The site asks the rig about its lab, which is that of the cell while it is checked.
	r.lab = l
	if err := r.site.check(l, settings); err != nil {
		return err
	}
	if err := r.checkIncast(l); err != nil {
		return err
	}
	for _, m := range r.spec.Measure {
		e, _ := tool.EngineByName(m.Test) // an incast is none
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

// Ready says whether the host is booted as a cell takes it; a [BootError] if not.
func (r *Rig) Ready(settings map[string]string) error { return r.site.ready(settings) }

// Apply brings lab and machine into a cell, but for its load.
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

// Load starts the load of a cell that was applied. It runs when Load returns.
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

// look has the lab looked at, once.
func (r *Rig) look(ctx context.Context) error {
	if r.Look == nil || r.looked {
		return nil
	}
	r.tell("look at the lab")
	// A study that was killed has left links impaired.
	if err := r.repairLinks(ctx); err != nil {
		return err
	}
	if err := r.Look(ctx, r.rack); err != nil {
		return err
	}
	r.looked = true
	return nil
}

// tell says what is being done.
func (r *Rig) tell(what string) {
	if r.Progress != nil {
		r.Progress(what)
	}
}

// upWith brings a lab up; nothing happens where it is so already.
func (r *Rig) upWith(ctx context.Context, l *lab.Lab, o rack.Options) error {
	// Details of a step scroll by in a lab that is brought up by hand. In a study of days they would bury its own
	// progress.
	o.Progress = func(e rack.Event) {
		if e.Step != "" {
			r.tell(e.Step)
		}
	}
	r.remember() // nodes that go take their CPU time along
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

// setUp runs the study's own commands on all nodes.
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

// Rest ends the load, so that the machine is idle but for the nodes, and keeps others off their
// CPUs again as prepare had it.
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

// system is this machine, to change it.
func (r *Rig) system() *change.System { return &change.System{Root: "/"} }

// Leave ends the load, and leaves the lab as the last cell had it: for who takes it down.
func (r *Rig) Leave() error { return errors.Join(r.Rest(context.Background()), r.closeRack()) }

// Close undoes what was changed: the load ends, links are whole again, nodes run where they
// may, or as planned. The lab stays up.
func (r *Rig) Close() error {
	ctx := context.Background()
	return errors.Join(r.Rest(ctx), r.site.restore(ctx), r.closeRack())
}

// closeRack ends the connections to the lab, if it was brought up.
func (r *Rig) closeRack() error {
	if r.rack == nil {
		return nil
	}
	err := r.rack.Close()
	r.rack = nil
	return err
}

// repairLinks takes all impairments off the links, if a factor of the study is one.
func (r *Rig) repairLinks(ctx context.Context) error {
	if !slices.ContainsFunc(r.spec.Factors, func(f study.Factor) bool { _, ok := study.LinkKey(f.Name); return ok }) {
		return nil
	}
	return r.setLinks(ctx, fabric.Link{})
}

// setLinks gives all links of the lab's switch the same impairments, and no others.
func (r *Rig) setLinks(ctx context.Context, l fabric.Link) error {
	c, err := r.rack.Switch()
	if err != nil {
		return err
	}
	return c.SetLink(ctx, fabric.AllPorts, l)
}
