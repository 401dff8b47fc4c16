// Package fleet places labs on many hosts, one after another, as they come and go.
//
// Each lab goes to one host, and there to the place of least cost that the exact search finds
// (package plan/search). Which host it is, is a rule of thumb, [BestFit]: nobody knows the requests
// to come.
//
//  1. On each kind of host the lab has an ideal cost: that on an empty one.
//  2. Hosts in use are asked in the order of what would be left of them, the fullest first. The
//     first on which the lab costs at most [Slack] more than ideal gets it.
//  3. Else the cheapest of those asked gets it, if it costs at most [Tolerance] more than ideal.
//  4. Else an empty host is taken. Where there is none, the cheapest of all gets it.
//
// [Nova] is the rule to compare with: hosts in their order, the first on which the rules of
// OpenStack Nova (package plan/rivals) find a place.
package fleet

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/plan/build"
	"github.com/rackless/rackless/plan/rivals"
	"github.com/rackless/rackless/plan/search"
	"github.com/rackless/rackless/topology"
)

// Policies.
const (
	BestFit = "best-fit"
	Nova    = "nova"
)

const (
	// Slack is how much more than ideal a placement may cost, in basis points, to be taken without looking further.
	Slack = 50
	// Tolerance is how much more than ideal it may cost before an empty host is taken instead. Less
	// makes better places on more hosts: docs/performance.md has figures.
	Tolerance = 5000
	// maxAsked is how many hosts are searched for one request at most, not counting what is known
	// from earlier requests: it bounds the time of one request.
	maxAsked = 12
	// searchSteps bounds a search for a request that somebody waits for. Most take a few hundred;
	// what is found by then is taken.
	searchSteps = 80_000
	// countSteps bounds a search of [Fleet.Count], which nobody waits for.
	countSteps = 5_000_000
)

// A Fleet is hosts and what is placed on them. It is not safe for concurrent use.
type Fleet struct {
	policy string
	hosts  []*host
	shapes []*shape
	placed map[string]*holding
	labs   map[string]int // number of each different lab, by its JSON without names
}

// ErrFull is the error of a request that no host has room for.
var ErrFull = errors.New("no host has room")

// New makes a fleet of hosts, in their order.
func New(policy string) (*Fleet, error) {
	if policy != BestFit && policy != Nova {
		return nil, fmt.Errorf("no policy %q: want %s or %s", policy, BestFit, Nova)
	}
	return &Fleet{policy: policy, placed: map[string]*holding{}, labs: map[string]int{}}, nil
}

// A host is one host with what is left of it.
type host struct {
	name  string
	topo  *topology.Host
	shape *shape
	// What the search is given. cores and devices are those of the shape, marked as they are taken.
	cores   []plan.Core
	devices []plan.Device
	bytes   []int64 // held, by index of the NUMA node; 0 where the node's memory is not known
	held    []*holding
	left    amounts
	version int            // counts changes
	known   map[int]answer // by lab
}

// An answer is what a search said of one lab on one host.
type answer struct {
	version int
	fits    bool
	cost    int64
	outcome plan.Outcome
}

// amounts are what a host has, or a lab asks for.
type amounts struct {
	cores, gpus, nics, vfs int64
	bytes                  int64
	memory                 bool // bytes are known
}

// A shape is what equal hosts share: the problem of each lab on an empty one.
type shape struct {
	key       string
	topo      *topology.Host
	cores     []plan.Core
	devices   []plan.Device
	bytes     []int64
	memory    bool // of every NUMA node is known
	empty     amounts
	templates map[int]*template // by lab
}

// A template is a lab on an empty host of a shape.
type template struct {
	lab     *lab.Lab
	problem *plan.Problem
	why     error // the shape can never have it
	asks    amounts
	ideal   answer
}

// Add adds a host. Its tenants count as there already.
func (f *Fleet) Add(name string, h *topology.Host) error {
	key, err := shapeKey(h)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	i := slices.IndexFunc(f.shapes, func(s *shape) bool { return s.key == key })
	if i < 0 {
		s, err := newShape(key, name, h)
		if err != nil {
			return err
		}
		i = len(f.shapes)
		f.shapes = append(f.shapes, s)
	}
	n := &host{name: name, topo: h, shape: f.shapes[i], known: map[int]answer{}}
	n.update()
	n.shape.empty = n.left
	f.hosts = append(f.hosts, n)
	return nil
}

// newShape reads what there is of an empty host off the problem of a small lab.
func newShape(key, name string, h *topology.Host) (*shape, error) {
	p, err := build.Problem(h, smallestLab(), build.Options{HostName: name})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	s := &shape{key: key, topo: h, cores: p.Cores, devices: p.Devices, memory: true, templates: map[int]*template{}}
	for i := range p.NUMANodes {
		s.memory = s.memory && p.NUMANodes[i].Pages != nil
		s.bytes = append(s.bytes, pagesOf(p, i))
	}
	return s, nil
}

// shapeKey returns the same text for hosts that are the same but for their name.
func shapeKey(h *topology.Host) (string, error) {
	same := *h
	same.Provenance = topology.Provenance{}
	data, err := json.Marshal(&same)
	if err != nil {
		return "", fmt.Errorf("compare hosts: %w", err)
	}
	return string(data), nil
}

// smallestLab is a lab that asks for next to nothing.
func smallestLab() *lab.Lab {
	return &lab.Lab{
		Name: "empty", Workload: lab.WorkloadMixed, Hugepages: lab.HugepagesOff, Tenants: lab.TenantsRead,
		Nodes: []lab.Node{{Name: "empty", CPUs: 1, Memory: 2 * lab.MiB, SMT: lab.Off, GuestNUMA: lab.Auto}},
	}
}

// count brings left up to date after a change.
func (n *host) count() {
	free := lists.Count(n.cores, func(c plan.Core) bool { return c.Tenant == "" })
	n.left = amounts{cores: int64(free), memory: n.shape.memory}
	for _, d := range n.devices {
		switch {
		case d.Kind == plan.KindGPU && d.Whole:
			n.left.gpus++
		case d.Kind == plan.KindNIC && d.Whole:
			n.left.nics++
		}
		n.left.vfs += int64(d.VFs)
	}
	for i, b := range n.bytes {
		n.left.bytes += max(0, n.shape.bytes[i]-b)
	}
	n.version++
}

// A Placed is where a lab went.
type Placed struct {
	Lab     *lab.Lab
	Host    string
	Problem *plan.Problem
	Plan    *plan.Plan
	Outcome plan.Outcome
	Cost    int64
	// Ideal is what it would cost on an empty host of the same shape; -1 under Nova, which does not ask.
	Ideal int64
	// Searched is how many hosts were searched for it.
	Searched int
}

// Place places a lab and keeps what it holds until Release. The error is ErrFull where no host has
// room, and one that says why where the lab can be on no host of the fleet even when it is empty.
func (f *Fleet) Place(ctx context.Context, l *lab.Lab) (*Placed, error) {
	if f.placed[l.Name] != nil {
		return nil, fmt.Errorf("lab %s is on %s already: release it first, or give it another name", l.Name,
			f.placed[l.Name].host.name)
	}
	kind, err := f.kind(l)
	if err != nil {
		return nil, err
	}
	q := query{f: f, lab: l, kind: kind}
	choose := words.Either(f.policy == Nova, q.firstFit, q.bestFit)
	n, a, err := choose(ctx)
	if err != nil {
		return nil, err
	}
	t := n.shape.templates[kind]
	placed := &Placed{Lab: l, Host: n.name, Problem: n.problem(t, l), Outcome: a.outcome, Cost: a.cost,
		Ideal: -1, Searched: q.searched}
	if f.policy == BestFit {
		placed.Ideal = t.ideal.cost
	}
	placed.Plan = plan.Assemble(n.topo, l, placed.Problem, a.outcome)
	f.placed[l.Name] = n.hold(t.problem, placed)
	return placed, nil
}

// Release gives back what a lab holds.
func (f *Fleet) Release(name string) error {
	h := f.placed[name]
	if h == nil {
		return fmt.Errorf("no lab %s is placed", name)
	}
	h.release()
	delete(f.placed, name)
	return nil
}

// kind numbers labs that ask for the same.
func (f *Fleet) kind(l *lab.Lab) (int, error) {
	same := *l
	same.Name = ""
	same.Nodes = slices.Clone(l.Nodes)
	for i := range same.Nodes {
		same.Nodes[i].NICs = nil // their addresses follow from the name
		if len(l.Affinity) == 0 {
			same.Nodes[i].Name = ""
		}
	}
	data, err := json.Marshal(&same)
	if err != nil {
		return 0, fmt.Errorf("compare labs: %w", err)
	}
	if _, known := f.labs[string(data)]; !known {
		f.labs[string(data)] = len(f.labs)
	}
	return f.labs[string(data)], nil
}

// A query is one request on its way to a host.
type query struct {
	f        *Fleet
	lab      *lab.Lab
	kind     int
	searched int
}

// template returns the lab on an empty host of a shape, made once.
func (q *query) template(ctx context.Context, s *shape) (*template, error) {
	if t := s.templates[q.kind]; t != nil {
		return t, nil
	}
	t := &template{lab: q.lab}
	if t.problem, t.why = build.Problem(s.topo, q.lab, build.Options{HostName: "an empty host"}); t.why == nil {
		t.asks = asks(t.problem)
		for i, b := range s.bytes { // a smaller reserve than usual leaves more to give
			t.asks.bytes = max(0, t.asks.bytes-max(0, pagesOf(t.problem, i)-b))
		}
		if q.f.policy == BestFit {
			var err error
			if t.ideal, err = solve(ctx, t.problem, searchSteps); err != nil {
				return nil, err
			}
			if !t.ideal.fits {
				t.why = fmt.Errorf("lab %s does not fit on an empty host", q.lab.Name)
			}
		}
	}
	s.templates[q.kind] = t
	return t, nil
}

// asks adds up what the requests of a problem ask for.
func asks(p *plan.Problem) amounts {
	var a amounts
	for r := range lists.Refs(p.Requests) {
		a.cores += int64(r.Cores)
		a.bytes += r.Pages * int64(p.PageBytes)
		a.gpus += total(r.GPUs)
		a.nics += total(r.NICs)
		a.vfs += total(r.VFs)
	}
	a.cores += int64(min(1, p.ReserveCores)) // emulator cores of other labs are the rest, see host.reserve
	return a
}

func total(wants []plan.Want) int64 {
	return lists.Sum(wants, func(w plan.Want) int64 { return int64(w.Count) })
}

// covers reports whether there is as much left as is asked for: a quick no, never a sure yes.
func (left amounts) covers(a amounts) bool {
	return left.cores >= a.cores && left.gpus >= a.gpus && left.nics >= a.nics && left.vfs >= a.vfs &&
		(!left.memory || left.bytes >= a.bytes)
}

// solve searches one problem.
func solve(ctx context.Context, p *plan.Problem, steps int64) (answer, error) {
	r, err := search.Solve(ctx, p, search.Options{Steps: steps})
	switch {
	case errors.Is(err, search.ErrInfeasible):
		return answer{}, nil
	case errors.Is(err, search.ErrStopped):
		return answer{}, ctx.Err() // stopped by the limit of steps it counts as no room
	case err != nil:
		return answer{}, err
	}
	if err := ctx.Err(); err != nil {
		return answer{}, err
	}
	return answer{fits: true, cost: r.Cost, outcome: r.Outcome}, nil
}

// ask returns what the policy says of the lab on a host, from memory if nothing has changed there since.
func (q *query) ask(ctx context.Context, n *host, t *template) (a answer, err error) {
	if a, ok := n.known[q.kind]; ok && a.version == n.version {
		return a, nil
	}
	q.searched++
	if a, err = q.f.solve(ctx, n.problem(t, q.lab), searchSteps); err != nil {
		return a, err
	}
	a.version = n.version
	n.known[q.kind] = a
	return a, nil
}

// solve places by the rules of the policy.
func (f *Fleet) solve(ctx context.Context, p *plan.Problem, steps int64) (answer, error) {
	if f.policy == Nova {
		return placeByNova(p)
	}
	return solve(ctx, p, steps)
}

// placeByNova places by the rules of Nova. A placement that breaks a hard rule of ours counts as none.
func placeByNova(p *plan.Problem) (answer, error) {
	o, err := rivals.Place(p, Nova)
	if err != nil || o.Placement == nil || len(o.Broken) > 0 {
		return answer{}, err
	}
	return answer{fits: true, cost: o.Cost,
		outcome: plan.Outcome{Placement: *o.Placement, Stopped: "placed by the rules of Nova"}}, nil
}

// A candidate is a host that may have room.
type candidate struct {
	n     *host
	t     *template
	score int64
}

// candidates returns the hosts in use that may have room, best first, then the empty ones in order.
func (q *query) candidates(ctx context.Context) (used, empty []candidate, why error, err error) {
	for _, n := range q.f.hosts {
		t, err := q.template(ctx, n.shape)
		switch {
		case err != nil:
			return nil, nil, nil, err
		case t.why != nil:
			why = t.why
		case !n.left.covers(t.asks):
		case len(n.held) == 0:
			empty = append(empty, candidate{n: n, t: t})
		default:
			used = append(used, candidate{n: n, t: t, score: n.score(t.asks)})
		}
	}
	slices.SortStableFunc(used, func(a, b candidate) int { return cmp.Compare(a.score, b.score) })
	return used, empty, why, nil
}

// score says how much would be left of a host, in thousandths of an empty one: the sum over its resources.
func (n *host) score(a amounts) int64 {
	// Thousandths of each resource, so that a GPU, of which a host has eight, counts as much as an eighth of its cores:
	// what runs out first is what decides whether the host is of use to anybody any more.
	var sum int64
	add := func(left, asked, all int64) {
		if all > 0 {
			sum += (left - asked) * 1000 / all
		}
	}
	e := n.shape.empty
	add(n.left.cores, a.cores, e.cores)
	add(n.left.gpus, a.gpus, e.gpus)
	add(n.left.vfs, a.vfs, e.vfs)
	add(n.left.bytes>>20, a.bytes>>20, e.bytes>>20)
	return sum
}

// bestFit is the rule of the package comment.
func (q *query) bestFit(ctx context.Context) (*host, answer, error) {
	used, empty, why, err := q.candidates(ctx)
	if err != nil {
		return nil, answer{}, err
	}
	var best *host
	var bestAnswer answer
	var over int64
	// consider asks a host and remembers the one that costs least beyond its ideal.
	consider := func(c candidate) error {
		a, err := q.ask(ctx, c.n, c.t)
		if extra := a.cost - c.t.ideal.cost; a.fits && (best == nil || extra < over) {
			best, bestAnswer, over = c.n, a, extra
		}
		return err
	}
	next := 0
	for ; next < len(used) && q.searched < maxAsked; next++ {
		if err := consider(used[next]); err != nil || best != nil && over <= Slack {
			return best, bestAnswer, err
		}
	}
	if best != nil && over <= Tolerance {
		return best, bestAnswer, nil
	}
	if len(empty) > 0 {
		c := slices.MinFunc(empty, func(a, b candidate) int { return cmp.Compare(a.t.ideal.cost, b.t.ideal.cost) })
		return c.n, c.t.ideal, nil
	}
	// Nothing is empty: a lab that is far from ideal is better than none.
	for ; best == nil && next < len(used); next++ {
		if err := consider(used[next]); err != nil {
			return nil, answer{}, err
		}
	}
	switch {
	case best != nil:
		return best, bestAnswer, nil
	case why != nil && len(used) == 0:
		return nil, answer{}, fmt.Errorf("%w for lab %s: %w", ErrFull, q.lab.Name, why)
	}
	return nil, answer{}, fmt.Errorf("%w for lab %s: %d of %d hosts were searched, the others have too little left",
		ErrFull, q.lab.Name, q.searched, len(q.f.hosts))
}

// firstFit takes the first host on which Nova's rules find a place.
func (q *query) firstFit(ctx context.Context) (*host, answer, error) {
	for _, n := range q.f.hosts {
		if err := ctx.Err(); err != nil {
			return nil, answer{}, err
		}
		t, err := q.template(ctx, n.shape)
		if err != nil {
			return nil, answer{}, err
		}
		if t.why != nil || !n.left.covers(t.asks) {
			continue
		}
		if a, err := q.ask(ctx, n, t); err != nil || a.fits {
			return n, a, err
		}
	}
	return nil, answer{}, fmt.Errorf("%w for lab %s by the rules of Nova", ErrFull, q.lab.Name)
}
