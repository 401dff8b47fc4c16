package rack

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/rack/slurm"
	"github.com/rackless/rackless/vm/guest"
)

// SetUp applies the settings of a lab file in running nodes: the steps of each node in order, then Slurm. If everything
// is done, it reports no progress.
func (r *Rack) SetUp(ctx context.Context, p *Progress) error {
	if err := r.runSteps(ctx, p); err != nil {
		return fmt.Errorf("%w; lab %s is up without it: rackless up tries again", err, r.Lab.Name)
	}
	if err := slurm.Start(ctx, r.Lab, r.Dir, r, func() { p.Begin("Slurm") }); err != nil {
		return fmt.Errorf("%w; lab %s is up without Slurm: rackless up tries again", err, r.Lab.Name)
	}
	p.End(nil)
	return nil
}

const setupAtOnce = 8

func (r *Rack) runSteps(ctx context.Context, p *Progress) error {
	nodes := slices.DeleteFunc(slices.Clone(r.Lab.Nodes), func(n lab.Node) bool { return len(n.Setup) == 0 })
	var mu sync.Mutex // guards progress and state
	begun := false
	return Each(ctx, nodes, setupAtOnce, func(ctx context.Context, n lab.Node) error {
		for i, s := range n.Setup {
			done, err := r.holds(ctx, n.Name, s)
			if err != nil {
				return err
			}
			if done {
				continue
			}
			mu.Lock()
			if !begun {
				p.Begin("setup")
			}
			begun = true
			p.Note("%s: %s", n.Name, n.Title(i))
			mu.Unlock()
			if err := r.runStep(ctx, n.Name, s); err != nil {
				return fmt.Errorf("node %s: setup: %s: %w", n.Name, n.Title(i), err)
			}
			if s.Check != "" {
				continue
			}
			mu.Lock()
			node, _ := r.State.Node(n.Name)
			node.SetUp = append(node.SetUp, s.Run)
			err = r.Save()
			mu.Unlock()
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// holds asks the step's check, or else the record of steps that were run.
func (r *Rack) holds(ctx context.Context, node string, s lab.Step) (bool, error) {
	if s.Check == "" {
		n, ok := r.State.Node(node)
		return ok && slices.Contains(n.SetUp, s.Run), nil
	}
	res, err := r.Run(ctx, node, guest.Command{Argv: []string{"sh", "-c", s.Check}})
	return err == nil && res.ExitCode == 0, err
}

func (r *Rack) runStep(ctx context.Context, node string, s lab.Step) error {
	for _, script := range []string{s.Run, s.Check} {
		if script == "" {
			continue
		}
		res, err := r.Run(ctx, node, guest.Command{Argv: []string{"sh", "-c", script}})
		if err != nil {
			return err
		}
		if res.ExitCode != 0 {
			what := "it ended with status"
			if script == s.Check {
				what = "it was run, but its check still ends with status"
			}
			return fmt.Errorf("%s %d%s", what, res.ExitCode, lastLine(res))
		}
	}
	return nil
}

func lastLine(res guest.Result) string {
	for _, out := range [][]byte{res.Stderr, res.Stdout} {
		if out = bytes.TrimSpace(out); len(out) > 0 {
			return ": " + strings.ToValidUTF8(string(out[bytes.LastIndexByte(out, '\n')+1:]), "?")
		}
	}
	return ""
}
