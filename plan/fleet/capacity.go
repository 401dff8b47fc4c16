package fleet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/plan/conflict"
	"github.com/rackless/rackless/plan/search"
)

// Room is how many more of a lab one host takes.
type Room struct {
	Host string `json:"host"`
	Fits int    `json:"fits"`
	// Limits are what is short for one more, as [plan.Demand] calls it, each once; cores that the host keeps count as
	// cores. They are empty where the host lacks
	// what the lab asks for by name, as a model of GPU, which Why says.
	Limits []string `json:"limits"`
	Why    string   `json:"why"` // why there is no room for one more
	// Stopped is set where the search for one more reached its limit of steps: nothing is proved then.
	Stopped bool `json:"stopped,omitempty"`
}

// Capacity says how many more of a lab each host takes, in the order of the hosts, and changes nothing. Copies are
// placed one after another, each at the place of least cost, as Place would; the number is of that rule.
func (f *Fleet) Capacity(ctx context.Context, l *lab.Lab) ([]Room, error) {
	kind, err := f.kind(l)
	if err != nil {
		return nil, err
	}
	var rooms []Room
	empty := map[*shape]Room{} // equal hosts have equal room
	for _, n := range f.hosts {
		r, known := empty[n.shape]
		if !known || len(n.held) > 0 {
			if r, err = f.room(ctx, n, l, kind); err != nil {
				return nil, fmt.Errorf("%s: %w", n.name, err)
			}
			if len(n.held) == 0 {
				empty[n.shape] = r
			}
		}
		r.Host = n.name
		rooms = append(rooms, r)
	}
	return rooms, nil
}

// room fills a copy of a host.
func (f *Fleet) room(ctx context.Context, n *host, l *lab.Lab, kind int) (Room, error) {
	r := Room{Limits: []string{}}
	t, err := (&query{f: f, lab: l, kind: kind}).template(ctx, n.shape)
	if err != nil {
		return r, err
	}
	if t.problem == nil {
		r.Why = t.why.Error()
		return r, nil
	}
	n = &host{name: n.name, topo: n.topo, shape: n.shape, held: slices.Clone(n.held)}
	n.update()
	for {
		more := *l
		more.Name = fmt.Sprintf("%s (copy %d)", l.Name, r.Fits+1)
		p := n.problem(t, &more)
		found, err := search.Solve(ctx, p, search.Options{Steps: countSteps})
		switch {
		case ctx.Err() != nil:
			return r, ctx.Err()
		case errors.Is(err, search.ErrStopped):
			r.Stopped, r.Why = true, fmt.Sprintf("the search ended after %d steps without a place", countSteps)
			return r, nil
		case errors.Is(err, search.ErrInfeasible):
			return r, r.explain(ctx, p)
		case err != nil:
			return r, err
		}
		r.Fits++
		n.hold(t.problem, &Placed{Lab: &more, Problem: p, Outcome: found.Outcome,
			Plan: plan.Assemble(n.topo, &more, p, found.Outcome)})
	}
}

// explain says why there is no place for one more.
func (r *Room) explain(ctx context.Context, p *plan.Problem) error {
	why, err := conflict.Find(ctx, p, func(ctx context.Context, p *plan.Problem) (bool, error) {
		return search.Fits(ctx, p, searchSteps)
	})
	if err != nil {
		return err
	}
	r.Why = why.Message
	r.Limits = lists.Distinct(lists.Map(why.Requests, func(d plan.Demand) string {
		if d.What == plan.DemandReserve {
			return plan.DemandCores // the cores that the host keeps
		}
		return d.What
	}))
	return nil
}

// Counts is how a fleet is used.
type Counts struct {
	Policy string `json:"policy"`
	Hosts  int    `json:"hosts"`
	Used   int    `json:"hosts_used"` // with at least one lab
	Labs   int    `json:"labs"`
	GPUs   int64  `json:"gpus"`
	Free   int64  `json:"gpus_free"` // on hosts in use
	// Stranded are those of Free on hosts that have no room any more, by the policy's own rules,
	// for any lab with a GPU that was asked for so far.
	Stranded int64 `json:"gpus_stranded"`
	// CoresFree are cores on hosts in use that no lab and no emulator thread has, reserves included.
	CoresFree int64 `json:"cores_free"`
}

// Count counts. It may search every host in use once for each different lab with GPUs.
func (f *Fleet) Count(ctx context.Context) (Counts, error) {
	c := Counts{Policy: f.policy, Hosts: len(f.hosts), Labs: len(f.placed)}
	for _, n := range f.hosts {
		c.GPUs += n.shape.empty.gpus
		if len(n.held) == 0 {
			continue
		}
		c.Used++
		c.Free += n.left.gpus
		c.CoresFree += n.left.cores
		if n.left.gpus == 0 {
			continue
		}
		room, err := f.roomForGPUs(ctx, n)
		if err != nil {
			return c, err
		}
		if !room {
			c.Stranded += n.left.gpus
		}
	}
	return c, nil
}

// roomForGPUs reports whether any of the labs with GPUs that were asked for would find a place on the host.
func (f *Fleet) roomForGPUs(ctx context.Context, n *host) (bool, error) {
	for _, kind := range slices.Sorted(maps.Keys(n.shape.templates)) {
		t := n.shape.templates[kind]
		if t.why != nil || t.asks.gpus == 0 || !n.left.covers(t.asks) {
			continue
		}
		a, err := f.solve(ctx, n.problem(t, t.lab), countSteps)
		if a.fits || err != nil {
			return a.fits, err
		}
	}
	return false, nil
}
