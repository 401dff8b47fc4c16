//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/emulate"
	"github.com/rackless/rackless/internal/cli"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/report/listview"
)

// hostsOutput is what emulate ls prints as JSON, see docs/json.md.
type hostsOutput struct {
	Hosts []emulate.Item `json:"hosts"` // by name
}

// newEmulateLsCmd makes rackless emulate ls. It also lists hosts whose rackless was
// killed, until the next emulate removes them.
func newEmulateLsCmd(a *app) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:               "ls",
		Aliases:           []string{"list"},
		Short:             "List the emulated hosts of this user",
		Args:              cli.ExactArgs(0, "no argument"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: a.inDirs(func(_ context.Context, d rack.Dirs, _ []string) error {
			// With some hosts there may be an error too, of those that cannot be read.
			hosts, err := emulate.List(d)
			out := hostsOutput{Hosts: []emulate.Item{}}
			for _, h := range hosts {
				out.Hosts = append(out.Hosts, h.Describe())
			}
			// Hosts that cannot be read are an error, but not for those that can.
			text := listview.Hosts(out.Hosts, time.Now()).String()
			if len(out.Hosts) == 0 {
				text = words.If(err == nil, "no host is emulated; start one with: rackless emulate PROFILE\n")
			}
			return errors.Join(a.print(format, out, text), err)
		}),
	}
	outputFlag(cmd, &format)
	return cmd
}

// profilesOutput is what emulate profiles prints as JSON, see docs/json.md.
type profilesOutput struct {
	Profiles []emulate.Machine `json:"profiles"`
}

// newEmulateProfilesCmd makes rackless emulate profiles. A printed profile is a file that emulate takes.
func newEmulateProfilesCmd(a *app) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "profiles [PROFILE]",
		Short: "List the machines that come with rackless, or print the file of one",
		Args:  cli.MaxArgs(1, "at most one profile"),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
			names, _ := completeProfiles(cmd, args, word)
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 1 {
				// Find takes a path as well, but only built-in profiles have a source to print.
				if strings.ContainsAny(args[0], "./") {
					return cli.Usage(fmt.Errorf("%s is a file already", args[0]))
				}
				p, err := emulate.Find(args[0])
				if err != nil {
					return cli.Usage(err)
				}
				_, err = a.out.Write(emulate.Source(p.Name))
				return err
			}
			out := profilesOutput{}
			for _, p := range emulate.Builtin() {
				out.Profiles = append(out.Profiles, p.Describe())
			}
			return a.print(format, out, listview.Profiles(out.Profiles))
		},
	}
	outputFlag(cmd, &format)
	return cmd
}

// newEmulateRmCmd makes rackless emulate rm.
func newEmulateRmCmd(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "rm NAME...",
		Short: "Stop kept emulated hosts and remove their disks",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cli.Usagef(cmd, "want the names of hosts, which rackless emulate ls shows")
			}
			return nil
		},
		ValidArgsFunction: a.completeHosts,
		RunE: a.inDirs(func(ctx context.Context, d rack.Dirs, args []string) error {
			var errs []error
			// Each name by itself: a slip in one leaves no other host behind.
			for _, name := range args {
				was, err := emulate.Remove(ctx, d, name)
				if err == nil && !was {
					_, err = emulate.Open(d, name) // says which there are
				}
				if err != nil {
					errs = append(errs, err)
					continue
				}
				fmt.Fprintf(a.out, "host %s is removed\n", name)
			}
			return errors.Join(errs...)
		}),
	}
}

// newEmulateCpCmd makes rackless emulate cp. The agent of the host copies, so it needs no network.
func newEmulateCpCmd(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "cp FILE NAME:PATH | NAME:FILE PATH",
		Short: "Copy a file into an emulated host that runs, or out of it",
		Args:  cli.ExactArgs(2, "a file and where it goes"),
		RunE:  func(cmd *cobra.Command, args []string) error { return a.copyFile(cmd.Context(), args[0], args[1]) },
	}
}

// copyFile copies in the direction that the argument with the name of a host tells.
func (a *app) copyFile(ctx context.Context, from, to string) error {
	d, err := a.dirs()
	if err != nil {
		return err
	}
	if err = emulate.Copy(ctx, d, from, to, a.waits); errors.Is(err, emulate.ErrOneSide) {
		return cli.Usage(err)
	}
	return err
}

// newHostDaemonCmd is what emulate starts for a host that is kept; it is not for people.
func newHostDaemonCmd(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     emulate.DaemonCommand + " DIR",
		Short:   "Hold the connection to the agent of an emulated host",
		Example: "  rackless emulate " + emulate.DaemonCommand + " /run/rackless/hosts/epyc-7551p",
		Hidden:  true,
		Args:    cli.ExactArgs(1, "the directory of a host"),
		RunE: func(cmd *cobra.Command, args []string) error {
			syscall.Umask(0o077) // as for the daemon of a lab
			return emulate.RunDaemon(cmd.Context(), args[0], a.out)
		},
	}
}

// completeProfiles offers the built-in profiles, and files.
func completeProfiles(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveDefault // of the command
	}
	names := lists.Map(emulate.Builtin(), func(p *emulate.Profile) string { return p.Name + "\t" + p.Description })
	return names, cobra.ShellCompDirectiveDefault
}

// completeHosts offers the hosts that are kept.
func (a *app) completeHosts(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	return a.offered(args, func(d rack.Dirs) (names []string, err error) {
		hosts, err := emulate.List(d)
		for _, h := range hosts {
			if h.Keep {
				names = append(names, h.Name)
			}
		}
		return names, err
	}, cobra.ShellCompDirectiveNoFileComp)
}
