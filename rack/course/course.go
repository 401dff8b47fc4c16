// Package course breaks a running lab with common faults, and checks whether it works again: the puzzles of
// docs/course.md. The fault is recorded in the lab's directory, and ends with the lab.
package course

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/atomicfile"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/rack/verify"
	"github.com/rackless/rackless/rdma/fabric"
	"github.com/rackless/rackless/vm/guest"
)

const puzzleFile = "puzzle.json"

type record struct {
	Number int               `json:"number"`
	Links  []fabric.PortLink `json:"links,omitempty"` // as they were before
}

// A Lab is a running lab for puzzles.
type Lab struct {
	*rack.Rack
	Progress *rack.Progress // reports the steps
}

// An Outcome is the result of Judge.
type Outcome struct {
	Puzzle Puzzle
	Checks int
	NotOK  int
}

// Puzzle returns the present puzzle.
func (l *Lab) Puzzle() (Puzzle, error) {
	_, p, err := l.open()
	return p, err
}

func (l *Lab) open() (k record, p Puzzle, err error) {
	path := filepath.Join(l.Dir, puzzleFile)
	err = atomicfile.ReadJSON(path, &k)
	if errors.Is(err, os.ErrNotExist) {
		return k, p, fmt.Errorf("lab %s has no puzzle: rackless puzzle start %[1]s --puzzle 1", l.Lab.Name)
	}
	if err == nil && (k.Number < 1 || k.Number > len(Puzzles())) {
		err = fmt.Errorf("%s: puzzle %d is not in this version", path, k.Number)
	}
	if err != nil {
		return k, p, fmt.Errorf("%w; rackless down ends the lab with its puzzle", err)
	}
	return k, l.named(Puzzles()[k.Number-1]), nil
}

// Fitting returns the numbers of the puzzles for this lab.
func (l *Lab) Fitting() (numbers []int) {
	for i, p := range Puzzles() {
		if l.unfit(p) == "" {
			numbers = append(numbers, i+1)
		}
	}
	return numbers
}

// unfit returns what the node that a puzzle breaks lacks, or "".
func (l *Lab) unfit(p Puzzle) string {
	if p.Node >= len(l.Lab.Nodes) {
		return "a second node"
	}
	n := l.Lab.Nodes[p.Node]
	apart := false
	for i := range n.NICs {
		apart = apart || n.NUMANodeOf(i) != n.NUMANodeOf(0)
	}
	switch {
	case p.GPU != "" && (n.GPUs == 0 || !p.GPU.Of(n.PersonalityOf(0))):
		return "a GPU that can have this fault, as in examples/gpu.yaml"
	case p.Far && (n.GPUs == 0 || !apart):
		return "a GPU, and NICs in two NUMA nodes, as in examples/gpudirect.yaml"
	}
	return ""
}

func (l *Lab) named(p Puzzle) Puzzle {
	for _, text := range []*string{&p.Story, &p.Hint, &p.Cause} {
		*text = strings.ReplaceAll(*text, "NODE", l.Lab.Nodes[p.Node].Name)
	}
	return p
}

// Break breaks the lab by a puzzle, numbered from 1. If the puzzle does not fit, or the lab already has the fault,
// nothing changes.
func (l *Lab) Break(ctx context.Context, number int) (p Puzzle, err error) {
	unlock, err := rack.Lock(ctx, l.Dirs, l.Lab.Name, nil)
	if err != nil {
		return p, err
	}
	defer unlock()
	if k, _, err := l.open(); err == nil {
		return p, fmt.Errorf("lab %s is broken already, by puzzle %d: rackless puzzle reveal %[1]s repairs "+
			"it", l.Lab.Name,
			k.Number)
	}
	if len(l.Lab.Nodes) < 2 {
		return p, fmt.Errorf("lab %s has one node, and puzzles need two", l.Lab.Name)
	}
	p = l.named(Puzzles()[number-1])
	if lacks := l.unfit(p); p.Far && lacks != "" {
		return p, fmt.Errorf("lab %s cannot have puzzle %d: node %s lacks %s", l.Lab.Name, number,
			l.Lab.Nodes[p.Node].Name, lacks)
	}
	c, err := l.Switch()
	if err != nil {
		return p, err
	}
	before, err := c.Counters(ctx)
	if err != nil {
		return p, err
	}
	k := record{Number: number}
	for _, port := range before.Ports {
		k.Links = append(k.Links, fabric.PortLink{Name: port.Name, Link: port.Link})
	}
	if err := atomicfile.WriteJSON(filepath.Join(l.Dir, puzzleFile), k); err != nil {
		return p, err
	}
	if err := l.doBreak(ctx, p, c, before); err != nil {
		return p, errors.Join(fmt.Errorf("puzzle %d: %w", number, err), l.mend(context.WithoutCancel(ctx), k, p))
	}
	return p, nil
}

func (l *Lab) doBreak(ctx context.Context, p Puzzle, c *fabric.Client, now fabric.Counters) error {
	port := []string{rack.PortName(l.Lab.Nodes[p.Node].Name, 0)}
	if p.Busy {
		// Frames to a busy receiver wait at its port: the next node's, if the broken node is the sender.
		at := port
		if p.Node == 0 {
			at = []string{rack.PortName(l.Lab.Nodes[1].Name, 0)}
		}
		changes, err := fabric.ChangeLinks(now.Ports, at, false, busy)
		if err != nil {
			return err
		}
		if now, err = l.SetLinks(ctx, c, changes); err != nil {
			return err
		}
	}
	if err := l.RecordLinks(now); err != nil {
		return err
	}
	if have, err := l.failing(ctx, p.Finding); err != nil {
		return err
	} else if len(have) > 0 {
		return fmt.Errorf("lab %s has this fault already: %s: %s: %s; see rackless verify %[1]s", l.Lab.Name,
			have[0].Subject, have[0].Title, have[0].Have)
	}
	if err := l.script(ctx, p, p.Breaks); err != nil {
		return err
	}
	if p.Link != nil {
		changes, err := fabric.ChangeLinks(now.Ports, port, false, p.Link)
		if err != nil {
			return err
		}
		for _, x := range changes {
			if err := c.SetLink(ctx, x.Name, x.Link); err != nil {
				return err
			}
		}
	}
	if p.GPU != "" {
		return l.FailGPU(ctx, l.Lab.Nodes[p.Node].Name, 0, p.GPU, 0)
	}
	if p.Fault != "" {
		node := l.Lab.Nodes[p.Node].Name
		x, nic, err := l.Adapted(node, "")
		if err != nil {
			return err
		}
		return x.SetFault(ctx, node, nic, p.Fault)
	}
	return nil
}

func (l *Lab) failing(ctx context.Context, check string) ([]finding.Finding, error) {
	t, err := verify.OfLab(ctx, l.Rack)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(t.Checks(), check) {
		return nil, fmt.Errorf("lab %s cannot have this fault, as verify has no check %s for it; the puzzles are made "+
			"for examples/course.yaml and, of GPUs, examples/gpu.yaml and examples/gpudirect.yaml", l.Lab.Name, check)
	}
	l.Progress.Begin("break the lab")
	all, err := t.Findings(ctx, []string{check}, func(string) {})
	return finding.NotOK(all), err
}

func (l *Lab) script(ctx context.Context, p Puzzle, script string) error {
	if script == "" {
		return nil
	}
	n := l.Lab.Nodes[p.Node]
	if len(n.NICs) == 0 {
		return fmt.Errorf("node %s has no NIC", n.Name)
	}
	peer := l.Lab.Nodes[(p.Node+1)%len(l.Lab.Nodes)]
	nic := n.NICs[0]
	variables := fmt.Sprintf("dev=%s addr=%v len=%d mtu=%d peer=%v\n", nic.Name, nic.Addr.Addr(), nic.Addr.Bits(),
		l.Lab.Fabric.MTU, peer.NICs[0].Addr.Addr())
	res, err := l.Run(ctx, n.Name, guest.Command{Argv: []string{"sh", "-c", variables + script}})
	if err == nil && res.ExitCode != 0 {
		err = fmt.Errorf("node %s: exit status %d: %s", n.Name, res.ExitCode, res.Stderr)
	}
	return err
}

// Mend undoes Break, even if a part was repaired by hand.
func (l *Lab) Mend(ctx context.Context) (Puzzle, error) {
	unlock, err := rack.Lock(ctx, l.Dirs, l.Lab.Name, nil)
	if err != nil {
		return Puzzle{}, err
	}
	defer unlock()
	k, p, err := l.open()
	if err != nil {
		return p, err
	}
	return p, l.mend(ctx, k, p)
}

func (l *Lab) mend(ctx context.Context, k record, p Puzzle) error {
	var errs []error
	if p.GPU != "" {
		errs = append(errs, l.FailGPU(ctx, l.Lab.Nodes[p.Node].Name, 0, "", 0))
	}
	if p.Fault != "" {
		node := l.Lab.Nodes[p.Node].Name
		x, nic, err := l.Adapted(node, "")
		if err == nil {
			err = x.SetFault(ctx, node, nic, "")
		}
		errs = append(errs, err)
	}
	// Last, because an adapter that was reset has lost its driver's settings.
	return errors.Join(append(errs, l.script(ctx, p, p.Mends), l.SetUp(ctx, l.Progress), l.close(ctx, k))...)
}

func (l *Lab) close(ctx context.Context, k record) error {
	c, err := l.Switch()
	if err != nil {
		return err
	}
	if _, err := l.SetLinks(ctx, c, k.Links); err != nil {
		return err
	}
	return os.Remove(filepath.Join(l.Dir, puzzleFile))
}

// Judge makes all checks. If they pass, the puzzle ends.
func (l *Lab) Judge(ctx context.Context) (o Outcome, err error) {
	unlock, err := rack.Lock(ctx, l.Dirs, l.Lab.Name, nil)
	if err != nil {
		return o, err
	}
	defer unlock()
	k, p, err := l.open()
	if err != nil {
		return o, err
	}
	t, err := verify.OfLab(ctx, l.Rack)
	if err != nil {
		return o, err
	}
	all, err := t.Findings(ctx, nil, l.Progress.Begin)
	if err != nil {
		return o, err
	}
	o = Outcome{Puzzle: p, Checks: len(all), NotOK: len(finding.NotOK(all))}
	if o.NotOK > 0 {
		return o, nil
	}
	return o, l.close(ctx, k)
}
