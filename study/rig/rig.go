// Package rig brings a lab, emulated or on this host, and the machine below it into a cell of a
// study, measures there, and says in which state the machine is. What it changes is gone when it is
// closed: load ends, links are whole, threads may run everywhere again.
package rig

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/fabric"
	"github.com/rackless/rackless/host/change"
	"github.com/rackless/rackless/host/tune"
	"github.com/rackless/rackless/internal/userfile"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/plan/variant"
	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/rack/emulated"
	"github.com/rackless/rackless/study"
	"github.com/rackless/rackless/topology"
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
	planner Planner
	plans   map[string]*plan.Plan // of the labs of cells, by the lab's file
	limit   time.Duration         // for a tool; 0: bench's own
	devices []string              // of the nodes, for the state of the host

	machine   machine
	all       topology.CPUSet // CPUs that this process may use
	protected topology.CPUSet // the ones that nodes are pinned to
	host      *topology.Host  // of a lab that is placed on it
	looked    bool            // Look was called, and found nothing wrong
	arranged  bool            // that lab was led into a cell
	dissolved bool            // the nodes have lost the partition of CPUs that prepare made

	rack  *rack.Rack // nil before the first Apply
	lab   *lab.Lab
	load  contender       // nil where there is none
	spent float64         // CPU seconds of loads that have ended
	seen  map[int]float64 // CPU seconds of nodes and switches, by process
}

// New reads the lab file and finds out what the machine has. Nothing is started. planner is asked
// for labs that are placed on this host, where the lab file is a factor; it may be nil for others.
func New(dirs rack.Dirs, spec *study.Spec, labFile string, o rack.Options, planner Planner) (*Rig, error) {
	r := &Rig{dirs: dirs, spec: spec, file: labFile, options: o, planner: planner, plans: map[string]*plan.Plan{},
		machine: machine{root: os.DirFS("/")}, seen: map[int]float64{}}
	var err error
	if r.text, err = userfile.Read(labFile, userfile.Text); err != nil {
		return nil, err
	}
	if r.all, err = ownCPUs(); err != nil {
		return nil, err
	}
	if r.placed() {
		err = r.survey()
	} else {
		r.protected, err = protect(r.all, spec.Protected)
	}
	if err != nil {
		return nil, err
	}
	// What cannot be done is known before anything is measured.
	for _, m := range spec.Measure {
		if _, err := bench.EngineByName(m.Test); err != nil {
			return nil, fmt.Errorf("measure: %w", err)
		}
		for _, place := range []bench.Place{{CPUs: m.CPU, Memory: m.NUMA}, {CPUs: m.ServerCPU, Memory: m.ServerNUMA}} {
			if err := place.Check(); err != nil {
				return nil, fmt.Errorf("measure: %s: %w", m.Test, err)
			}
		}
	}
	for _, c := range spec.Cells() {
		if err := r.check(spec.Settings(c)); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// protect chooses the CPUs that nodes are pinned to: those asked for, or the upper half.
func protect(all topology.CPUSet, asked string) (topology.CPUSet, error) {
	if asked == "" {
		cpus := slices.Collect(all.All())
		return topology.CPUs(cpus[len(cpus)/2:]...), nil
	}
	set, err := topology.ParseCPUSet(asked)
	if err != nil {
		return set, fmt.Errorf("protected_cpus %q: %w", asked, err)
	}
	if set.IsEmpty() || !set.Difference(all).IsEmpty() {
		return set, fmt.Errorf("protected_cpus %s: this machine has CPUs %s", asked, all)
	}
	return set, nil
}

// LabText returns the lab file as it was read.
func (r *Rig) LabText() []byte { return r.text }

// onHosts says why a level cannot be had on emulated nodes.
const onHosts = "nodes of an emulated lab have none of that: it takes a lab with driver: libvirt on a host that " +
	"rackless prepare has prepared"

// check says whether the settings of a cell can be had here.
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
	r.lab = l
	if r.placed() {
		err = r.checkPlaced(l, settings)
	} else {
		err = r.checkEmulated(l, settings)
	}
	if err != nil {
		return err
	}
	client, server, err := r.pair(l)
	if err == nil && settings[study.FactorContention] == study.ContentionNetwork && len(others(l, client, server)) < 2 {
		return fmt.Errorf("factor %s: level %s: it takes two nodes with a NIC that are not measured, and lab %s has "+
			"%s besides %s and %s: give nodes a count of 4", study.FactorContention,
			study.ContentionNetwork, l.Name, count(len(others(l, client, server))), client, server)
	}
	return err
}

// count writes a number of nodes.
func count(n int) string {
	return map[int]string{0: "none", 1: "one"}[n]
}

// checkEmulated says whether the settings of a cell can be had of emulated nodes.
func (r *Rig) checkEmulated(l *lab.Lab, settings map[string]string) error {
	for factor, level := range settings {
		fail := func(format string, args ...any) error {
			return fmt.Errorf("factor %s: level %s: %s", factor, level, fmt.Sprintf(format, args...))
		}
		switch factor {
		case study.FactorPlacement:
			if level != variant.Default && level != variant.Pin {
				return fail("%s", onHosts)
			}
		case study.FactorIsolation:
			if level == study.IsolationIsolcpus {
				return fail("%s", onHosts)
			}
			if level == study.IsolationCpuset && r.all.Difference(r.protected).IsEmpty() {
				return fail("no CPU is left for the load: all of %s are protected", r.all)
			}
		case study.FactorHugepages:
			if level != "off" {
				return fail("%s", onHosts)
			}
		}
	}
	if _, _, err := r.link(settings); err != nil {
		return err
	}
	return emulated.Supported(l)
}

// labFor returns the lab of a cell: the file with the keys that are factors.
func (r *Rig) labFor(settings map[string]string) (*lab.Lab, error) {
	l, err := lab.Parse(r.file, r.text)
	if err != nil {
		return nil, err
	}
	var keys []string
	for factor := range settings {
		if _, ok := study.LabKey(factor); ok {
			keys = append(keys, factor)
		}
	}
	if len(keys) == 0 {
		return l, nil
	}
	slices.Sort(keys)
	var doc yaml.MapSlice
	// In order: addresses follow the order of the nodes.
	if err := yaml.UnmarshalWithOptions(r.text, &doc, yaml.UseOrderedMap()); err != nil {
		return nil, fmt.Errorf("%s: %w", r.file, err)
	}
	var what []string
	for _, factor := range keys {
		key, _ := study.LabKey(factor)
		var value any
		if err := yaml.Unmarshal([]byte(settings[factor]), &value); err != nil {
			return nil, fmt.Errorf("factor %s: level %s: %w", factor, settings[factor], err)
		}
		if doc, err = set(doc, strings.Split(key, "."), value); err != nil {
			return nil, fmt.Errorf("factor %s: %w", factor, err)
		}
		what = append(what, key+": "+settings[factor])
	}
	text, err := yaml.Marshal(doc)
	if err != nil {
		return nil, err
	}
	// Errors name what was set: the lines are not those of the file.
	return lab.Parse(r.file+" with "+strings.Join(what, ", "), text)
}

// set sets a key of a document, by its path.
func set(doc yaml.MapSlice, path []string, value any) (yaml.MapSlice, error) {
	for i, item := range doc {
		if item.Key != path[0] {
			continue
		}
		if len(path) == 1 {
			doc[i].Value = value
			return doc, nil
		}
		inner, ok := item.Value.(yaml.MapSlice)
		if !ok && item.Value != nil {
			return nil, fmt.Errorf("%s has no keys of its own", path[0])
		}
		inner, err := set(inner, path[1:], value)
		doc[i].Value = inner
		return doc, err
	}
	if len(path) == 1 {
		return append(doc, yaml.MapItem{Key: path[0], Value: value}), nil
	}
	inner, err := set(nil, path[1:], value)
	return append(doc, yaml.MapItem{Key: path[0], Value: inner}), err
}

// local reports whether all tests of the study are of one node alone.
func (r *Rig) local() bool {
	return !slices.ContainsFunc(r.spec.Measure, func(m study.Measure) bool {
		e, err := bench.EngineByName(m.Test)
		return err != nil || !e.Local
	})
}

// pair returns the client and the server that are measured. Where only single nodes are measured,
// of a lab of one node, there is no server.
func (r *Rig) pair(l *lab.Lab) (client, server string, err error) {
	var names []string
	for _, n := range l.Nodes {
		names = append(names, n.Name)
	}
	if len(r.spec.Pair) == 2 {
		for _, p := range r.spec.Pair {
			if !slices.Contains(names, p) {
				return "", "", fmt.Errorf("pair: lab %s has no node %s; it has %s", l.Name, p,
					strings.Join(names, ", "))
			}
		}
		return r.spec.Pair[0], r.spec.Pair[1], nil
	}
	if len(names) == 1 && r.local() {
		return names[0], "", nil
	}
	if len(names) < 2 {
		return "", "", fmt.Errorf("lab %s has %d node, and a study measures between two", l.Name, len(names))
	}
	return names[1], names[0], nil
}

// Apply leads lab and machine into a cell, but for its load.
func (r *Rig) Apply(ctx context.Context, settings map[string]string) error {
	if err := r.Rest(ctx); err != nil {
		return err
	}
	l, err := r.labFor(settings)
	if err != nil {
		return err
	}
	if r.placed() {
		if err := r.upPlaced(ctx, l, settings); err != nil {
			return err
		}
		if err := r.readDevices(ctx); err != nil {
			return err
		}
		if err := r.look(ctx); err != nil {
			return err
		}
	} else {
		if err := r.upWith(ctx, l, r.options); err != nil {
			return err
		}
		if err := r.look(ctx); err != nil {
			return err
		}
		if err := r.links(ctx, settings); err != nil {
			return err
		}
		return r.place(settings[study.FactorPlacement] == variant.Pin)
	}
	return nil
}

// Load starts the load of a cell that was applied. It runs when Load returns.
func (r *Rig) Load(ctx context.Context, settings map[string]string) error {
	cpus, outside := r.loadCPUs(settings[study.FactorIsolation])
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

// loadCPUs returns the CPUs that load on this machine may use at a level of isolation, and whether
// it has to leave what prepare confined all slices of systemd to.
func (r *Rig) loadCPUs(isolation string) (cpus topology.CPUSet, outside bool) {
	switch {
	case isolation == study.IsolationCpuset:
		return r.all.Difference(r.protected), false
	case isolation == study.IsolationNone && r.placed() && r.confined():
		return r.host.CPUs.Online, true
	}
	return r.all, false
}

// look has the lab looked at, once.
func (r *Rig) look(ctx context.Context) error {
	if r.Look == nil || r.looked {
		return nil
	}
	if r.Progress != nil {
		r.Progress("look at the lab")
	}
	if slices.ContainsFunc(r.spec.Factors, func(f study.Factor) bool { _, ok := study.LinkKey(f.Name); return ok }) {
		// A study that was killed has left links impaired.
		c, err := r.rack.Switch()
		if err != nil {
			return err
		}
		if err := c.SetLink(ctx, fabric.AllPorts, fabric.Link{}); err != nil {
			return err
		}
	}
	if err := r.Look(ctx, r.rack); err != nil {
		return err
	}
	r.looked = true
	return nil
}

// upWith brings a lab up; nothing happens where it is so already.
func (r *Rig) upWith(ctx context.Context, l *lab.Lab, o rack.Options) error {
	o.Progress = func(e rack.Event) {
		if r.Progress != nil && e.Step != "" {
			r.Progress(e.Step)
		}
	}
	if r.rack != nil {
		r.remember() // nodes that go take their CPU time along
		if err := r.rack.Close(); err != nil {
			return err
		}
		r.rack = nil
	}
	var err error
	r.rack, err = rack.Up(ctx, r.dirs, l, o)
	r.lab = l
	return err
}

// link returns the impairments of a cell; false where it says nothing of them.
func (r *Rig) link(settings map[string]string) (l fabric.Link, any bool, err error) {
	l.Seed = r.spec.Seed
	for factor, level := range settings {
		if key, ok := study.LinkKey(factor); ok {
			any = true
			if err := l.Set(key, level); err != nil {
				return l, true, fmt.Errorf("factor %s: level %s: %w", factor, level, err)
			}
		}
	}
	if !any {
		return l, false, nil
	}
	return l, true, l.Validate()
}

// links gives every port of the fabric the impairments of the cell, and no others. Where the study
// says nothing of them, they stay as they are.
func (r *Rig) links(ctx context.Context, settings map[string]string) error {
	l, any, err := r.link(settings)
	if err != nil || !any {
		return err
	}
	c, err := r.rack.Switch()
	if err != nil {
		return err
	}
	return c.SetLink(ctx, fabric.AllPorts, l)
}

// Measure makes one test of a run. A measurement that failed is a sample with an error.
func (r *Rig) Measure(ctx context.Context, m study.Measure) ([]bench.Sample, error) {
	if r.rack == nil {
		return nil, errors.New("measured before a cell was applied")
	}
	e, err := bench.EngineByName(m.Test)
	if err != nil {
		return nil, err
	}
	client, server, err := r.pair(r.lab)
	if err != nil {
		return nil, err
	}
	runner := &bench.Runner{Exec: r.rack, Accelerator: r.rack.State.Accel, Emulated: r.rack.Emulated(),
		TimeLimit: r.limit, WarmUps: m.WarmUps, CoolDown: m.CoolDown, KeepPrinted: true}
	var ends [2]bench.Endpoint
	for i, n := range []string{client, server} {
		if n == "" {
			continue
		}
		if ends[i], err = r.rack.Endpoint(n); err != nil {
			return nil, err
		}
	}
	o := options(m)
	ends[1].Place = o.ServerPlace(m.ServerCPU, m.ServerNUMA)
	if r.rack.State.EmulatedHost {
		o.Accelerator = bench.Nested
	}
	if e.Local {
		return runner.RunLocal(ctx, e, ends[0], o)
	}
	return runner.Run(ctx, e, ends[0], ends[1], o)
}

// options are those of a test of the study.
func options(m study.Measure) bench.Options {
	return bench.Options{Quick: m.Bytes == 0, Bytes: m.Bytes, Iterations: m.Iterations, Seconds: m.Seconds, Raw: true,
		CPU: m.CPU, NUMA: m.NUMA}
}

// What a run takes beside its tests: on emulated nodes 0.7 to 1.3 s went to states, noise floor,
// placement and the nodes' answers, in the studies of docs/studies.
const runTime = time.Second

// Takes is about how long a run of the study takes, by what its file says of the tests: the mean
// over its cells. Where a cell's lab is brought up anew it takes longer, which is not known
// beforehand.
func (r *Rig) Takes() (time.Duration, error) {
	accel := r.options.Accel
	if accel != "kvm" && accel != "tcg" {
		accel = "tcg"
		if _, err := os.Stat("/dev/kvm"); err == nil || r.placed() {
			accel = "kvm"
		}
	}
	tests := runTime
	for _, m := range r.spec.Measure {
		e, err := bench.EngineByName(m.Test)
		if err != nil {
			return 0, err
		}
		o := options(m)
		o.Accelerator = accel
		tests += m.CoolDown + time.Duration(1+m.WarmUps)*e.Lasts(o)
	}
	cells := r.spec.Cells()
	loaded := 0
	for _, c := range cells {
		if level := r.spec.Settings(c)[study.FactorContention]; level != "" && level != "idle" {
			loaded++
		}
	}
	return tests + settleTime*time.Duration(loaded)/time.Duration(len(cells)), nil
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

// backLimit bounds the way back to the plan. Nodes that are emulated in an emulated host boot in ten minutes.
const backLimit = 20 * time.Minute

// Leave ends the load, and leaves the lab as the last cell had it: for who takes it down.
func (r *Rig) Leave() error {
	err := r.Rest(context.Background())
	if r.rack == nil {
		return err
	}
	return errors.Join(err, r.rack.Close())
}

// Close takes back what was changed: the load ends, links are whole again, nodes run where they
// may, or as planned. The lab stays up.
func (r *Rig) Close() error {
	ctx := context.Background()
	err := r.Rest(ctx)
	if r.arranged {
		// As planned again, also where the last arrangement could not be had.
		ctx, cancel := context.WithTimeout(ctx, backLimit)
		defer cancel()
		l, e := r.labFor(nil)
		if e != nil {
			return errors.Join(err, e)
		}
		err = errors.Join(err, r.upArranged(ctx, l, r.options.Place.Plan))
		if r.rack == nil {
			return err
		}
		return errors.Join(err, r.rack.Close())
	}
	if r.rack == nil {
		return err
	}
	err = errors.Join(err, r.place(false))
	if slices.ContainsFunc(r.spec.Factors, func(f study.Factor) bool { _, ok := study.LinkKey(f.Name); return ok }) {
		if c, e := r.rack.Switch(); e != nil {
			err = errors.Join(err, e)
		} else {
			err = errors.Join(err, c.SetLink(ctx, fabric.AllPorts, fabric.Link{}))
		}
	}
	return errors.Join(err, r.rack.Close())
}

// LabFile returns where the lab file of a study lies: beside the study's file, unless it says otherwise.
func LabFile(studyFile, name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(filepath.Dir(studyFile), name)
}
