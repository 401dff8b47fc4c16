package search

import (
	"slices"

	"github.com/rackless/rackless/internal/lists"
)

// Ruin and recreate (Schrimpf and others 2000): a few lab nodes that are near each other are removed and placed again
// by dives. More expensive placements are also accepted, at first within a hundredth of the best cost, at the end not
// at all. This leads out of local optima.
//
// The cases that need this: mixes of 64 lab nodes of plan/planbench. Seed 0 costs 11448 instead of 12408, the result of
// removing two or three at a time and exchanging cores in the same time.

const (
	mostRuined = 8
	// 1/dearest is the fraction above the best cost that is accepted at first.
	dearest = 100
)

func (t *tree) recreate() {
	if t.best == nil || t.proved() {
		return
	}
	s, draw := t.s, newDraw()
	until := t.work.limit
	steps := until - t.work.steps
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
		t.work.steps -= (t.work.steps - before) / 2 // short steps: 25 ns each, others take 50 to 100
	}
	s.turn = 0
	t.removeAll(stack)
}

func (t *tree) ruined(now []*column, draw func(int) int) []int {
	a, b := draw(len(t.m.nodes)), draw(len(t.m.nodes))
	who := lists.Where(now, func(c *column) bool { return t.isAt(c, a) || t.isAt(c, b) })
	for k := range who {
		x := k + draw(len(who)-k)
		who[k], who[x] = who[x], who[k]
	}
	return who[:min(len(who), 2+draw(mostRuined-1))]
}

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
