package lab

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/strictyaml"
	"github.com/rackless/rackless/internal/words"
)

// A Step is for the node's shell. It may run again at any time.
type Step struct {
	Run string `json:"run"`
	// Check succeeds if Run need not run. Without a Check, Run is run once after each start of the node.
	Check string `json:"check,omitempty"`
}

const (
	maxSteps  = 32   // per node
	maxScript = 8192 // bytes each: they are arguments of the shell and stored with the lab
)

func (s Step) title() string {
	line, _, _ := strings.Cut(strings.TrimSpace(s.Run), "\n")
	return strictyaml.Shorten(line)
}

// Title returns "step 1 (modprobe mlx5_core)" for 0.
func (n Node) Title(i int) string { return fmt.Sprintf("step %d (%s)", i+1, n.Setup[i].title()) }

func (s Step) flow() string {
	if s.Check == "" {
		return scalar(s.Run)
	}
	return mapping("run", scalar(s.Run), "check", scalar(s.Check))
}

// Has reports whether the image of a full node has a package set.
func (n Node) Has(set string) bool {
	_, sets, _ := strings.Cut(n.Image, "+")
	return n.Full() && slices.Contains(strings.Split(sets, "+"), set)
}

// Slurm is for nodes that have it in their images.
type Slurm struct {
	Controller string `json:"controller"` // node with slurmctld
}

// SlurmNodes are in the order of the lab.
func (l *Lab) SlurmNodes() []string {
	with := lists.Filter(l.Nodes, func(n Node) bool { return n.Has("slurm") })
	return lists.Map(with, func(n Node) string { return n.Name })
}

func (l *Lab) controller() string {
	if l.Slurm == nil {
		return "none"
	}
	return l.Slurm.Controller
}

// resolveSlurm chooses the file's controller, or the first node with Slurm.
func (d *decoder) resolveSlurm(f *fileSlurm, l *Lab) *Slurm {
	nodes := l.SlurmNodes()
	const path = "slurm.controller"
	if f == nil || f.Controller == nil {
		if len(nodes) == 0 {
			return nil
		}
		return &Slurm{Controller: nodes[0]}
	}
	if !slices.Contains(nodes, *f.Controller) {
		e := Error{Key: path, What: "not a node with Slurm", Have: strictyaml.Quote(*f.Controller),
			Want: words.Or(nodes)}
		if len(nodes) == 0 {
			e.Want, e.Fix = "a node whose image has Slurm", "write image: "+FullReleases()[0]+"+slurm"
		} else {
			e.Fix = strictyaml.Meant(*f.Controller, nodes)
		}
		d.Fail(d.Values[path], e)
	}
	return &Slurm{Controller: *f.Controller}
}

// steps takes a plain text for a step's run.
func (d *decoder) steps(path string, n ast.Node) *[]fileStep {
	const want = "a list of steps, such as [{run: modprobe nvme-rdma, check: test -e /sys/module/nvme_rdma}]"
	all := []fileStep{}
	list, ok := n.(*ast.SequenceNode)
	if !ok {
		if !strictyaml.IsNull(n) {
			d.Fail(d.ValuePlace(path, n), Error{Key: path, What: "wrong type", Have: strictyaml.Describe(n),
				Want: want, Fix: "begin each step with a dash"})
		}
		return &all
	}
	if len(list.Values) > maxSteps {
		d.Fail(strictyaml.PlaceOf(n), Error{Key: path, What: "too many steps",
			Have: fmt.Sprint(len(list.Values)), Want: fmt.Sprintf("at most %d", maxSteps)})
	}
	for i, value := range list.Values {
		path := fmt.Sprintf("%s[%d]", path, i)
		var s fileStep
		if !strictyaml.IsMapping(value) {
			s.Run = d.script(path, value)
		} else {
			before := len(d.Errs)
			d.Fields(path, value, &s)
			if s.Run == nil && len(d.Errs) == before {
				d.Fail(strictyaml.PlaceOf(value), Error{Key: path, What: "step without run",
					Fix: "add what makes the check succeed: {run: ..., check: ...}"})
			}
		}
		all = append(all, s)
	}
	return &all
}

func (d *decoder) script(path string, n ast.Node) *string {
	s, ok := d.Text(path, n, "commands for a shell")
	if !ok {
		return nil
	}
	e := Error{Key: path, What: "bad commands"}
	switch {
	case strings.TrimSpace(s) == "":
		e.Have, e.Want = strictyaml.Quote(s), "commands for a shell"
	case len(s) > maxScript:
		e.Have, e.Want = fmt.Sprintf("%d bytes", len(s)), fmt.Sprintf("at most %d", maxScript)
		e.Fix = "copy a script to the nodes with rackless cp, and run it"
	case strings.ContainsRune(s, 0) || !utf8.ValidString(s):
		e.Have, e.Want = strictyaml.Quote(s), "text without the byte 0"
	default:
		return &s
	}
	d.Fail(strictyaml.PlaceOf(n), e)
	return nil
}

func stepsOf(all []fileStep) []Step {
	return lists.Map(all, func(s fileStep) Step { return Step{Run: or(s.Run, nil, ""), Check: or(s.Check, nil, "")} })
}
