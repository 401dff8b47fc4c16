package fleet

import (
	"context"
	"maps"
	"slices"
)

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
		var a answer
		var err error
		if p := n.problem(t, t.lab); f.policy == Nova {
			a, err = placeByNova(p)
		} else {
			a, err = solve(ctx, p, countSteps)
		}
		if a.fits || err != nil {
			return a.fits, err
		}
	}
	return false, nil
}
