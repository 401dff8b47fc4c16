package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/internal/cli"
	"github.com/rackless/rackless/internal/parallel"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/diagnose"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/machine/inspect"
	"github.com/rackless/rackless/machine/inspect/remote"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/machine/topology/compare"
	"github.com/rackless/rackless/plan/planner"
	"github.com/rackless/rackless/report/hostview"
	"github.com/rackless/rackless/report/show"
	"github.com/rackless/rackless/study/importer"
)

const (
	formTable  = "table"
	formMatrix = "matrix"
	formSVG    = "svg"
	formHTML   = "html"
)

const failNever = "never"

const manyGCPercent = 400

type inspectOptions struct {
	form      string
	formGiven bool
	root      string
	failOn    string
	grouping  inspect.Grouping
	diff      bool
	wide      bool
	hosts     []string // of --host
	save      string   // for snapshots of hosts read by ssh
	summary   bool
	workers   int
}

func init() {
	inspect.Results = func(text []byte) string {
		tool := importer.Tool(text)
		if tool == "" {
			return ""
		}
		return "results of " + tool + ": rackless bench check FILE compares the figures with a machine, and " +
			"rackless study import FILE keeps them as a study"
	}
}

// newInspectCmd reads this machine, a snapshot, and many dumps, so that a script works on all.
func newInspectCmd(a *app) *cobra.Command {
	o := inspectOptions{form: formTable, failOn: failNever}
	cmd := &cobra.Command{
		Use:   "inspect [FILE|DIR|-]...",
		Short: "Show this machine's topology and devices, and what is wrong with them",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := cli.NotEmpty(cmd, "a directory", "save"); err != nil {
				return err
			}
			o.formGiven = cmd.Flags().Changed("output")
			return a.inspect(cmd.Context(), o, args)
		},
	}
	cli.EnumFlag(cmd, &o.form, "output", "o", "how to print a host",
		slices.Concat([]string{formTable, formatJSON, formatYAML, formMatrix, formSVG, formHTML},
			hostview.EnvForms)...)
	cmd.Flags().BoolVar(&o.grouping.Together, "together", false, "read all files as texts of one host")
	cmd.Flags().BoolVar(&o.grouping.Each, "each", false, "read each file as a separate host")
	cmd.Flags().BoolVar(&o.diff, "diff", false, "list the differences between two hosts")
	cmd.Flags().BoolVar(&o.wide, "wide", false,
		"print tables with all columns, also where they are wider than the terminal")
	cmd.MarkFlagsMutuallyExclusive("together", "each", "diff")
	a.addHostFlags(cmd, &o)
	cli.EnumFlag(cmd, &o.failOn, "fail-on", "", "exit with 3 on a finding of this severity or a worse one",
		failNever, string(finding.Info), string(finding.Warning), string(finding.Error))
	return cmd
}

func (a *app) inspect(ctx context.Context, o inspectOptions, paths []string) error {
	if o.root != "" && len(paths)+len(o.hosts) > 0 {
		return cli.Usage(fmt.Errorf("--root %s is one machine: leave out %q", o.root, append(paths, o.hosts...)[0]))
	}
	if o.diff {
		return a.diffHosts(ctx, o, append(slices.Clone(paths), o.hosts...))
	}
	jobs, far, err := a.hostJobs(ctx, o, paths)
	if err != nil {
		return err
	}
	defer jobs.Done()
	if o.workers = runtime.GOMAXPROCS(0); far {
		o.workers = remoteWorkers
	}
	if o.summary || far && jobs.Many && !o.formGiven {
		return a.summarize(ctx, o, jobs)
	}
	many := jobs.Many
	// Pictures and pages cannot hold several hosts.
	one := append([]string{formSVG, formHTML}, hostview.EnvForms...)
	if many && slices.Contains(one, o.form) {
		return cli.Usage(fmt.Errorf("-o %s is of one host, and there are %d: name one, or take -o json", o.form,
			len(jobs.All)))
	}
	// A machine's data live for a millisecond. Collecting less often costs about 100 MiB and saves a tenth of the time.
	// GOGC still overrides it.
	if len(jobs.All) > 1 && a.env("GOGC") == "" {
		defer debug.SetGCPercent(debug.SetGCPercent(manyGCPercent))
	}
	failed, faults, err := a.eachHost(ctx, o, jobs.All, func(r *readHost) error {
		return a.printHost(r, o, many)
	}, func(r readHost) error {
		_, err := a.out.Write(r.text)
		return err
	})
	if failed > 0 && !many {
		return cmp.Or(err, cli.Exit(exitFailed)) // already printed
	}
	return ended(err, failed, faults, len(jobs.All))
}

type readHost struct {
	name  string
	doc   *hostview.Document
	fault bool   // at or above --fail-on
	text  []byte // the printed form
	err   error
}

// eachHost reads hosts at once with work and calls take in the order of the arguments, so that the output is
// reproducible. It prints errors, and counts failures and hosts at which --fail-on fails.
func (a *app) eachHost(ctx context.Context, o inspectOptions, jobs []inspect.Job, work func(*readHost) error,
	take func(readHost) error) (failed, faults int, err error) {
	err = parallel.InOrderBy(ctx, o.workers, jobs, func(ctx context.Context, j inspect.Job) readHost {
		r := readHost{name: j.Name}
		var h *topology.Host
		if h, r.err = j.Read(ctx); r.err == nil {
			r.doc = hostview.NewDocument(h, diagnose.Host(h))
			r.fault = fails(r.doc.Findings, o.failOn)
			r.err = work(&r)
		}
		return r
	}, func(r readHost) error {
		if r.err != nil {
			failed++
			fmt.Fprintf(a.err, "rackless: %v\n", r.err) // the error names the file
			return nil
		}
		if r.fault {
			faults++
		}
		return take(r)
	})
	return failed, faults, err
}

func ended(err error, failed, faults, all int) error {
	switch {
	case err != nil:
		return err
	case failed > 0:
		return fmt.Errorf("not inspected: %d of %d", failed, all)
	case faults > 0:
		return cli.Exit(exitFaults)
	}
	return nil
}

// hostJobs includes --host. far means that some are read by ssh or from a vCenter.
func (a *app) hostJobs(ctx context.Context, o inspectOptions, paths []string) (all inspect.Jobs, far bool, err error) {
	if o.root != "" {
		return inspect.Jobs{All: []inspect.Job{{Name: o.root, Read: func(ctx context.Context) (*topology.Host, error) {
			return inspect.ReadRoot(ctx, o.root)
		}}}}, false, nil
	}
	var names, centers []string
	local := len(paths)+len(o.hosts) == 0
	for _, host := range o.hosts {
		switch {
		case host == planner.Local:
			local = true
		case strings.HasPrefix(host, lab.VSphereScheme):
			centers = append(centers, strings.TrimPrefix(host, lab.VSphereScheme))
		case strings.HasPrefix(host, sshScheme):
			names = append(names, host)
		default:
			listed, isList, err := remote.List(ctx, host)
			if err != nil {
				return all, false, cli.Usage(err)
			}
			if isList {
				names = append(names, listed...)
				all.Many = true
			} else {
				paths = append(slices.Clone(paths), host)
			}
		}
	}
	if o.save != "" && len(names) == 0 {
		return all, false, cli.Usage(errors.New("--save keeps hosts that are read by ssh: name some with --host"))
	}
	var parts []inspect.Jobs
	defer func() {
		if err != nil {
			all.Done()
		}
	}()
	add := func(jobs inspect.Jobs, err error) error {
		parts = append(parts, jobs)
		all.All, all.Many = append(all.All, jobs.All...), all.Many || jobs.Many
		all.Joined += jobs.Joined
		all.Close = func() {
			for i := range parts {
				parts[i].Done()
			}
		}
		return err
	}
	if local {
		err = add(inspect.Select(nil, a.in, o.grouping))
	}
	if err == nil && len(paths) > 0 {
		// The contents of the files decide which belong to one host, so report it.
		err = add(inspect.Select(paths, a.in, o.grouping))
	}
	if err == nil && len(names) > 0 {
		err = add(remoteJobs(names, o.save))
	}
	for _, name := range centers {
		if err == nil {
			err = add(vsphereJobs(ctx, name))
		}
	}
	if all.Joined > 0 {
		fmt.Fprintf(a.err, "rackless: %d files are read as texts of one host; --each inspects each for itself\n",
			all.Joined)
	}
	all.Many = all.Many || len(all.All) > 1
	return all, len(names)+len(centers) > 0, err
}

func (a *app) diffHosts(ctx context.Context, o inspectOptions, paths []string) error {
	if len(paths) != 2 || o.root != "" {
		return cli.Usage(fmt.Errorf("--diff compares two hosts, and there are %d: name two files or directories",
			len(paths)))
	}
	if o.form != formTable && !show.ForPrograms(o.form) {
		return cli.Usage(fmt.Errorf("--diff has no form %q: table, json and yaml", o.form))
	}
	var hosts [2]*topology.Host
	var err error
	for i, p := range paths {
		if p == planner.Local || strings.Contains(p, "://") {
			hosts[i], _, err = a.hosts().Read(ctx, p)
		} else {
			hosts[i], err = inspect.ReadPath(ctx, p, a.in)
		}
		if err != nil {
			return err
		}
	}
	d := hostview.Diff{A: paths[0], B: paths[1], Differences: compare.Diff(hosts[0], hosts[1])}
	err = a.writeTable(o.form, d)
	if err == nil && len(d.Differences) > 0 && o.failOn != failNever {
		return cli.Exit(exitFaults)
	}
	return err
}

func (a *app) writeTable(form string, hosts interface {
	WriteTable(w io.Writer, o hostview.TableOptions) error
}) error {
	if show.ForPrograms(form) {
		return show.Encode(a.out, form, hosts)
	}
	return hosts.WriteTable(a.out, hostview.TableOptions{Width: a.width(), Color: a.color()})
}

// printHost prints one host: of many, as a line of JSON or below a heading.
func (a *app) printHost(r *readHost, o inspectOptions, many bool) error {
	// As a whole or not at all, so that an error leaves no partial host.
	var b bytes.Buffer
	if many && o.form != formatJSON {
		fmt.Fprintf(&b, "==> %s <==\n", r.name)
	}
	// A file or a pipe has no width limit.
	table := hostview.TableOptions{Width: a.width(), Wide: o.wide || a.width() == 0, Color: a.color()}
	err := r.doc.Write(&b, o.form, many, table)
	if many && o.form != formatJSON {
		b.WriteByte('\n')
	}
	r.text, r.doc = b.Bytes(), nil // it takes less memory than its host
	return err
}

func fails(all []finding.Finding, limit string) bool {
	return limit != failNever && slices.ContainsFunc(all, func(f finding.Finding) bool {
		return f.Severity.Rank() <= finding.Severity(limit).Rank()
	})
}

// remoteWorkers is high: ssh waits most of the time.
const remoteWorkers = 16

func (a *app) addHostFlags(cmd *cobra.Command, o *inspectOptions) {
	f := cmd.Flags()
	f.StringArrayVar(&o.hosts, "host", nil, "inspect "+hostHelp+"; vsphere:// is all hosts of a vCenter, and a file "+
		"with a name a line those hosts by ssh; can be given several times")
	offerHosts(cmd)
	for _, old := range []string{"snapshot", "hosts"} {
		cli.Renamed(cmd, old, "", "host")
	}
	cli.Replaced(cmd, "root", "", "--host", func(dir string) error {
		o.root = dir
		return nil
	})
	addInsecure(cmd)
	f.StringVar(&o.save, "save", "", "keep a snapshot of each host that is read by ssh in `DIR`")
	f.BoolVar(&o.summary, "summary", false,
		"print all hosts in one table, with their findings and the hosts that differ")
	cmd.MarkFlagsMutuallyExclusive("summary", "diff")
}

// remoteJobs keeps snapshots in the directory save, unless that is "".
func remoteJobs(hosts []string, save string) (jobs inspect.Jobs, err error) {
	program, err := os.Executable()
	if err != nil {
		return jobs, err
	}
	jobs, err = remote.Client{Program: program}.Jobs(hosts, save)
	jobs.Many = len(hosts) > 1
	return jobs, err
}

// addInsecure is like govc's environment variable.
func addInsecure(cmd *cobra.Command) {
	cmd.Flags().BoolFunc("insecure", "trust whatever server answers as the vCenter (the same as GOVC_INSECURE=1)",
		func(string) error { return os.Setenv("GOVC_INSECURE", "1") })
}

func (a *app) summarize(ctx context.Context, o inspectOptions, jobs inspect.Jobs) error {
	if o.form != formTable && !show.ForPrograms(o.form) {
		return cli.Usage(fmt.Errorf("--summary has no form %q: table, json and yaml", o.form))
	}
	var names []string
	var docs []*hostview.Document
	failed, faults, err := a.eachHost(ctx, o, jobs.All, func(*readHost) error { return nil }, func(r readHost) error {
		names, docs = append(names, r.name), append(docs, r.doc)
		return nil
	})
	// Without a host the table would be a head alone, after the errors.
	if err == nil && (len(docs) > 0 || show.ForPrograms(o.form)) {
		err = a.writeTable(o.form, hostview.NewGroup(names, docs))
	}
	return ended(err, failed, faults, len(jobs.All))
}
