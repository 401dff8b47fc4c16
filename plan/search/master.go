package search

import (
	"slices"

	"github.com/rackless/rackless/internal/lists"
)

// The linear program of patterns.go, solved by the revised simplex method, with columns made when
// they are wanted (Gilmore and Gomory 1961). It has a row for each class: each member is at home
// somewhere or spans; one for each group of bins: each has one pattern; and one for each size:
// those that span have no more portions of it or of larger ones than there are in patterns.
// Floating point numbers only look for good duals. What those prove is worked out in whole
// numbers.

// A variable is a column of the linear program: a pattern for a bin of a group, a choice of portions
// to span, or the slack of a row.
type variable struct {
	cost    int64
	rows    []entry
	group   int // of a pattern; -1 for the others
	pattern int
}

type entry struct {
	row int
	n   float64
}

// A master is the linear program at work.
type master struct {
	*patternModel
	basis   []variable
	amount  []float64   // of each column of the basis
	inverse [][]float64 // of the basis
	dual    []float64
	pivot   []float64 // scratch of enter
	slack   int64     // of the last duals: how far below the gap is what they prove, fine

	// The duals that prove most so far, and their slack.
	bestV, bestG []int64
	bestSlack    int64
}

const (
	// assembleSteps bounds the work on one linear program and the placement made of it.
	masterSteps = 4_000_000
	// longMaster is its bound where many lab nodes are all different.
	longMaster = 11_000_000
	// maxRows bounds its size.
	maxRows = 256
)

// solveMaster raises the root bound by the linear program and looks for a placement that comes up to it.
func (t *tree) solveMaster(steps int64) {
	if t.best == nil || t.work.stopped != "" {
		return
	}
	defer t.work.budget(steps)()
	if !t.patternsMade {
		t.patternsMade, t.patternModel = true, t.newPatternModel()
	}
	a := t.patternModel
	if a == nil || len(a.classes)+len(a.groups)+len(a.sizes) > maxRows {
		return
	}
	if !a.reprice() {
		t.patternModel = nil // it takes too long for this lab
		return
	}
	p := a.start()
	for q := p.price(); q != nil && !t.proved() && p.enter(q); q = p.price() {
		if t.work.add(int64(len(p.basis)*len(p.basis)) / 16) {
			break
		}
	}
	if !t.proved() {
		p.round()
	}
}

// master is solveMaster before and after better prices are found.
func (t *tree) master() { t.solveMaster(masterSteps) }

// different reports whether there are many lab nodes that all ask for something else.
func (t *tree) different() bool {
	reps := 0
	for i := range t.m.requests {
		if t.m.requests[i].rep == i {
			reps++
		}
	}
	return reps > quickLabs/2
}

// start sets the program up with every lab node nowhere, which costs the gap: a basis that is
// feasible, and that pivots replace by patterns as they are found.
func (a *patternModel) start() *master {
	rows := len(a.classes) + len(a.groups) + len(a.sizes)
	p := &master{patternModel: a, dual: make([]float64, rows), pivot: make([]float64, rows)}
	p.v, p.g = make([]int64, len(a.classes)), make([]int64, len(a.sizes))
	for r := range rows {
		q, amount := p.slackVariable(r), 0.0
		if g := r - len(a.classes); g < 0 {
			q.cost, amount = a.gap, float64(len(a.classes[r]))
		} else if g < len(a.groups) {
			amount = float64(len(a.groups[g]))
		}
		p.basis, p.amount = append(p.basis, q), append(p.amount, amount)
		p.inverse = append(p.inverse, make([]float64, rows))
		p.inverse[r][r] = 1
	}
	return p
}

// slackVariable is the variable of what row r leaves over.
func (p *master) slackVariable(r int) variable { return variable{group: -1, rows: []entry{{r, 1}}} }

// price finds the duals of the present basis and the column that lowers the cost most; nil where there is none.
func (p *master) price() *variable {
	clear(p.dual)
	for r, q := range p.basis {
		for k, x := range p.inverse[r] {
			p.dual[k] += float64(float64(q.cost) * x) // rounded, so that all processors find the same
		}
	}
	p.limitDuals()
	smooth := p.bestV != nil
	if smooth {
		blend(p.v, p.bestV)
		blend(p.g, p.bestG)
	}
	q := p.bestEntering()
	if q == nil && smooth {
		p.limitDuals()
		q = p.bestEntering()
	}
	for q == nil && p.sharpen() {
		q = p.price()
	}
	return q
}

// blend moves the duals towards those that prove most so far, a quarter of the way remaining (Wentges 1997): else they
// jump back and forth, and the program takes up to twice as many pivots.
func blend(duals, best []int64) {
	for k := range duals {
		duals[k] = duals[k]/4 + best[k]/4*3
	}
}

// limitDuals rounds the duals of the present basis.
func (p *master) limitDuals() {
	limit := func(x float64) int64 { return int64(max(-float64(p.gap), min(float64(p.gap), x))) }
	for c := range p.v {
		p.v[c] = limit(p.dual[c])
	}
	// The rows of sizes say "no more than": their duals are not positive in a solution, and g is what they say with the
	// sign turned. On the way to the solution they may be anything, hence the bounds.
	for s := range p.g {
		p.g[s] = max(0, limit(-p.dual[len(p.classes)+len(p.groups)+s]))
	}
}

// bestEntering solves the pricing problems at the present duals. It raises the root bound to what the
// duals prove (any duals do, also before the program is solved), and returns the column that lowers
// the cost most.
func (p *master) bestEntering() *variable {
	classes, groups := len(p.classes), len(p.groups)
	var enter *variable
	worst := -1.0 // a fine part: duals are no better than that
	try := func(q variable) {
		reduced := float64(q.cost)
		for _, x := range q.rows {
			reduced -= float64(x.n * p.dual[x.row])
		}
		if reduced < worst {
			worst, enter = reduced, &q
		}
	}
	// slack is the gap less what the inequality of patterns.go proves beyond base at these duals.
	p.slack = p.gap
	for c, members := range p.classes {
		parts, reduced, cost := p.cheapestSpan(c)
		p.slack -= int64(len(members)) * min(p.v[c], reduced)
		if reduced < infinite {
			q := variable{cost: cost, group: -1, rows: []entry{{c, 1}}}
			for _, s := range parts {
				q.rows = append(q.rows, entry{classes + groups + s, 1})
			}
			try(q)
		}
	}
	for g, members := range p.groups {
		x, ranks := p.bestPattern(&p.bins[members[0]])
		p.slack += int64(len(members)) * p.gains[x]
		if x > 0 {
			try(p.variableOf(g, x, ranks))
		}
	}
	for r := classes; r < len(p.dual); r++ {
		try(p.slackVariable(r))
	}
	if p.bestV == nil || p.slack < p.bestSlack {
		p.bestSlack, p.bestV, p.bestG = p.slack, append(p.bestV[:0], p.v...), append(p.bestG[:0], p.g...)
	}
	// No placement costs less than the best one less the slack, and costs are whole.
	p.t.root = max(p.t.root, p.t.cost-max(0, p.slack)/(scale*p.fine))
	return enter
}

// variableOf makes the column of a pattern of a group that gains as the last call of bestPattern says.
func (p *master) variableOf(g, x int, ranks [][]member) variable {
	list := p.bins[p.groups[g][0]].table.list
	q := variable{group: g, pattern: x, cost: -p.gains[x], rows: []entry{{len(p.classes) + g, 1}}}
	for ; x > 0; x = list[x].parent {
		s := list[x].size
		if c := ranks[s][list[x].nth-1].class; c >= 0 {
			q.cost += p.v[c]
			q.rows = append(q.rows, entry{c, 1})
		} else {
			q.cost += p.g[s]
			q.rows = append(q.rows, entry{len(p.classes) + len(p.groups) + s, -1})
		}
	}
	return q
}

// sharpen packs the patterns of the basis whose shares were only counted so far: too few shares make
// a pattern look cheaper than it is. It reports whether one costs more than was known.
func (p *master) sharpen() bool {
	more := false
	for r := range p.basis {
		q := &p.basis[r]
		if p.t.work.add(1) {
			continue
		}
		if c := q.rows[0].row; q.group < 0 {
			if len(q.rows) > 2 && p.findSplits(c) {
				more = true
			}
			continue
		}
		if n := p.pack(&p.bins[p.groups[q.group][0]], q.pattern); n > 0 {
			q.cost += p.share * int64(n)
			more = true
		}
	}
	for r := range p.basis { // what else spans with those that were found now, too
		if q := &p.basis[r]; more && q.group < 0 && len(q.rows) > 2 {
			parts := lists.Map(q.rows[1:], func(x entry) int { return x.row - len(p.classes) - len(p.groups) })
			slices.Sort(parts)
			q.cost = p.spanCost(q.rows[0].row, parts)
		}
	}
	return more
}

// tiny is less than any number that is not 0, but for errors: what patterns count are small whole numbers, and a basis
// has 256 rows at most.
const tiny = 1e-7

// enter takes a variable into the basis, a pivot of the simplex method; it reports whether that could
// be done.
func (p *master) enter(q *variable) bool {
	ratio := -1.0
	for r, row := range p.inverse {
		p.pivot[r] = 0
		for _, x := range q.rows {
			p.pivot[r] += float64(row[x.row] * x.n)
		}
		if p.pivot[r] > tiny && (ratio < 0 || p.amount[r] < ratio*p.pivot[r]) {
			ratio = p.amount[r] / p.pivot[r]
		}
	}
	// Of the columns that are used up first the one with the largest pivot leaves: division by
	// small ones makes errors large.
	leave := -1
	for r, w := range p.pivot {
		if w > tiny && p.amount[r] <= (ratio+tiny)*w && (leave < 0 || w > p.pivot[leave]) {
			leave = r
		}
	}
	if leave < 0 {
		return false
	}
	pivot := p.inverse[leave]
	for k := range pivot {
		pivot[k] /= p.pivot[leave]
	}
	p.amount[leave] /= p.pivot[leave]
	for r, row := range p.inverse {
		if f := p.pivot[r]; r != leave && f != 0 {
			for k, x := range pivot {
				row[k] -= float64(f * x)
			}
			p.amount[r] = max(0, p.amount[r]-float64(f*p.amount[leave]))
		}
	}
	p.basis[leave] = *q
	return true
}
