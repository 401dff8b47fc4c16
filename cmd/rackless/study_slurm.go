//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/internal/atomicfile"
	"github.com/rackless/rackless/internal/cli"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/study"
	"github.com/rackless/rackless/study/conduct"
	"github.com/rackless/rackless/study/document"
	"github.com/rackless/rackless/study/store"
)

// maxTasks is what Slurm allows in a job array by default (MaxArraySize 1001).
const maxTasks = 1000

// share returns the part of --part, and refuses a study whose runs depend on each other.
func (o studyRunOptions) share(spec *study.Spec) (part conduct.Part, err error) {
	if o.tasks != 0 && o.slurm == "" {
		return part, errors.New("--tasks is for --slurm")
	}
	flag := "--part"
	switch {
	case o.slurm != "":
		flag = "--slurm"
	case o.part == "":
		return part, nil
	}
	switch {
	case spec.Simulation == "":
		return part, fmt.Errorf("%s: its runs measure a machine, one after the other: only those of a simulation "+
			"can be made in any order", flag)
	case spec.Budget > 0:
		return part, fmt.Errorf("%s: budget: the number of runs is not known before; give blocks instead", flag)
	case o.tasks < 0 || o.tasks > maxTasks:
		return part, fmt.Errorf("--tasks %d: want 1 to %d", o.tasks, maxTasks)
	case o.part == "":
		return part, nil
	}
	if part, err = conduct.ParsePart(o.part); err != nil {
		return part, fmt.Errorf("--part: %w", err)
	}
	return part, nil
}

// studySlurm writes the script of a job array, each of whose tasks leaves its part of the study in the directory.
func (a *app) studySlurm(ctx context.Context, o studyRunOptions, d rack.Dirs, spec *study.Spec, file string) error {
	// Mistakes in the files are found here, and not by a thousand tasks.
	r, err := a.studyRig(ctx, o, d, spec, file)
	if err != nil {
		return err
	}
	if err := r.Close(); err != nil {
		return err
	}
	blocks := spec.Blocks
	if o.blocks > 0 {
		blocks = min(blocks, o.blocks)
	}
	runs := blocks * len(spec.Block(1))
	tasks := min(runs, maxTasks)
	if o.tasks > 0 {
		tasks = min(runs, o.tasks)
	}
	dir, err := filepath.Abs(o.slurm)
	if err != nil {
		return err
	}
	full, err := filepath.Abs(file)
	if err != nil {
		return err
	}
	// Lines for Slurm have no quotes of a shell.
	if strings.ContainsFunc(dir, func(r rune) bool { return r == '"' || unicode.IsControl(r) }) {
		return cli.Usage(fmt.Errorf("--slurm %q: the script cannot name this directory: give one without quotes and "+
			"line breaks in its path", dir))
	}
	if found, err := conduct.PartFiles(dir); err == nil {
		return cli.Usage(fmt.Errorf("--slurm %s: it has %s of a study already: merge them with rackless study merge "+
			"%s %[1]s, or give another directory", o.slurm, words.Count(len(found), "part"), file))
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	script := conduct.Array{Name: spec.Name, Study: full, Dir: dir, Program: a.binary(), Tasks: tasks, Blocks: o.blocks}
	name := filepath.Join(dir, "job.sh")
	if err := atomicfile.Write(name, 0o755, func(w io.Writer) error {
		_, err := io.WriteString(w, script.Text())
		return err
	}); err != nil {
		return err
	}
	fmt.Fprintf(a.out, "study %s: %s in %s, of 1 CPU each\n\n", spec.Name, words.Count(runs, "run"),
		words.Count(tasks, "task"))
	fmt.Fprintf(a.out, "  sbatch %s\n", words.ShellWord(name))
	fmt.Fprintf(a.out, "  rackless study merge %s %s   # when the job has ended\n\n", words.ShellWord(file),
		words.ShellWord(o.slurm))
	fmt.Fprintf(a.out, "The nodes of the cluster need %s, %s and the directory of the study at the same paths;\n"+
		"RACKLESS=PATH in the environment of sbatch names another rackless.\n", a.binary(), dir)
	return nil
}

func newStudyMergeCmd(a *app) *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "merge STUDY.yaml DIR|FILE...",
		Short: "Put the parts of a study together that were made elsewhere",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 {
				return cli.Usagef(cmd, "give a study file, and a directory or files of its parts")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.studyMerge(cmd.Context(), path, args[0], args[1:])
		},
	}
	dbFlag(cmd, &path)
	return cmd
}

func (a *app) studyMerge(ctx context.Context, path, file string, from []string) error {
	spec, text, err := document.ReadSpec(file)
	if err != nil {
		return cli.Usage(err)
	}
	if spec.Simulation == "" {
		return cli.Usage(fmt.Errorf("%s: only studies of simulations have parts", file))
	}
	var files []string
	for _, name := range from {
		info, err := os.Stat(name)
		if err != nil {
			return cli.Usage(err)
		}
		if !info.IsDir() {
			files = append(files, name)
			continue
		}
		found, err := conduct.PartFiles(name)
		if err != nil {
			return cli.Usage(err)
		}
		files = append(files, found...)
	}
	d, err := a.dirs()
	if err != nil {
		return err
	}
	r, err := a.studyRig(ctx, studyRunOptions{}, d, spec, file)
	if err != nil {
		return err
	}
	if path, err = a.dbPath(path); err != nil {
		return err
	}
	db, err := store.Open(ctx, path)
	if err != nil {
		return err
	}
	var m conduct.Merged
	s, err := conduct.Begin(ctx, db, spec, studyDigest(text, r), string(r.LabText()), version, false)
	if err == nil {
		m, err = conduct.Merge(ctx, db, s, spec, files)
	}
	var outcomes map[int64]store.Outcome
	if err == nil {
		outcomes, err = conduct.Outcomes(ctx, db)
	}
	if err = errors.Join(err, db.Close()); err != nil {
		return err
	}
	fmt.Fprintf(a.out, "%s from %s were added to study %s in %s", words.Count(m.Added, "run"),
		words.Count(m.Files, "part"), spec.Name, path)
	if m.Known > 0 {
		fmt.Fprintf(a.out, ", and %d were there", m.Known)
	}
	fmt.Fprintln(a.out)
	o := outcomes[s.ID]
	if all := spec.Blocks * len(spec.Block(1)); o.Done < all {
		var why []string
		if o.GivenUp > 0 {
			why = append(why, fmt.Sprintf("%s failed", words.Count(o.GivenUp, "run")))
		}
		if left := all - o.Done - o.GivenUp; left > 0 {
			why = append(why, fmt.Sprintf("%s not made: rackless study run %s makes them here",
				words.Count(left, "run"), words.ShellWord(file)))
		}
		fmt.Fprintf(a.out, "%d of %s are done; %s\n", o.Done, words.Count(all, "run"), strings.Join(why, ", "))
	}
	fmt.Fprintf(a.out, "see it with: rackless study report %s\n", spec.Name)
	return nil
}
