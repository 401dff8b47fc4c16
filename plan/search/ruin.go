package search

import (
	"slices"

	"github.com/rackless/rackless/internal/lists"
)

// The cases that need this: mixes of 64 lab nodes of internal/planbench. Seed 0 costs 11448 in place of 12408, which
// taking off two or three at a time and exchanges of cores made in as much time.
//
// Ruin and recreate (Schrimpf and others 2000): a few lab nodes that are near each other are taken off and put back one
// by one, each by a dive, where it costs least beside the others. Dearer placements are gone on from as well, at first
// those within a hundredth of the best one, in the end none: that leads out of placements that no small change betters.

const (
	// mostRuined is how many lab nodes are taken off at most.
	mostRuined = 8
	// dearest is the part of the best cost that a placement may cost more at first.
	dearest = 100
)

// recreate looks for a better placement for all steps that are left.
func (t *tree) recreate() {
	if t.best == nil || t.proved() {
		return
	}
	s, draw := t.s, newDraw()
	until := t.work.limit
	steps := until - t.work.steps
	// Lab nodes come off a stack from its top: those that were put back last come first.
	now, cost := slices.Clone(t.best), t.cost
	var stack []int
	for i, c := range now {
		s.place(i, c)
		stack = append(stack, i)
	}
	for t.work.steps < until && t.work.stopped == "" && !t.proved() {
		before := t.work.steps
		who := t.ruined(now, draw)
		if t.work.add(2) || len(who) == 0 {
			continue
		}
		stack = t.lift(stack, who, now)
		allowed := cost + t.cost/dearest*max(0, until-t.work.steps)/max(1, steps)
		placed := t.placeAll(who, func(i int) *column {
			s.turn = draw(len(t.m.nodes))
			t.steerPorts()
			e := t.enum(0)
			e.relaxed = false
			c, _ := t.dive(i, t.steer, scale*s.cost()+e.lowerBound(i, t.steer), e)
			return c
		})
		if placed == len(who) && s.cost() <= allowed && t.work.stopped == "" {
			cost = s.cost()
			for _, i := range who {
				now[i] = s.at[i]
			}
			t.offer()
		} else {
			t.removeAll(who[:placed])
			for _, i := range who {
				s.place(i, now[i])
			}
		}
		stack = append(stack, who...)
		t.work.steps -= (t.work.steps - before) / 2 // these are short ones: 25 ns each, others 50 to 100
	}
	s.turn = 0
	t.removeAll(stack)
}

// ruined draws lab nodes that have cores or devices at one of two NUMA nodes.
func (t *tree) ruined(now []*column, draw func(int) int) []int {
	a, b := draw(len(t.m.nodes)), draw(len(t.m.nodes))
	who := lists.Where(now, func(c *column) bool { return t.isAt(c, a) || t.isAt(c, b) })
	for k := range who {
		x := k + draw(len(who)-k)
		who[k], who[x] = who[x], who[k]
	}
	return who[:min(len(who), 2+draw(mostRuined-1))]
}

// lift takes lab nodes off, wherever in the stack they are, and returns the rest of it.
func (t *tree) lift(stack, who []int, now []*column) []int {
	k := len(stack)
	for left := len(who); left > 0; {
		k--
		t.s.remove(stack[k])
		if slices.Contains(who, stack[k]) {
			left--
		}
	}
	above := stack[k:]
	stack = stack[:k]
	for _, i := range above {
		if !slices.Contains(who, i) {
			t.s.place(i, now[i])
			stack = append(stack, i)
		}
	}
	return stack
}
