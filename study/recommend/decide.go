package recommend

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/plan/build"
	"github.com/rackless/rackless/study/stats"
)

// A Recommendation is the recommended configuration for a lab on a host, with reasons.
type Recommendation struct {
	Lab      string       `json:"lab"`
	Host     string       `json:"host"`
	Workload lab.Workload `json:"workload"`
	Settings []Choice     `json:"settings"`
	Rankings []Ranking    `json:"gpu_nic"` // if there are GPUs
	Model    *build.Model `json:"model"`   // for plan --model; null without usable figures
	Fitted   []Fitted     `json:"fitted"`
	// Kept says why weights keep their published values.
	Kept    []string `json:"kept"`
	Studies []Source `json:"studies"`
}

// A Choice is the recommended level of a setting.
type Choice struct {
	Setting Setting `json:"setting"`
	Level   string  `json:"level"`
	Now     string  `json:"now"` // by lab file or plan
	// Confidence is the origin of the evidence that decided first.
	Confidence Carry `json:"confidence"`
	// Why has a sentence for each step.
	Why []string `json:"why"`
	// Contradictions are lower-ranked evidence against the choice, and evidence against itself.
	Contradictions []string   `json:"contradictions"`
	Evidence       []Evidence `json:"evidence"` // all for the workload, even if it decides nothing
}

// A Source is a study that was considered.
type Source struct {
	Study string `json:"study"`
	Carry Carry  `json:"carry"`
	Why   string `json:"why"` // reason for Carry
	// Confounds are those found in the study.
	Confounds []string `json:"confounds"`
}

// Recommend recommends a configuration for a lab on a host. p is the planner's problem; if nil, no weights are fitted.
func Recommend(h *topology.Host, l *lab.Lab, p *plan.Problem, studies []Study, documents []Document) (*Recommendation,
	error) {
	if len(l.Nodes) == 0 {
		return nil, errors.New("a lab without nodes has no configuration")
	}
	r := &Recommendation{Lab: l.Name, Workload: l.Workload, Rankings: []Ranking{}, Fitted: []Fitted{}, Kept: []string{},
		Studies: []Source{}}
	var all []Evidence
	for i := range studies {
		s := &studies[i]
		carry, why := Where(s, h)
		found, confounds, err := s.evidence(carry)
		if err != nil {
			return nil, err
		}
		r.Studies = append(r.Studies, Source{s.Name, carry, why, append([]string{}, confounds...)})
		all = append(all, found...)
	}
	all = append(all, published(documents, h, l)...)
	rs := rules(h, l, p)
	for i := range rs {
		rule := &rs[i]
		own := lists.Filter(all, func(e Evidence) bool { return e.Setting == rule.setting && e.matters(l.Workload) })
		slices.SortStableFunc(own, func(a, b Evidence) int { return order(a.Carry) - order(b.Carry) })
		if rule.setting == Reserve {
			r.Settings = append(r.Settings, reserve(rule, own, len(h.Cores)))
		} else {
			r.Settings = append(r.Settings, decide(rule, own))
		}
	}
	together(r.Settings)
	pairs := r.rank(h, studies, documents)
	r.fit(p, l.Workload, all, pairs)
	return r, nil
}

// order puts evidence that decides nothing last.
func order(c Carry) int {
	if c.rank() < 0 {
		return ranks
	}
	return c.rank()
}

type pairVerdict int

const (
	unknown pairVerdict = iota
	better
	worse
	same
	mixed // better in one metric or condition, worse in another
)

// A pair is two levels. Verdicts are on b compared with a.
type pair struct{ a, b string }

func pairsOf(levels []string) []pair {
	var all []pair
	for i, a := range levels {
		all = append(all, lists.Map(levels[i+1:], func(b string) pair { return pair{a, b} })...)
	}
	return all
}

// A weighing has no evidence if the verdict is unknown.
type weighing struct {
	verdict  pairVerdict
	evidence []Evidence
}

func weigh(all []Evidence, rank int, p pair) weighing {
	var up, down, even []Evidence
	open := false // some evidence is undecided
	for _, e := range all {
		if e.From == p.b && e.To == p.a {
			e = e.turned()
		}
		if e.From != p.a || e.To != p.b || e.Carry.rank() != rank || e.aside {
			continue
		}
		switch {
		// "No difference" settles nothing while another study is undecided.
		case !e.Decides || e.Verdict == stats.Undecided:
			open = true
		case e.Verdict == stats.Better:
			up = append(up, e)
		case e.Verdict == stats.Worse:
			down = append(down, e)
		case e.Verdict == stats.Equivalent:
			even = append(even, e)
		}
	}
	switch {
	case len(up) > 0 && len(down) > 0:
		return weighing{mixed, []Evidence{up[0], down[0]}}
	case len(up) > 0:
		return weighing{better, up}
	case len(down) > 0:
		return weighing{worse, down}
	case len(even) > 0 && !open:
		return weighing{same, even}
	}
	return weighing{}
}

func newChoice(r *rule, all []Evidence) Choice {
	return Choice{Setting: r.setting, Level: r.now, Now: r.now, Confidence: NoEvidence, Contradictions: []string{},
		Evidence: append([]Evidence{}, all...)}
}

// decide follows the rule in the package documentation.
func decide(r *rule, all []Evidence) Choice {
	c := newChoice(r, all)
	if r.fixed != "" {
		c.Why, c.Level = []string{r.fixed}, r.levels[0]
		return c
	}
	// Any measured MTU is a candidate besides the usual ones.
	left := slices.Clone(r.levels)
	for _, e := range all {
		for _, level := range []string{e.From, e.To} {
			if r.setting == MTU && !slices.Contains(left, level) && e.Carry.rank() >= 0 {
				left = append(left, level)
			}
		}
	}
	// With the simpler level first, ties mean fewer changes to the host.
	slices.SortStableFunc(left, r.simpler)
	settled := map[pair]weighing{}
	// Lower ranks only choose among the remaining levels.
	for rank := range ranks {
		// The planner has weighed published evidence for each node.
		if r.now == levelByNode && rank >= PublishedForKind.rank() {
			break
		}
		candidates := pairsOf(left)
		found := map[pair]weighing{}
		for _, p := range candidates {
			if w := weigh(all, rank, p); w.verdict != unknown {
				settled[p], found[p] = w, w
			}
		}
		// First remove worse levels: which others they equal does not matter.
		for _, want := range []pairVerdict{better, worse, same, mixed} {
			for _, p := range candidates {
				if found[p].verdict == want && slices.Contains(left, p.a) && slices.Contains(left, p.b) {
					out := c.drop(p, found[p])
					left = slices.DeleteFunc(left, func(l string) bool { return l == out })
				}
			}
		}
		for _, p := range pairsOf(r.levels) {
			w, high := weigh(all, rank, p), settled[p]
			if w.verdict != unknown && high.verdict != unknown && w.verdict != high.verdict &&
				high.evidence[0].Carry.rank() < rank {
				c.Contradictions = append(c.Contradictions, fmt.Sprintf("%s says otherwise of %s and %s (%s): %s",
					w.evidence[0].Carry, p.a, p.b, w.verdict.text(p), tell(w.evidence)))
			}
		}
	}
	if r.setting == Placement {
		c.farNodes(all)
	}
	untold := fmt.Sprintf("nothing tells %s apart: ", strings.Join(left, " and "))
	switch {
	case len(left) == 1:
		c.Level = left[0]
	case r.now == levelByNode:
		c.Why = append(c.Why, "lab nodes differ: as lab and planner have each")
	case slices.Contains(left, r.now):
		if c.Confidence != NoEvidence {
			c.Why = append(c.Why, untold+"as lab and planner have it")
		}
	case len(left) < len(r.levels) && r.now != levelAuto: // the current one was ruled out
		c.Level = left[0]
		c.Why = append(c.Why, untold+left[0]+" is the smaller change")
	}
	if r.setting == SMT && c.Level == levelOff && c.Now != levelOff && r.fixed == "" {
		c.Why = append(c.Why, "compared on the same cores: halve cpus where the lab node had siblings, since each "+
			"virtual CPU then has a core of its own")
	}
	if len(c.Why) == 0 {
		c.Why = []string{"no evidence decides it: as lab and planner have it"}
	}
	return c
}

func (c *Choice) drop(p pair, w weighing) (out string) {
	e := w.evidence
	c.Confidence = c.Confidence.or(e[0].Carry)
	out = p.b
	why := ""
	switch w.verdict {
	case better:
		out = p.a
		why = fmt.Sprintf("%s is better than %s: %s", p.b, p.a, tell(e))
	case worse:
		why = fmt.Sprintf("%s is better than %s: %s", p.a, p.b, tell(lists.Map(e, Evidence.turned)))
	case same:
		why = fmt.Sprintf("%s makes no meaningful difference compared with %s, and %s is the smaller change: %s",
			p.b, p.a, p.a, tell(e))
	case mixed:
		why = fmt.Sprintf("%s is better than %s in one thing and worse in another, and %s is the smaller change: "+
			"%s; %s", p.b, p.a, p.a, tell(e[:1]), tell(e[1:]))
		c.Contradictions = append(c.Contradictions,
			fmt.Sprintf("%s and %s: evidence of the same rank says both", p.a, p.b))
	}
	c.Why = append(c.Why, why)
	return out
}

func (c Carry) or(other Carry) Carry {
	if c == NoEvidence {
		return other
	}
	return c
}

// farNodes adds evidence about nodes pinned far from their devices, which is never recommended.
func (c *Choice) farNodes(all []Evidence) {
	for rank := range ranks {
		w := weigh(all, rank, pair{levelWrong, levelPin})
		switch w.verdict {
		case better:
			c.Confidence = c.Confidence.or(w.evidence[0].Carry)
			c.Why = append(c.Why, fmt.Sprintf("on the devices' NUMA nodes, and not on others: %s", tell(w.evidence)))
			return
		case worse, mixed:
			c.Contradictions = append(c.Contradictions,
				fmt.Sprintf("%s finds NUMA nodes far from the devices better: look whether the host tells the truth "+
					"about where they are: %s", w.evidence[0].Carry, tell(w.evidence)))
		}
	}
}

func (v pairVerdict) text(p pair) string {
	switch v {
	case better:
		return p.b + " is better"
	case worse:
		return p.a + " is better"
	case same:
		return "no meaningful difference"
	}
	return "each is better in something"
}

func tell(all []Evidence) string {
	e := slices.MaxFunc(all, func(a, b Evidence) int { return cmp.Compare(a.strength(), b.strength()) })
	text := strings.ReplaceAll(e.Metric, "_", " ") + " of " + e.Test
	if e.Where != "" {
		text += ", " + e.Where
	}
	text += ": " + e.shown() + " (" + e.Source + ")"
	if e.together {
		text += ", " + e.Remark
	}
	if n := len(all) - 1; n > 0 {
		text += fmt.Sprintf(", and %d more", n)
	}
	return text
}

func (e *Evidence) strength() float64 {
	switch {
	case e.Ratio >= 1:
		return e.Ratio
	case e.Ratio > 0:
		return 1 / e.Ratio
	}
	return e.Low // 0 if no figure is known
}

// reserve keeps the host's number of cores, which always needs some. A loss up to their share is due to them alone, as
// the document on vSphere reads its figures.
func reserve(r *rule, all []Evidence, cores int) Choice {
	c := newChoice(r, all)
	for _, e := range all {
		kept, of, ok := keptCores(e.To, cores)
		first, _, fine := keptCores(e.From, cores)
		if !ok || !fine || !e.Decides || e.Carry.rank() < 0 || kept <= first {
			continue
		}
		// The first usable evidence has the highest rank.
		if c.Confidence != NoEvidence && c.Confidence.rank() < e.Carry.rank() {
			continue // a higher rank has decided
		}
		share := float64(kept-first) / float64(of)
		// The smallest loss within the interval. For a range from a document, tell shows all of it.
		least := e.loss()
		if e.High > 0 {
			low := Evidence{Ratio: e.High, lowerIsBetter: e.lowerIsBetter}
			if e.lowerIsBetter {
				low.Ratio = e.Low
			}
			least = low.loss()
		}
		c.Confidence = e.Carry
		says, how := &c.Why, "no more"
		if least > share {
			says, how = &c.Contradictions, "more"
		}
		*says = append(*says, fmt.Sprintf("%d of %d cores kept cost %s than their share, %.1f%%: %s",
			kept-first, of, how, 100*share, tell([]Evidence{e})))
	}
	c.Why = append([]string{"the host needs cores of its own for interrupts and QEMU's threads"}, c.Why...)
	return c
}

// keptCores parses "4" of a study, or "4 of 48" of a document.
func keptCores(level string, cores int) (kept, of int, ok bool) {
	number, total, found := strings.Cut(level, " of ")
	kept, err := strconv.Atoi(number)
	if err != nil {
		return 0, 0, false
	}
	of = cores
	if found {
		if of, err = strconv.Atoi(total); err != nil {
			return 0, 0, false
		}
	}
	return kept, of, of > 0 && kept >= 0 && kept <= of
}

// together avoids an unmeasured combination: guests see NUMA nodes only if their CPUs are pinned.
func together(all []Choice) {
	index := func(s Setting) int { return slices.IndexFunc(all, func(c Choice) bool { return c.Setting == s }) }
	pin, numa := &all[index(Placement)], &all[index(GuestNUMA)] // rules has both for every host
	if numa.Level == levelOn && pin.Level == levelDefault {
		pin.Level = levelPin
		pin.Why = append(pin.Why, "pinned all the same: guest_numa is on, and what a guest is told of its NUMA "+
			"nodes is true only where its CPUs stay on them")
	}
}
