// Package verify decides which checks are made of a lab or a host, reads the values for package checks, and compares
// the findings of one round with those of the next.
package verify

import (
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

	"github.com/rackless/rackless/internal/atomicfile"
	"github.com/rackless/rackless/internal/userfile"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/facts"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/machine/inspect"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/rack/verify/checks"
)

// A Target is a lab or host. Parts that are nil are left out.
type Target struct {
	Plan   *plan.Plan
	Unseen string // parts that cannot be read from here, and why, or ""

	Host    func(context.Context) (*topology.Host, error)
	Running func(context.Context) (*facts.Running, error)  // reads the activity of Host
	Strays  func() ([]string, error)                       // prepare's changes that its journal lacks
	Domains func(context.Context) ([]checks.Domain, error) // reads the plan's virtual machines
	Lab     *lab.Lab                                       // read through Nodes
	Nodes   checks.Reader

	LinksSet bool // wanted links are recorded
}

// OfHost returns this machine, with a plan for comparison.
func OfHost(p *plan.Plan) *Target {
	return &Target{
		Plan:    p,
		Host:    func(ctx context.Context) (*topology.Host, error) { return inspect.Read(ctx, inspect.Live()) },
		Running: func(ctx context.Context) (*facts.Running, error) { return inspect.ReadRunning(ctx, os.DirFS("/")) },
	}
}

// Checks returns the identifiers that the parts of the target allow.
func (t *Target) Checks() []string {
	made := map[finding.Group]bool{
		finding.Host:   t.Plan != nil && t.Host != nil,
		finding.Domain: t.Domains != nil,
		finding.Lab:    t.Lab != nil,
		finding.Guest:  t.Plan != nil && t.Lab != nil,
		finding.Adapter: t.Lab != nil && (checks.HasHostCards(t.Nodes) ||
			slices.ContainsFunc(t.Lab.Nodes, lab.Node.ConnectX)),
		finding.GPU: t.Lab != nil && t.Lab.HasGPUs() && !checks.HasHostCards(t.Nodes),
		finding.Setup: t.Lab != nil && (t.Lab.Slurm != nil ||
			slices.ContainsFunc(t.Lab.Nodes, func(n lab.Node) bool { return len(n.Setup) > 0 })),
	}
	return slices.DeleteFunc(finding.Names(), func(id string) bool {
		return !made[finding.GroupOf(id)] || id == checks.IDJournal && t.Strays == nil ||
			id == checks.IDSwitchLinks && !t.LinksSet
	})
}

// Findings makes the checks of the host, of the virtual machines, and of the nodes from inside; if only is set, just
// these, reading no more than they need.
//
// It returns an error if a part could not be read at all; a value that a node does not report is a finding.
func (t *Target) Findings(ctx context.Context, only []string, progress func(what string)) ([]finding.Finding, error) {
	wanted := func(groups ...finding.Group) bool {
		return len(only) == 0 || slices.ContainsFunc(only, func(id string) bool {
			return slices.Contains(groups, finding.GroupOf(id))
		})
	}
	s := step{ctx: ctx, progress: progress}
	var domains []checks.Domain
	var run *facts.Running
	if wanted(finding.Host, finding.Domain) {
		domains = read(&s, "read the virtual machines", t.Domains)
	}
	h := read(&s, "read the host", t.Host)
	if wanted(finding.Host) {
		run = read(&s, "read what runs on the host", t.Running)
	}
	if s.err != nil {
		return nil, s.err
	}

	var all []finding.Finding
	if t.Host != nil && wanted(finding.Host) {
		var own []int
		for _, d := range domains {
			if d.PID > 0 {
				own = append(own, d.PID)
			}
		}
		all = checks.Host(t.Plan, h, run, own...)
		if t.Strays != nil {
			all = append(all, checks.Journal(t.Strays()))
		}
	}
	if t.Domains != nil && wanted(finding.Domain) {
		all = append(all, checks.Domains(t.Plan, h, domains)...)
	}
	inNodes := []finding.Group{finding.Lab, finding.Adapter, finding.GPU, finding.Setup}
	if t.Nodes != nil && wanted(inNodes...) {
		ids := slices.DeleteFunc(slices.Clone(only), func(id string) bool {
			return !slices.Contains(inNodes, finding.GroupOf(id))
		})
		found, err := checks.Lab(ctx, t.Lab, t.Nodes, ids, progress)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	if t.Nodes != nil && t.Plan != nil && wanted(finding.Guest) {
		progress("compare the nodes with the plan")
		all = append(all, checks.Guests(t.Plan, h, t.readNodes(ctx))...)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	// A silent node must not be lost.
	return slices.DeleteFunc(all, func(f finding.Finding) bool {
		return len(only) > 0 && !slices.Contains(only, f.ID) && !f.Silent
	}), nil
}

type step struct {
	ctx      context.Context
	progress func(what string)
	err      error // of the part that failed
}

func read[T any](s *step, what string, from func(context.Context) (T, error)) (v T) {
	if from == nil || s.err != nil {
		return v
	}
	s.progress(what)
	v, s.err = from(s.ctx)
	return v
}

func (t *Target) readNodes(ctx context.Context) map[string]*facts.Node {
	nodes := make(map[string]*facts.Node)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, n := range t.Lab.Nodes {
		wg.Go(func() {
			f, err := t.Nodes.Facts(ctx, n.Name)
			if err != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			nodes[n.Name] = f
		})
	}
	wg.Wait()
	return nodes
}

// A Record is a lab's last verify, for rackless ui and its metrics.
type Record struct {
	At       time.Time         `json:"at"` // when the checks were finished
	Findings []finding.Finding `json:"findings"`
}

func recordFile(d rack.Dirs, lab string) string { return filepath.Join(d.Data, "checks", lab+".json") }

// SaveRecord replaces a lab's record atomically.
func SaveRecord(d rack.Dirs, lab string, k Record) error {
	path := recordFile(d, lab)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return atomicfile.WriteJSON(path, k) // it contains addresses
}

// LastRecord returns the zero value if the lab was never verified.
func LastRecord(d rack.Dirs, lab string) (Record, error) {
	var k Record
	text, err := userfile.Read(recordFile(d, lab), userfile.Document)
	if errors.Is(err, os.ErrNotExist) {
		return k, nil
	}
	if err != nil {
		return k, err
	}
	return k, json.Unmarshal(text, &k)
}

// OfLab returns a running lab, with the host and its virtual machines if it is placed on this host. r must stay open
// while the target is used.
func OfLab(ctx context.Context, r *rack.Rack) (*Target, error) {
	hosted, ok := r.Hosted()
	if !ok {
		return &Target{Lab: r.Lab, Nodes: r, LinksSet: r.LinksSet()}, nil
	}
	p, err := hosted.Placement()
	if err != nil {
		return nil, err
	}
	local, err := hosted.Local(ctx)
	if err != nil {
		return nil, err
	}
	if !local {
		return &Target{Plan: p.Plan, Lab: r.Lab, Nodes: r, Unseen: fmt.Sprintf("the host, and where its kernel "+
			"has the threads and memory of the virtual machines: it is another machine (%s), of which only the "+
			"nodes can be seen from here; on it, rackless verify --plan says more", p.URI)}, nil
	}
	t := OfHost(p.Plan)
	t.Lab, t.Nodes, t.Domains = r.Lab, r, hosted.Domains
	return t, nil
}

// A Drift is a check with a changed outcome, and one line of verify --watch, see docs/json.md.
type Drift struct {
	At      time.Time       `json:"at"`
	Before  finding.Status  `json:"before,omitempty"` // absent for findings that were not ok at first
	Finding finding.Finding `json:"finding"`
}

// A Watch remembers the checks that are not OK. Its zero value is for the first round.
type Watch struct {
	off   map[subjectOfCheck]finding.Finding
	began bool
}

type subjectOfCheck struct{ id, subject string }

// Changes returns differences from the previous findings, in the order of the new ones; in the first round, all
// findings that are not ok. A check that was not made, because its node does not answer, is unchanged.
func (w *Watch) Changes(at time.Time, now []finding.Finding) []Drift {
	var out []Drift
	before := w.off
	w.off = map[subjectOfCheck]finding.Finding{}
	seen := map[subjectOfCheck]bool{}
	for _, f := range now {
		key := subjectOfCheck{f.ID, f.Subject}
		seen[key] = true
		was, wasOff := before[key]
		if f.Status != finding.OK {
			w.off[key] = f
		}
		switch {
		case f.Status == finding.OK && wasOff:
			out = append(out, Drift{at, was.Status, f})
		case f.Status != finding.OK && !wasOff:
			c := Drift{At: at, Finding: f}
			if w.began {
				c.Before = finding.OK
			}
			out = append(out, c)
		case f.Status != finding.OK && f.Status != was.Status:
			out = append(out, Drift{at, was.Status, f})
		}
	}
	var answer []Drift
	for key, was := range before {
		switch {
		case seen[key]:
		case was.Silent: // its node answers again
			again := was
			again.Status, again.Have, again.Fix = finding.OK, "it answers again", ""
			answer = append(answer, Drift{at, was.Status, again})
		default:
			w.off[key] = was
		}
	}
	slices.SortFunc(answer, func(a, b Drift) int { return strings.Compare(a.Finding.Subject, b.Finding.Subject) })
	w.began = true
	return append(out, answer...)
}

// NotOK counts checks that were not OK in the last round.
func (w *Watch) NotOK() int { return len(w.off) }
