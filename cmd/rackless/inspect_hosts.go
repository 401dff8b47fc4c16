package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/diagnose"
	"github.com/rackless/rackless/inspect"
	"github.com/rackless/rackless/inspect/remote"
	"github.com/rackless/rackless/internal/cli"
	"github.com/rackless/rackless/internal/parallel"
	"github.com/rackless/rackless/report/hostview"
	"github.com/rackless/rackless/report/show"
)

// remoteWorkers is how many hosts are read at once by ssh, which waits most of the time.
const remoteWorkers = 16

// addHostFlags adds what is for many hosts.
func (a *app) addHostFlags(cmd *cobra.Command, o *inspectOptions) {
	f := cmd.Flags()
	f.StringArrayVar(&o.hosts, "hosts", nil, "inspect the hosts of the file `FILE` or one host ssh://NAME by ssh, or "+
		"those of vSphere: vsphere:// for all, vsphere://NAME for one")
	addInsecure(cmd)
	f.StringVar(&o.save, "save", "", "with --hosts, keep a snapshot of each host in `DIR`")
	f.BoolVar(&o.summary, "summary", false, "print all hosts in one table, what is wrong with which, and which differ")
	cmd.MarkFlagsMutuallyExclusive("summary", "diff")
	cmd.MarkFlagsMutuallyExclusive("hosts", "diff")
	cmd.MarkFlagsMutuallyExclusive("hosts", "root")
}

// workers is how many hosts are read at once.
func (o inspectOptions) workers() int {
	if len(o.hosts) > 0 {
		return remoteWorkers
	}
	return runtime.GOMAXPROCS(0)
}

// remoteJobs are the hosts of --hosts.
func (a *app) remoteJobs(ctx context.Context, o inspectOptions, paths []string) (jobs inspect.Jobs, err error) {
	if len(paths) > 0 {
		return jobs, cli.Usage(fmt.Errorf("--hosts reads other hosts: leave out %q", paths[0]))
	}
	if strings.HasPrefix(o.hosts[0], vsphereScheme) {
		if len(o.hosts) > 1 || o.save != "" {
			return jobs, cli.Usage(fmt.Errorf("--hosts %s goes with neither another --hosts nor --save", o.hosts[0]))
		}
		return vsphereJobs(ctx, strings.TrimPrefix(o.hosts[0], vsphereScheme))
	}
	hosts, err := remote.Inventory("--hosts", o.hosts)
	if err != nil {
		return jobs, cli.Usage(err)
	}
	program, err := os.Executable()
	if err != nil {
		return jobs, err
	}
	return remote.Client{Program: program}.Jobs(hosts, o.save)
}

// addInsecure adds --insecure to a verb that talks to vSphere. govc's variable says the same.
func addInsecure(cmd *cobra.Command) {
	cmd.Flags().BoolFunc("insecure", "trust whatever server answers as the vCenter (the same as GOVC_INSECURE=1)",
		func(string) error { return os.Setenv("GOVC_INSECURE", "1") })
}

// readHost is a host that was read, or why it was not.
type readHost struct {
	name string
	doc  *hostview.Document
	err  error
}

// summarize prints hosts at a glance.
func (a *app) summarize(ctx context.Context, o inspectOptions, paths []string) error {
	if o.form != formTable && !show.ForPrograms(o.form) {
		return cli.Usage(fmt.Errorf("--summary has no form %q: table, json and yaml", o.form))
	}
	jobs, err := a.hostJobs(ctx, o, paths)
	if err != nil {
		return err
	}
	defer jobs.Done()
	var names []string
	var docs []*hostview.Document
	var failed, faults int
	err = parallel.InOrderBy(ctx, o.workers(), jobs.All, func(ctx context.Context, j inspect.Job) readHost {
		h, err := j.Read(ctx)
		if err != nil {
			return readHost{j.Name, nil, err}
		}
		return readHost{j.Name, hostview.NewDocument(h, diagnose.Host(h)), nil}
	}, func(r readHost) error {
		if r.err != nil {
			failed++
			fmt.Fprintf(a.err, "rackless: %v\n", r.err) // it names the host
			return nil
		}
		if fails(r.doc.Findings, o.failOn) {
			faults++
		}
		names, docs = append(names, r.name), append(docs, r.doc)
		return nil
	})
	if err != nil {
		return err
	}
	g := hostview.NewGroup(names, docs)
	if show.ForPrograms(o.form) {
		err = show.Encode(a.out, o.form, g)
	} else {
		err = g.WriteTable(a.out, hostview.TableOptions{Width: a.width(), Color: a.color()})
	}
	return ended(err, failed, faults, len(jobs.All))
}
