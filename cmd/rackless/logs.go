//go:build linux

package main

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/internal/cli"
	"github.com/rackless/rackless/internal/terminal"
	"github.com/rackless/rackless/internal/words"
)

type logsFlags struct {
	follow, qemu, daemon bool
	lines                int // 0 means all
}

// newLogsCmd reads files, also after a node has ended.
func newLogsCmd(a *app) *cobra.Command {
	var f logsFlags
	cmd := &cobra.Command{
		Use:   "logs NODE | logs --daemon LAB",
		Short: "Print the output of a node's console, its QEMU or the lab's switch",
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) != 1:
				return cli.Usagef(cmd, "want a node, or with --daemon a lab; have %s",
					words.Count(len(args), "argument"))
			case f.qemu && f.daemon:
				return cli.Usagef(cmd, "--qemu and --daemon are two logs: say one of them")
			case f.lines < 0:
				return cli.Usagef(cmd, "--lines %d: want 0 (all) or more", f.lines)
			}
			return nil
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
			if f.daemon {
				return a.completeLabs(cmd, args, word)
			}
			return a.completeNodes(cmd, args, word)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			path, err := a.logPath(args[0], f)
			if err != nil {
				return err
			}
			// A guest's escape sequences may permanently change the terminal.
			var w io.Writer = a.out
			if terminal.Of(a.out) != nil {
				w = &terminal.PlainWriter{W: a.out}
			}
			return terminal.PrintLog(cmd.Context(), w, path, f.lines, f.follow)
		},
	}
	fs := cmd.Flags()
	fs.BoolVarP(&f.follow, "follow", "f", false, "continue as the log grows, until Ctrl-C or the end of the lab")
	fs.IntVarP(&f.lines, "lines", "n", 0, "only this many lines from the end (0: all)")
	fs.BoolVar(&f.qemu, "qemu", false, "the output of QEMU itself, instead of the node's console")
	fs.BoolVar(&f.daemon, "daemon", false, "the log of the lab's daemon, which holds switch and agents")
	return cmd
}

// logPath explains on standard error if the file is unexpectedly empty.
func (a *app) logPath(arg string, f logsFlags) (string, error) {
	if f.daemon {
		r, err := a.openLab(arg)
		if err != nil {
			return "", err
		}
		return r.DaemonLog(), nil
	}
	r, node, err := a.openNode(arg)
	if err != nil {
		return "", err
	}
	logs := r.Logs(node)
	if f.qemu {
		return logs.QEMU, nil
	}
	n, ok := r.State.Node(node)
	if fi, err := os.Stat(logs.Console); ok && n.Cloned && err == nil && fi.Size() == 0 {
		fmt.Fprintf(a.err, "%s was cloned and has printed nothing since; its kernel's messages: rackless exec "+
			"%s/%s -- dmesg\n", node, r.Lab.Name, node)
	}
	return logs.Console, nil
}
