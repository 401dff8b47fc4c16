// Command rackless turns one machine into a multi-node RDMA lab.
package main

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/internal/cli"
	"github.com/rackless/rackless/internal/terminal"
	"github.com/rackless/rackless/internal/trace"
	"github.com/rackless/rackless/internal/userdirs"
	"github.com/rackless/rackless/internal/userfile"
	"github.com/rackless/rackless/machine/inspect"
	"github.com/rackless/rackless/plan/planner"
	"github.com/rackless/rackless/study/conduct"
)

var version = "devel"

// The root command's help documents them.
const (
	exitFailed = 1 // the operation failed
	exitUsage  = 2 // command line or file
	exitFaults = 3 // found faults
	exitReboot = 4 // all possible steps are done; a reboot is needed
)

// app has streams, environment and user ID, which tests replace.
type app struct {
	in       *os.File // for the check of terminals
	out, err io.Writer
	env      func(string) string
	environ  []string // the whole environment, as NAME=VALUE
	uid      int
	told     func()          // ends the output of --verbose
	machine  *inspect.Source // for bundle; nil is this machine
	all      bool            // of all commands
}

// dirs checks that other users cannot write to this user's directories.
func (a *app) dirs() (userdirs.Dirs, error) {
	d, err := userdirs.Default(a.env, a.uid)
	if err != nil {
		return d, err
	}
	return d, d.Check(a.uid)
}

// setDefaults reads the environment and the user's config file.
func (a *app) setDefaults(cmd *cobra.Command) error {
	var d cli.Defaults
	file, err := userdirs.ConfigFile(a.env, a.uid)
	if err != nil {
		return cli.Usage(err)
	}
	if file != "" {
		text, err := userfile.Read(file, userfile.Text)
		if err != nil {
			return cli.Usage(fmt.Errorf("config file: %w; RACKLESS_CONFIG names another, or /dev/null for none", err))
		}
		if d, err = cli.ReadDefaults(cmd.Root(), file, text); err != nil {
			return err
		}
	}
	if err := cli.Slips(cmd.Root(), a.environ, variables...); err != nil {
		return err
	}
	return d.Set(cmd, a.env)
}

// settle translates former flags, and says how they are typed now.
func (a *app) settle(cmd *cobra.Command) error {
	said, err := cli.Settle(cmd)
	for _, s := range said {
		fmt.Fprintf(a.err, "rackless: %s; the old name goes with the next version\n", s)
	}
	return err
}

// variables correspond to no flag.
var variables = []string{"RACKLESS_RUN", "RACKLESS_CACHE", "RACKLESS_DATA", "RACKLESS_CONFIG", "RACKLESS_STATE",
	"RACKLESS_FAULT", "RACKLESS_VSPHERE", "RACKLESS_STUDY_LOCK"}

// tell starts --verbose, with plain lines of progress, because a live line would be overwritten.
func (a *app) tell() {
	env := a.env
	a.env = func(name string) string {
		if name == "TERM" {
			return "dumb"
		}
		return env(name)
	}
	a.told = trace.To(a.err)
}

func main() { os.Exit(run()) }

// run is main with an exit code.
func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	a := &app{in: os.Stdin, out: &terminal.Writer{File: os.Stdout}, err: &terminal.Writer{File: os.Stderr},
		env: os.Getenv, environ: os.Environ(), uid: os.Getuid()}
	// The first Ctrl-C ends the command in an orderly way, a second one kills the program at once.
	context.AfterFunc(ctx, stop)
	userfile.EndWith(ctx)
	return a.run(ctx, os.Args[1:])
}

func (a *app) run(ctx context.Context, args []string) int {
	a.told = func() {}
	root := newRootCmd(a)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	a.told() // the error is the last line
	if err == nil {
		return 0
	}
	code, text := exitCode(err)
	if text != "" {
		// An error after Ctrl-C is usually its consequence.
		if ctx.Err() != nil {
			text = interrupted(ctx, err)
		}
		fmt.Fprintf(a.err, "rackless: %s\n", text)
	}
	return code
}

var errUndone = errors.New("everything that was begun is undone")

func interrupted(ctx context.Context, err error) string {
	switch text := err.Error(); {
	case errors.Is(err, errUndone):
		return "interrupted; " + text
	case text == context.Cause(ctx).Error(), text == ctx.Err().Error():
		return "interrupted"
	default:
		return "interrupted: " + text
	}
}

// otherNames are from ssh, docker, containerlab, kubectl, vagrant, and hwloc.
var otherNames = map[string][]string{
	"bundle":  {"collect", "sosreport"},
	"cp":      {"copy", "scp"},
	"doctor":  {"preflight"},
	"down":    {"delete", "destroy", "kill", "rm", "stop"},
	"exec":    {"attach", "run", "sh", "shell", "ssh"},
	"inspect": {"describe", "graph", "lstopo", "show", "topo", "topology"},
	"lab":     {"config", "lint", "validate"},
	"link":    {"links", "netem", "network", "port", "ports", "switch", "tc"},
	"ls":      {"get", "inventory", "nodes", "ps", "stat", "status"},
	"up":      {"apply", "create", "deploy", "launch", "start"},
	"top":     {"htop", "monitor", "watch"},
	"ui":      {"dashboard", "web"},
	"verify":  {"test"},
}

// newRootCmd is made for each command line, because cobra keeps the values of flags.
func newRootCmd(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "rackless",
		Short: "A rack without the rack: RDMA labs of many nodes on one machine",
		// run prints errors once. cobra would add the whole help below a failure of a lab.
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       version,
	}
	var verbose bool
	root.PersistentFlags().BoolVar(&verbose, "verbose", false, "say on standard error what is read, run and changed")
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		// Defaults may be of former flags too.
		for _, step := range []func(*cobra.Command) error{a.settle, a.setDefaults, a.settle} {
			if err := step(cmd); err != nil {
				return err
			}
		}
		if now := cmd.Annotations[cli.Now]; now != "" {
			fmt.Fprintf(a.err, "rackless: %q is now %q; the old name goes with the next version\n", cmd.CommandPath(),
				"rackless "+now)
		}
		a.exactFor(cmd)
		if verbose {
			a.tell()
		}
		return nil
	}
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	root.SetFlagErrorFunc(cli.FlagError)
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) { _ = a.help(cmd) })
	root.Flags().BoolVar(&a.all, "all", false, "with --help: all commands, exit codes and variables")
	root.AddGroup(
		&cobra.Group{ID: "lab", Title: "Labs:"},
		&cobra.Group{ID: "node", Title: "Nodes:"},
		&cobra.Group{ID: "measure", Title: "Measuring:"},
		&cobra.Group{ID: "machine", Title: "This machine:"},
		&cobra.Group{ID: "learn", Title: "Help:"},
	)
	// In the order of a user's steps.
	group := func(id string, cmds ...*cobra.Command) {
		for _, c := range cmds {
			c.GroupID, c.SuggestFor = id, otherNames[c.Name()]
			root.AddCommand(c)
		}
	}
	group("lab", newInitCmd(a), newPlanCmd(a), newUpCmd(a), newDownCmd(a), newRunCmd(a), newLsCmd(a), newExportCmd(a),
		newLabCmd(a))
	group("node", newExecCmd(a), newMPIRunCmd(a), newSSHCmd(a), newCpCmd(a), newLogsCmd(a), newNICCmd(a), newGPUCmd(a),
		newLinkCmd(a))
	group("measure", newVerifyCmd(a), newBenchCmd(a), newPerftestCmd(a), newTopCmd(a), newStudyCmd(a),
		newSimulateCmd(a), newUICmd(a))
	group("machine", newInspectCmd(a), newPrepareCmd(a), newRollbackCmd(a), newHostCmd(a), newDoctorCmd(a),
		newEmulateCmd(a), newImageCmd(a))
	group("learn", newExplainCmd(a), newPuzzleCmd(a), newBundleCmd(a), newVersionCmd(a))
	// Hidden, in no group.
	root.AddCommand(newDaemonCmd(a))
	addFormerNames(a, root)
	leave(root)

	// cobra would add these two when it runs, without groups and usage errors.
	root.SetHelpCommandGroupID("learn")
	root.SetCompletionCommandGroupID("learn")
	setHelp(root)
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	describeBuiltins(a, root)
	cli.Finish(root)
	return root
}

// helpFiles contain the long help of each command and, in a code block, its usage. study-run.md belongs to "rackless
// study run".
//
//go:embed help
var helpFiles embed.FS

// setHelp skips cobra's own commands, which have no file.
func setHelp(cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		setHelp(c)
	}
	text, err := helpFiles.ReadFile("help/" + helpName(cmd))
	if err != nil {
		return
	}
	long, examples, _ := strings.Cut(strings.TrimSuffix(string(text), "\n```\n"), "\n```\n")
	// %s stands for a list that the program makes.
	cmd.Long = strings.Replace(strings.TrimSpace(long), "%s", cmd.Long, 1)
	if examples != "" {
		cmd.Example = "  " + strings.ReplaceAll(examples, "\n", "\n  ")
	}
}

func helpName(cmd *cobra.Command) string {
	if now := cmd.Annotations[cli.Now]; now != "" {
		return strings.ReplaceAll(now, " ", "-") + ".md"
	}
	return strings.ReplaceAll(strings.TrimPrefix(cmd.CommandPath(), "rackless "), " ", "-") + ".md"
}

// exitCode also returns text that is still to be printed.
func exitCode(err error) (code int, text string) {
	if e, ok := errors.AsType[*cli.Error](err); ok {
		return e.Code, e.Error()
	}
	// The end of a pipe ends the program silently, as the signal would that raw ignores.
	if e, ok := errors.AsType[*fs.PathError](err); ok && e.Path == os.Stdout.Name() && errors.Is(e, syscall.EPIPE) {
		return 128 + int(syscall.SIGPIPE), ""
	}
	// The caller's request was impossible.
	_, wrong := errors.AsType[*planner.RequestError](err)
	if _, changed := errors.AsType[*conduct.ChangedError](err); wrong || changed {
		return exitUsage, err.Error()
	}
	return exitFailed, err.Error()
}

// hostFlag is --host.
type hostFlag struct{ host string }

const hostHelp = "`HOST`: local, a file or directory that inspect reads, ssh://NAME or vsphere://NAME"

// add begins the help with purpose.
func (h *hostFlag) add(cmd *cobra.Command, purpose string) {
	cmd.Flags().StringVar(&h.host, "host", planner.Local, purpose+" "+hostHelp)
	cli.Renamed(cmd, "snapshot", "", "host")
	offerHosts(cmd)
}

func offerHosts(cmd *cobra.Command) {
	cli.Offer(cmd, "host", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return []string{planner.Local}, cobra.ShellCompDirectiveDefault // or files
	})
}

// check refuses an empty value of --host and of others.
func (h *hostFlag) check(cmd *cobra.Command, what string, others ...string) error {
	return cli.NotEmpty(cmd, what, append([]string{"host"}, others...)...)
}

func (a *app) hosts() planner.Hosts { return planner.Hosts{Stdin: a.in, Schemes: schemes} }

func grouping(use, short string, cmds ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short}
	cmd.AddCommand(cmds...)
	return cmd
}

type versionOutput struct {
	Version string `json:"version"` // a tag, the output of git describe, or "devel"
	Go      string `json:"go"`      // that built it
	OS      string `json:"os"`
	Arch    string `json:"arch"`
}

func newVersionCmd(a *app) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of rackless",
		Args:  cli.ExactArgs(0, "no argument"),
		RunE: func(*cobra.Command, []string) error {
			v := versionOutput{Version: version, Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
			return a.print(format, v, fmt.Sprintf("rackless %s (%s, %s/%s)\n", v.Version, v.Go, v.OS, v.Arch))
		},
	}
	outputFlag(cmd, &format)
	return cmd
}
