//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/internal/atomicfile"
	"github.com/rackless/rackless/internal/cli"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/rack/ssh"
	"github.com/rackless/rackless/report"
	"github.com/rackless/rackless/vm/guest"
)

type runFlags struct {
	node          string
	copies, takes []string
	out           string // for files and logs
	junit         string // file for a report
}

const downLimit = time.Minute

// newRunCmd exits with the command's status.
func newRunCmd(a *app) *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run LAB.yaml [--copy PATH] -- COMMAND [ARGUMENT]...",
		Short: "Bring a lab up, run a command on a node, and take the lab down",
		Args: func(cmd *cobra.Command, args []string) error {
			if cmd.ArgsLenAtDash() != 1 || len(args) < 2 {
				return cli.Usagef(cmd, "want a lab file and a command: rackless run LAB.yaml -- COMMAND")
			}
			return nil
		},
		ValidArgsFunction: completeLabFiles,
		RunE: func(cmd *cobra.Command, args []string) error {
			l, err := loadLab(args[0])
			if err == nil {
				err = f.check(l)
			}
			if err != nil {
				return err
			}
			return a.runLab(cmd.Context(), l, f, args[1:])
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&f.node, "node", "", "the `NODE` that runs the command (default the first)")
	fs.StringArrayVar(&f.copies, "copy", nil, "`PATH` of a file or directory to copy to /root of all nodes")
	fs.StringArrayVar(&f.takes, "take", nil, "`NODE:PATH` to copy to the directory of --out, also after a failure")
	fs.StringVar(&f.out, "out", "", "`DIRECTORY` for the consoles of the nodes, and what --take names")
	fs.StringVar(&f.junit, "junit", "", "`FILE` for a report of the steps, as JUnit")
	cli.OfferWords(cmd, "node")
	return cmd
}

// check runs before anything is started.
func (f *runFlags) check(l *lab.Lab) error {
	names := l.NodeNames()
	if f.node == "" {
		f.node = names[0]
	}
	if !slices.Contains(names, f.node) {
		return cli.Usage(fmt.Errorf("--node %s: lab %s has %s", f.node, l.Name, strings.Join(names, ", ")))
	}
	if rack.NeedsPlace(l) {
		return cli.Usage(fmt.Errorf("lab %s is for a prepared host: rackless run is for emulated labs", l.Name))
	}
	for _, path := range f.copies {
		if _, err := os.Stat(path); err != nil {
			return cli.Usage(fmt.Errorf("--copy: %w", err))
		}
	}
	for _, path := range f.takes {
		node, _, ok := strings.Cut(path, ":")
		if !ok || !slices.Contains(names, node) {
			return cli.Usage(fmt.Errorf("--take %s: want NODE:PATH with one of %s", path, strings.Join(names, ", ")))
		}
		if f.out == "" {
			return cli.Usage(errors.New("--take needs --out DIRECTORY"))
		}
	}
	if len(f.copies)+len(f.takes) > 0 {
		for _, n := range l.Nodes {
			if !n.HasDisk() {
				return cli.Usage(fmt.Errorf("node %s has no sshd to copy files: set image: debian-12", n.Name))
			}
		}
	}
	return nil
}

// runLab's standard output is that of the command alone.
func (a *app) runLab(ctx context.Context, l *lab.Lab, f runFlags, argv []string) (err error) {
	d, err := a.dirs()
	if err != nil {
		return err
	}
	running, err := d.Names()
	if err != nil {
		return err
	}
	if slices.Contains(running, l.Name) {
		return cli.Usage(fmt.Errorf("lab %s is running: rackless run ends its lab, and this one is not its own",
			l.Name))
	}
	if f.out != "" {
		if err := os.MkdirAll(f.out, 0o755); err != nil {
			return err
		}
	}
	var steps []report.Step
	step := func(name string, do func() error) error {
		began := time.Now()
		err := do()
		s := report.Step{Name: name, Took: time.Since(began)}
		if err != nil {
			s.Error = err.Error()
		}
		steps = append(steps, s)
		return err
	}
	if f.junit != "" {
		defer func() {
			err = both(err, atomicfile.Write(f.junit, 0o644, func(w io.Writer) error {
				return report.JUnitSteps(w, l.Name, steps)
			}))
		}()
	}
	var r *rack.Rack
	err = step("up", func() error {
		ui := a.display()
		defer ui.Close()
		var err error
		r, err = rack.Up(ctx, d, l, rack.Options{Accel: "auto", Progress: ui.Event})
		return err
	})
	if err != nil {
		return err
	}
	defer func() {
		r.Close()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), downLimit)
		defer cancel()
		err = both(err, step("down", func() error {
			_, err := rack.Down(ctx, d, l.Name)
			return err
		}))
	}()
	if f.out != "" {
		defer func() { err = both(err, step("take", func() error { return takeRun(ctx, r, f) })) }()
	}
	for _, path := range f.copies {
		for _, node := range l.NodeNames() {
			err := step("copy "+path+" to "+node, func() error {
				return copied(ssh.Copy(ctx, r, true, []string{plainPath(path), node + ":"}))
			})
			if err != nil {
				return err
			}
		}
	}
	command := guest.Command{Argv: argv}
	if n := slices.IndexFunc(l.Nodes, func(n lab.Node) bool { return n.Name == f.node }); l.Nodes[n].HasDisk() {
		command.Argv = append([]string{"sh", "-c", `cd && exec "$@"`, "sh"}, argv...) // there are the copies
	}
	exit := 0
	err = step(strings.Join(argv, " "), func() error {
		var err error
		exit, err = r.Stream(ctx, f.node, command, raw(a.out), raw(a.err))
		switch {
		case errors.Is(err, guest.ErrNoProgram):
			return &cli.Error{Code: exit, Err: err}
		case err == nil && exit != 0:
			return fmt.Errorf("exit status %d", exit)
		}
		return err
	})
	if exit > 0 && err != nil && !errors.Is(err, guest.ErrNoProgram) {
		return cli.Exit(exit) // the command has said why
	}
	return err
}

// both leaves a single error as it is: it may be the exit status of a command.
func both(a, b error) error {
	switch {
	case b == nil:
		return a
	case a == nil:
		return b
	}
	return errors.Join(a, b)
}

// takeRun also copies the consoles of all nodes.
func takeRun(ctx context.Context, r *rack.Rack, f runFlags) error {
	var errs []error
	for _, node := range r.Lab.NodeNames() {
		console, err := os.ReadFile(r.Logs(node).Console)
		if err == nil {
			err = os.WriteFile(filepath.Join(f.out, node+".console"), console, 0o644)
		}
		errs = append(errs, err)
	}
	for _, path := range f.takes {
		errs = append(errs, copied(ssh.Copy(context.WithoutCancel(ctx), r, true, []string{path, plainPath(f.out) +
			"/"})))
	}
	return errors.Join(errs...)
}

// plainPath is not one on a node for scp.
func plainPath(path string) string {
	if strings.HasPrefix(path, "/") || strings.HasPrefix(path, ".") {
		return path
	}
	return "./" + path
}

func copied(exit int, err error) error {
	if err == nil && exit != 0 {
		err = fmt.Errorf("scp: exit status %d", exit)
	}
	return err
}
