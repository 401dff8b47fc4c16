//go:build linux

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/host"
	"github.com/rackless/rackless/host/change"
	"github.com/rackless/rackless/internal/cli"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/terminal"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/machine/diagnose"
	"github.com/rackless/rackless/machine/inspect"
	"github.com/rackless/rackless/plan/planner"
	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/rack/doctor"
	"github.com/rackless/rackless/rack/verify"
	"github.com/rackless/rackless/report/hostview"
	"github.com/rackless/rackless/report/show"
	"github.com/rackless/rackless/report/tables"
	"github.com/rackless/rackless/study/conduct"
	"github.com/rackless/rackless/study/results"
	"github.com/rackless/rackless/vm"
	"github.com/rackless/rackless/vm/distro"
)

const (
	bundleName         = "rackless-bundle.tar.gz"
	bundleMeasurements = 5         // the last ones are in a bundle
	bundleLogTail      = 128 << 10 // bytes of each log
)

// newBundleCmd makes rackless bundle. It shows the contents before it writes them, because a bundle is sent to
// others.
func newBundleCmd(a *app) *cobra.Command {
	var out string
	var yes, force bool
	cmd := &cobra.Command{
		Use:               "bundle [LAB]",
		Short:             "Put all that a report of a fault needs into one file, without names and addresses",
		Args:              cli.MaxArgs(1, "at most one running lab"),
		ValidArgsFunction: a.completeLabs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := cli.NotEmpty(cmd, "a file", "out"); err != nil {
				return err
			}
			if _, err := os.Lstat(out); err == nil && !force {
				return cli.Usage(fmt.Errorf("%s is there already; --force writes over it", out))
			}
			return a.bundle(cmd.Context(), args, out, yes)
		},
	}
	cmd.Flags().StringVar(&out, "out", bundleName, "`FILE` to write")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	cmd.Flags().BoolVar(&force, "force", false, "overwrite an existing file")
	return cmd
}

func (a *app) bundle(ctx context.Context, args []string, out string, yes bool) error {
	b, err := a.collect(ctx, args)
	if err != nil {
		return err
	}
	if err := a.show(bundleText(b.Info().Contents, out)); err != nil {
		return err
	}
	if !yes {
		if terminal.Of(a.err) == nil {
			return cli.Usage(errors.New("nothing was written: a bundle is for others, so say --yes"))
		}
		if ok, err := terminal.Confirm(ctx, a.in, a.err, fmt.Sprintf("Write %s?", out)); err != nil || !ok {
			return errors.Join(err, &cli.Error{Code: exitFailed, Err: errors.New("nothing was written")})
		}
	}
	return a.writeFile(out, true, b.Write)
}

// bundleText returns the list of a bundle's contents, and of the parts that it lacks.
func bundleText(parts []inspect.Part, file string) string {
	g := show.NewGrid("file", "size>", "contents")
	var lacks []string
	for _, p := range parts {
		if p.Missing != "" {
			lacks = append(lacks, fmt.Sprintf("  %s (%s): %s\n", p.Name, p.About, words.OneLine(p.Missing)))
			continue
		}
		g.Add(p.Name, words.Bytes(int64(p.Bytes)), p.About)
	}
	text := g.String()
	if len(lacks) > 0 {
		text += "\nnot in it:\n" + strings.Join(lacks, "")
	}
	return text + "\nNames of hosts, people, labs and VMs, MAC and IP addresses, GUIDs, UUIDs and serial numbers are " +
		"replaced by hashes,\nwith a key that is not kept. Look into the file before you send it: tar -xzf " +
		words.ShellWord(file) + "\n"
}

// collect reads this machine, its preparation, and a lab. Only the machine has to be readable.
func (a *app) collect(ctx context.Context, args []string) (*inspect.Bundle, error) {
	d, err := a.dirs()
	if err != nil {
		return nil, err
	}
	r, why, err := a.bundledLab(args)
	if err != nil {
		return nil, err
	}
	p, end := a.progress()
	defer end()
	c := &collection{a: a, dirs: d}
	p.Begin("read versions and what this machine can do")
	c.machine(ctx)
	p.Begin("read what this machine is prepared for")
	c.preparation()
	if r != nil {
		defer r.Close()
		c.names = append(c.names, r.Lab.Name)
		for _, n := range r.Lab.Nodes {
			c.names = append(c.names, n.Name)
		}
		c.lab(ctx, r, p.Begin)
	} else {
		c.lacks("verify.json", aboutVerify, why)
	}
	c.measurements(r)
	p.Begin("read this machine")
	c.names = append(c.names, people(a.env)...)
	source := inspect.Live()
	if a.machine != nil {
		source = *a.machine
	}
	b, err := inspect.TakeBundle(ctx, source, c.parts, inspect.BundleOptions{Tool: "rackless " + version,
		Public: publicTexts(), Names: c.names, Keys: bundleKeys()})
	if err == nil {
		err = addFindings(ctx, b)
	}
	p.End(err)
	return b, err
}

// bundledLab opens the named lab, or the only one that runs. If r is nil without an error, why is the reason.
func (a *app) bundledLab(args []string) (r *rack.Rack, why string, err error) {
	racks, err := a.openLabs(args)
	switch {
	case err != nil && len(args) > 0:
		return nil, "", err
	case err != nil:
		return nil, err.Error(), nil
	case len(racks) == 0:
		return nil, "no lab is running", nil
	case len(racks) > 1:
		for _, r := range racks {
			r.Close()
		}
		return nil, "several labs run, and none was named: rackless bundle LAB", nil
	}
	return racks[0], "", nil
}

// A collection gathers the parts of a bundle, and the names in them.
type collection struct {
	a     *app
	dirs  rack.Dirs
	parts []inspect.Part
	names []string
}

const aboutVerify = "every check of the lab, with its evidence"

func (c *collection) text(name, about string, data []byte, err error) {
	p := inspect.Part{Name: name, About: about, Data: data}
	if err != nil {
		p.Missing = err.Error()
	}
	c.parts = append(c.parts, p)
}

func (c *collection) lacks(name, about, why string) { c.text(name, about, nil, errors.New(why)) }

func (c *collection) json(name, about string, v any, err error) {
	var data []byte
	if err == nil {
		data, err = json.Marshal(v)
	}
	c.text(name, about, data, err)
}

// bundleVersions is versions.json of a bundle.
type bundleVersions struct {
	versionOutput
	Kernel       string `json:"kernel,omitempty"`
	Distribution string `json:"distribution,omitempty"`
	QEMU         string `json:"qemu,omitempty"` // version, or why it is not known
	Root         bool   `json:"root"`           // rackless bundle ran as root
}

func (c *collection) machine(ctx context.Context) {
	v := bundleVersions{versionOutput: versionOutput{Version: version, Go: runtime.Version(), OS: runtime.GOOS,
		Arch: runtime.GOARCH}, Root: c.a.uid == 0}
	if release, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		v.Kernel = strings.TrimSpace(string(release))
	}
	v.Distribution = distro.Of(os.DirFS("/")).Name
	_, qemu, err := vm.Find()
	if v.QEMU = qemu; err != nil {
		v.QEMU = cmp.Or(qemu, err.Error())
	}
	c.json("versions.json", "versions of rackless, kernel and QEMU", v, nil)
	look := doctor.Look(ctx, doctor.Options{Dirs: c.dirs, NoBoot: true, Progress: &rack.Progress{}})
	c.json("doctor.json", "what this machine can do as a host of labs", look, context.Cause(ctx))
}

// preparation adds the lab and the plan that the machine is prepared for, and the steps that rollback would undo. The
// states that the journal keeps are left out, because they hold whole files.
func (c *collection) preparation() {
	store := c.a.store()
	const aboutPlan, aboutLab, aboutJournal = "the plan that this machine is prepared for", "its lab file",
		"the steps that rollback would undo"
	p, err := store.Load()
	if err != nil {
		c.text(planner.PlanPart, aboutPlan, nil, err)
	} else {
		c.names = append(c.names, p.Lab.Name)
		for _, n := range p.Lab.Nodes {
			c.names = append(c.names, n.Name)
		}
		c.json(planner.PlanPart, aboutPlan, p.Plan, nil)
		c.text("prepared.yaml", aboutLab, p.Lab.YAML(), nil)
	}
	entries, err := change.ReadJournal(store.Journal(), host.Kinds())
	if len(entries) == 0 && err == nil {
		err = host.ErrNotPrepared
	}
	steps := lists.Map(entries, func(e *change.Entry) journalStep {
		return journalStep{Kind: e.Op.Kind(), Subject: e.Op.Subject(), What: e.What, Done: e.Done}
	})
	c.json("journal.json", aboutJournal, steps, err)
}

// A journalStep is a step in journal.json of a bundle.
type journalStep struct {
	Kind    string `json:"kind"`
	Subject string `json:"subject"`
	What    string `json:"what"`
	Done    bool   `json:"done"`
}

// lab adds a running lab: its file, its state, its checks, the counters of its switch, and its logs.
func (c *collection) lab(ctx context.Context, r *rack.Rack, progress func(string)) {
	c.text("lab.yaml", "the lab file, with its defaults", r.Lab.YAML(), nil)
	progress("ask the nodes of the lab")
	c.json("lab.json", "the state of the lab and its nodes", r.Describe(ctx), context.Cause(ctx))
	progress("check the lab")
	t, err := verify.OfLab(ctx, r)
	if err == nil {
		var k verify.Record
		k.At = time.Now().UTC()
		k.Findings, err = t.Findings(ctx, nil, progress)
		c.json("verify.json", aboutVerify, k, err)
	} else {
		c.text("verify.json", aboutVerify, nil, err)
	}
	if r.SwitchState() != rack.SwitchNone {
		const about = "the counters of its switch"
		if s, err := r.Switch(); err != nil {
			c.text("link.json", about, nil, err)
		} else {
			have, err := s.Counters(ctx)
			c.json("link.json", about, tables.DescribeFabric(r.Lab.Name, have, nil), err)
		}
		c.log("logs/switch.log", "the end of the log of its switch and agents", r.DaemonLog())
	}
	for i, n := range r.Lab.Nodes {
		logs := r.Logs(n.Name)
		c.log(fmt.Sprintf("logs/node%d-console.log", i), "the end of the console of a node", logs.Console)
		c.log(fmt.Sprintf("logs/node%d-machine.log", i), "the end of what its QEMU printed", logs.QEMU)
	}
}

// log adds the end of a log that has something in it.
func (c *collection) log(name, about, path string) {
	if path == "" {
		return
	}
	f, err := os.Open(path)
	if err != nil {
		c.text(name, about, nil, err)
		return
	}
	defer f.Close()
	var data []byte
	size, err := f.Seek(0, io.SeekEnd)
	if err == nil {
		_, err = f.Seek(max(0, size-bundleLogTail), io.SeekStart)
	}
	if err == nil {
		data, err = io.ReadAll(io.LimitReader(f, bundleLogTail))
	}
	// The first line may have lost its beginning, and with it the form of an address.
	if _, rest, ok := bytes.Cut(data, []byte("\n")); ok && size > bundleLogTail {
		data = rest
	}
	if len(data) > 0 || err != nil {
		c.text(name, about, []byte(terminal.Plain(string(data))), err)
	}
}

// measurements adds the last measurements of a lab, or of all labs if r is nil.
func (c *collection) measurements(r *rack.Rack) {
	lab := ""
	if r != nil {
		lab = r.Lab.Name
	}
	all, err := results.Store{Data: c.dirs.Data}.List(lab)
	if err == nil && len(all) == 0 {
		err = errors.New("none is kept")
	}
	if err != nil {
		c.text(conduct.MeasurementsDir+"/", "figures of the last measurements", nil, err)
		return
	}
	all = all[max(0, len(all)-bundleMeasurements):]
	for i, m := range slices.Backward(all) {
		c.names = append(c.names, m.Lab)
		n := len(all) - i
		data, err := os.ReadFile(filepath.Join(m.Dir, results.SamplesFile))
		c.text(fmt.Sprintf("%s/%d/%s", conduct.MeasurementsDir, n, results.SamplesFile), "figures of a measurement",
			data, err)
		report, err := results.Load(m.Dir)
		for _, node := range report.Nodes {
			c.names = append(c.names, node.Name)
		}
		report.HostPicture = "" // it has the words of the host in drawings
		c.json(fmt.Sprintf("reports/%d.json", n), "its nodes, paths and surroundings", report, err)
	}
}

// addFindings adds the output of inspect for the machine in the bundle, so that the reader need not run it.
func addFindings(ctx context.Context, b *inspect.Bundle) error {
	h, err := b.Host(ctx)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	doc := hostview.NewDocument(h, diagnose.Host(h))
	if err := doc.Write(&text, formTable, false, hostview.TableOptions{Wide: true}); err != nil {
		return err
	}
	b.Add(inspect.Part{Name: "inspect.txt", About: "what inspect prints of it", Data: text.Bytes()})
	return nil
}
