package bench

import (
	"context"
	"strings"
)

// Suites are groups of engines.
const (
	SuiteRDMA   = "rdma"
	SuiteTCP    = "tcp"
	SuiteCPU    = "cpu"
	SuiteMemory = "memory"
	SuiteGPU    = "gpu"
	SuiteMPI    = "mpi"
	SuiteApps   = "apps"
	SuiteAI     = "ai"
	// SuiteGPUDirect is repeated for each GPU and each NIC of the nodes. SuiteAll does not contain it.
	SuiteGPUDirect = "gpudirect"
	SuiteAll       = "all"
)

// Suites returns the names of all suites.
func Suites() []string {
	return []string{SuiteRDMA, SuiteTCP, SuiteCPU, SuiteMemory, SuiteGPU, SuiteMPI, SuiteApps, SuiteAI,
		SuiteGPUDirect, SuiteAll}
}

// Fits returns an error if a program or a requirement is missing. Each node is checked as the client of the one before
// it, and the first as its own.
func (r *Runner) Fits(ctx context.Context, e Engine, opts Options, nodes ...Endpoint) error {
	if err := r.Allowed(e, opts); err != nil {
		return &UnfitError{nodes[0].Node, err.Error()}
	}
	for i, ep := range nodes {
		if err := r.installed(ctx, e, ep.Node); err != nil {
			return err
		}
		// Engines skip the checks between two nodes for a node that is its own server.
		var server Endpoint
		if !e.Local {
			server = nodes[max(0, i-1)]
		}
		if err := e.Plugin.Prepare(ctx, r.ask, ep, server, &opts); err != nil {
			return err
		}
	}
	return nil
}

// FindCommand prints the path of the first of some programs that a node has, or fails.
func FindCommand(names string) []string {
	return []string{"sh", "-c", "command -v " + strings.Join(strings.Fields(names), " || command -v ")}
}

func (r *Runner) installed(ctx context.Context, e Engine, node string) error {
	out, err := r.ask(ctx, node, FindCommand(e.Program+" "+e.Others)...)
	if err != nil {
		return err
	}
	if out.ExitCode != 0 {
		return Unfit(node, "%s is not installed: install %s", e.Program, e.Package)
	}
	return nil
}
