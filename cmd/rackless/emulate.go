//go:build linux

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/internal/cli"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/terminal"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/report/tables"
	"github.com/rackless/rackless/vm/emulate"
	"github.com/rackless/rackless/vm/guest"
)

// emulateFlags' zero value selects a host that ends with this process and has the size of its profile.
type emulateFlags struct {
	name    string
	scale   int
	memory  string
	keep    bool
	cold    bool
	noStdin bool
}

func newEmulateCmd(a *app) *cobra.Command {
	f := emulateFlags{scale: 1}
	cmd := &cobra.Command{
		Use:   "emulate PROFILE|HOST.yaml [flags] [-- COMMAND...]",
		Short: "Run a command, or a shell, in an emulated host: NUMA, IOMMU, SR-IOV, a real Debian",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 || cmd.ArgsLenAtDash() == 0 {
				return cli.Usagef(cmd, "want a profile or a file with one; rackless emulate profiles lists those that "+
					"come with rackless")
			}
			// A second argument may be a command or a second profile, and a wrong guess would start a host for minutes.
			if len(args) == 4 && args[1] == "cp" && cmd.ArgsLenAtDash() < 0 {
				return nil
			}
			if n := cmd.ArgsLenAtDash(); n > 1 || n < 0 && len(args) > 1 {
				return cli.Usagef(cmd, "want one profile, have %s; a command stands behind --: rackless emulate %s "+
					"-- %s", words.Count(len(args), "argument"), args[0], strings.Join(args[1:], " "))
			}
			if f.scale < 1 {
				return cli.Usagef(cmd, "--scale %d: want 1 or more", f.scale)
			}
			return nil
		},
		ValidArgsFunction: completeProfiles,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 4 && args[1] == "cp" && cmd.ArgsLenAtDash() < 0 {
				return a.copyFile(cmd.Context(), emulate.Within(args[0], args[2]), emulate.Within(args[0], args[3]))
			}
			return a.emulate(cmd, f, args[0], args[1:])
		},
	}
	cmd.Flags().StringVar(&f.name, "name", "", "name of the host (default: that of the profile)")
	cmd.Flags().IntVar(&f.scale, "scale", f.scale,
		"divide the number of cores by this, with at least one core a NUMA node")
	cmd.Flags().StringVar(&f.memory, "memory", "",
		"total memory of the host, such as 4GiB (default: that of the profile)")
	cmd.Flags().BoolVar(&f.keep, "keep", false, "keep the host running afterwards")
	cmd.Flags().BoolVar(&f.cold, "cold", false, "boot instead of resuming from a template")
	cmd.Flags().BoolVarP(&f.noStdin, "no-stdin", "n", false, "do not read standard input")
	cmd.AddCommand(newEmulateLsCmd(a), newEmulateProfilesCmd(a), newEmulateRmCmd(a), newEmulateCpCmd(a),
		newHostDaemonCmd(a))
	return cmd
}

func (f emulateFlags) profile(cmd *cobra.Command, arg string) (*emulate.Profile, error) {
	p, err := emulate.Find(arg)
	if err != nil {
		return nil, cli.Usage(err)
	}
	p = p.Scale(f.scale)
	if f.memory == "" {
		return p, nil
	}
	total, err := lab.ParseBytes(f.memory)
	if err == nil {
		p, err = p.WithMemory(total)
	}
	if err != nil {
		return nil, cli.Usagef(cmd, "--memory: %v", err)
	}
	return p, nil
}

func (a *app) emulate(cmd *cobra.Command, f emulateFlags, arg string, command []string) error {
	ctx := cmd.Context()
	d, err := a.dirs()
	if err != nil {
		return err
	}
	profile, kept, err := f.resolve(cmd, d, arg)
	if err != nil {
		return err
	}
	// Before the host starts, which takes minutes, to refuse input beyond the agent's limit.
	var stdin []byte
	if len(command) > 0 && !f.noStdin && terminal.Of(a.in) == nil {
		if stdin, err = guest.ReadInput(ctx, a.in); err != nil {
			return err
		}
	}
	name := f.name
	if kept != nil {
		name = kept.Name
		if kept.Running() && reflect.DeepEqual(profile, kept.Profile) {
			if self, err := os.Executable(); err == nil && kept.OtherProgram(self) {
				fmt.Fprintf(a.err, "host %s has another build of rackless on its disk: it gets this one when it "+
					"next boots\n", name)
			}
			return a.useHost(ctx, kept, emulate.LoginEnvironment, command, stdin)
		}
	}
	p, end := a.progress()
	defer end()
	// Hosts of killed processes hold memory.
	gone, err := emulate.Sweep(ctx, d)
	if err != nil {
		return err
	}
	for _, name := range gone {
		p.Note("removed host %s, whose rackless was killed", name)
	}
	o, err := emulate.Prepare(ctx, d, p)
	if err != nil {
		return err
	}
	// Ctrl-C is safe: Start removes its files, and the host ends with this process.
	o.Profile, o.Name, o.Keep, o.Cold = profile, name, f.keep, f.cold
	h, err := emulate.Start(ctx, o)
	if err != nil {
		return err
	}
	end()
	err = a.useHost(ctx, h, o.Boot.Environment, command, stdin)
	// Even if interrupted.
	return errors.Join(err, h.Close(context.WithoutCancel(ctx), d))
}

// resolve returns the profile, and the host of that name if one is kept. The argument may be a kept host's name;
// without --scale and --memory it is used as it is.
func (f emulateFlags) resolve(cmd *cobra.Command, d rack.Dirs, arg string) (*emulate.Profile, *emulate.Host, error) {
	h, err := emulate.Open(d, cmp.Or(f.name, arg))
	if f.name != "" && err != nil && !errors.Is(err, emulate.ErrNoHost) {
		return nil, nil, err // before images are built
	}
	if err != nil || !h.Keep || !h.Ready { // Start reports problems
		p, err := f.profile(cmd, arg)
		if err == nil {
			err = p.Fits() // before images are built
		}
		return p, nil, err
	}
	// The flags given when the host was made apply. Start refuses another machine.
	changed := cmd.Flags().Changed("scale") || cmd.Flags().Changed("memory")
	if !changed && (arg == h.Name || arg == h.Profile.Name) {
		return h.Profile, h, nil
	}
	p, err := f.profile(cmd, arg)
	return p, h, err
}

func (a *app) useHost(ctx context.Context, h *emulate.Host, env, command []string, stdin []byte) error {
	if err := h.AwaitBoot(ctx, a.waits); err != nil {
		return err
	}
	if len(command) == 0 {
		return a.hostShell(ctx, h)
	}
	exit, err := h.Exec(ctx, env, command, stdin, raw(a.out), raw(a.err))
	if err != nil {
		return err
	}
	return cli.Exit(exit)
}

func (a *app) waits(what string) { fmt.Fprintln(a.err, what) }

// hostShell connects to root's console. Without a terminal it types standard input there.
func (a *app) hostShell(ctx context.Context, h *emulate.Host) error {
	// Otherwise a second shell would wait silently.
	if err := rack.ConsoleFree("host "+h.Name, h.Console()); err != nil {
		return err
	}
	conn, err := h.OpenConsole(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	// As in rackless exec, silence after the end of the input ends the shell.
	t := terminal.Of(a.in)
	if t == nil {
		return terminal.Pipe(ctx, conn, a.in, raw(a.out), time.Second)
	}
	fate := "the host is removed then"
	if h.Keep {
		fate = "the host stays"
	}
	fmt.Fprintf(a.err, "console of host %s: Enter shows the prompt, Ctrl-] leaves; %s\n", h.Name, fate)
	defer terminal.FollowSize(ctx, t, h.SetConsoleSize)()
	return terminal.Connect(ctx, conn, t, raw(a.out))
}

type hostsOutput struct {
	Hosts []emulate.Item `json:"hosts"` // sorted by name
}

// newEmulateLsCmd also lists hosts of killed processes, until the next emulate removes them.
func newEmulateLsCmd(a *app) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:               "ls",
		Aliases:           []string{"list"},
		Short:             "List the emulated hosts of this user",
		Args:              cli.ExactArgs(0, "no argument"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: a.inDirs(func(_ context.Context, d rack.Dirs, _ []string) error {
			// List may return hosts together with an error.
			hosts, err := emulate.List(d)
			out := hostsOutput{Hosts: []emulate.Item{}}
			for _, h := range hosts {
				out.Hosts = append(out.Hosts, h.Describe())
			}
			text := tables.Hosts(out.Hosts, time.Now()).String()
			if len(out.Hosts) == 0 {
				text = "no host is emulated; start one with: rackless emulate PROFILE\n"
				if err != nil {
					text = ""
				}
			}
			return errors.Join(a.print(format, out, text), err)
		}),
	}
	outputFlag(cmd, &format)
	return cmd
}

type profilesOutput struct {
	Profiles []emulate.Machine `json:"profiles"`
}

// newEmulateProfilesCmd prints valid files for emulate.
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
				// Only built-in profiles have a source to print.
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
			return a.print(format, out, tables.Profiles(out.Profiles))
		},
	}
	outputFlag(cmd, &format)
	return cmd
}

func newEmulateRmCmd(a *app) *cobra.Command {
	return &cobra.Command{
		Use:               "rm NAME...",
		Short:             "Stop kept emulated hosts and remove their disks",
		Args:              cli.SomeArgs("the names of hosts, which rackless emulate ls shows"),
		ValidArgsFunction: a.completeHosts,
		RunE: a.inDirs(func(ctx context.Context, d rack.Dirs, args []string) error {
			var errs []error
			// One error does not keep the other hosts.
			for _, name := range args {
				was, err := emulate.Remove(ctx, d, name)
				if err == nil && !was {
					_, err = emulate.Open(d, name) // its error lists the hosts
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

// newEmulateCpCmd needs no network: the agent copies.
func newEmulateCpCmd(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "cp FILE NAME:PATH | NAME:FILE PATH",
		Short: "Copy a file into or out of a running emulated host",
		Args:  cli.ExactArgs(2, "a file and where it goes"),
		RunE:  func(cmd *cobra.Command, args []string) error { return a.copyFile(cmd.Context(), args[0], args[1]) },
	}
}

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

// newHostDaemonCmd is hidden, for kept hosts.
func newHostDaemonCmd(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     emulate.DaemonCommand + " DIR",
		Short:   "Hold the connection to the agent of an emulated host",
		Example: "  rackless emulate " + emulate.DaemonCommand + " /run/rackless/hosts/epyc-7551p",
		Hidden:  true,
		Args:    cli.ExactArgs(1, "the directory of a host"),
		RunE: func(cmd *cobra.Command, args []string) error {
			syscall.Umask(0o077) // as in the daemon of a lab
			return emulate.RunDaemon(cmd.Context(), args[0], a.out)
		},
	}
}

func completeProfiles(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	names := lists.Map(emulate.Builtin(), func(p *emulate.Profile) string { return p.Name + "\t" + p.Description })
	return names, cobra.ShellCompDirectiveDefault
}

func (a *app) completeHosts(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	return a.offered(args, func(d rack.Dirs) (names []string, err error) {
		hosts, err := emulate.List(d)
		names = append(names, lists.Map(lists.Filter(hosts, func(h *emulate.Host) bool { return h.Keep }),
			func(h *emulate.Host) string { return h.Name })...)
		return names, err
	}, cobra.ShellCompDirectiveNoFileComp)
}
