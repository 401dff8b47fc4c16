// Command rackless turns one machine into a multi-node RDMA lab.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/rack"
)

// version is stamped by the Makefile.
var version = "devel"

// Exit codes, documented in the root command's help.
const (
	exitFailed = 1 // the operation failed
	exitUsage  = 2 // the command line or a file is wrong
	exitFaults = 3 // it ran, and found faults
)

// An exitError ends the program with a code of its own. An empty err means that everything has been said.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// usage marks an error as the caller's.
func usage(err error) error { return &exitError{exitUsage, err} }

// app is what commands share: the world outside, which tests replace.
type app struct {
	in       *os.File // a *os.File since console and exec ask whether it is a terminal
	out, err io.Writer
	env      func(string) string
	uid      int
}

func (a *app) dirs() (rack.Dirs, error) { return rack.DefaultDirs(a.env, a.uid) }

func main() { os.Exit(run()) }

// run is main with an exit code, as tests call it.
func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	a := &app{in: os.Stdin, out: os.Stdout, err: os.Stderr, env: os.Getenv, uid: os.Getuid()}
	root := newRootCmd(a)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	if e, ok := errors.AsType[*exitError](err); ok {
		if e.err != nil {
			fmt.Fprintf(a.err, "rackless: %v\n", e.err)
		}
		return e.code
	}
	if ctx.Err() != nil {
		fmt.Fprintf(a.err, "rackless: interrupted: %v\n", err)
		return exitFailed
	}
	fmt.Fprintf(a.err, "rackless: %v\n", err)
	return exitFailed
}

func newRootCmd(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "rackless",
		Short: "A rack without the rack: RDMA labs of many nodes on one machine",
		Long: `rackless turns one machine into a multi-node RDMA lab, proves that it is right, and measures it.

Without RDMA hardware the nodes are QEMU machines with software RoCE (rdma_rxe) on an emulated
network, and every figure says so.

  rackless up examples/pair.yaml       two nodes that speak RoCE v2 to each other
  rackless verify pair                 every fact of it, checked, with evidence
  rackless bench pair                  bandwidth and latency, and a page that shows them
  rackless exec vm00 -- ibv_devinfo    anything else
  rackless down pair

Exit codes: 0 done, 1 failed, 2 wrong command line or lab file, 3 the check or measurement ran and
found faults. exec ends with the command's own status.

Environment: RACKLESS_RUN, RACKLESS_CACHE and RACKLESS_DATA move the directories of running labs,
images and results; NO_COLOR turns colour off.`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       version,
	}
	root.SetOut(a.out)
	root.SetErr(a.err)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usage(fmt.Errorf("%w\nsee: %s --help", err, cmd.CommandPath()))
	})
	root.AddGroup(
		&cobra.Group{ID: "lab", Title: "Labs:"},
		&cobra.Group{ID: "node", Title: "Nodes:"},
		&cobra.Group{ID: "measure", Title: "Measuring:"},
		&cobra.Group{ID: "machine", Title: "This machine:"},
	)
	group := func(id string, cmds ...*cobra.Command) {
		for _, c := range cmds {
			c.GroupID = id
			root.AddCommand(c)
		}
	}
	group("lab", newUpCmd(a), newDownCmd(a), newLsCmd(a))
	group("node", newExecCmd(a))
	root.AddCommand(newDaemonCmd(a))
	return root
}
