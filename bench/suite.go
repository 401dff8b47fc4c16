package bench

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// Suites: engines that belong together.
const (
	SuiteRDMA   = "rdma"
	SuiteTCP    = "tcp"
	SuiteCPU    = "cpu"
	SuiteMemory = "memory"
	SuiteGPU    = "gpu"
	SuiteAll    = "all"
)

// Suites returns the names of all suites.
func Suites() []string {
	return []string{SuiteRDMA, SuiteTCP, SuiteCPU, SuiteMemory, SuiteGPU, SuiteAll}
}

// Suite returns the engines of a suite, in the order to run them in. Not every node has the tools of all: see Runner.Fits.
func Suite(name string) ([]Engine, error) {
	if !slices.Contains(Suites(), name) {
		return nil, fmt.Errorf("find suite %q: unknown; use one of %s", name, strings.Join(Suites(), ", "))
	}
	var out []Engine
	for _, e := range catalogue {
		if name == SuiteAll || e.Suite == name {
			out = append(out, e)
		}
	}
	return out, nil
}

// Fits tells why nodes cannot run an engine, or nil: a program or what it needs is not there. It looks, and measures nothing.
func (r *Runner) Fits(ctx context.Context, e Engine, opts Options, nodes ...Endpoint) error {
	for _, ep := range nodes {
		if err := r.installed(ctx, e, ep.Node); err != nil {
			return err
		}
		server := ep
		if e.Local {
			server = Endpoint{}
		}
		if err := e.plugin.prepare(ctx, r.ask, ep, server, &opts); err != nil {
			return err
		}
	}
	return nil
}

// installed returns an *UnfitError where a node lacks an engine's program.
func (r *Runner) installed(ctx context.Context, e Engine, node string) error {
	out, err := r.ask(ctx, node, "sh", "-c", "command -v "+e.Program)
	if err != nil {
		return err
	}
	if out.ExitCode != 0 {
		return &UnfitError{Node: node, Reason: fmt.Sprintf("%s is not installed: install %s", e.Program, e.Package)}
	}
	return nil
}
