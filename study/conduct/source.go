package conduct

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/machine/inspect"
	"github.com/rackless/rackless/study"
	"github.com/rackless/rackless/study/importer"
	"github.com/rackless/rackless/study/store"
)

// Stdin stands for standard input.
const Stdin = "-"

// OpenSources opens all files and directories before the first is read, so that a wrong name is found early. The caller
// must call closeAll.
func OpenSources(args []string, in io.Reader) (sources []importer.Source, closeAll func(), err error) {
	var closers []func()
	closeAll = func() {
		for _, c := range closers {
			c()
		}
	}
	for _, arg := range args {
		var src importer.Source
		var closeSource func()
		if arg == Stdin {
			src, closeSource, err = copyStdin(in)
		} else {
			src, closeSource, err = openSource(arg)
		}
		if err != nil {
			closeAll()
			return nil, nil, err
		}
		sources, closers = append(sources, src), append(closers, closeSource)
	}
	return sources, closeAll, nil
}

// copyStdin uses a temporary file, removed when the source is closed.
func copyStdin(in io.Reader) (src importer.Source, closeSource func(), err error) {
	text, err := io.ReadAll(io.LimitReader(in, importer.MaxFileSize+1))
	if err != nil {
		return importer.Source{}, nil, err
	}
	dir, err := os.MkdirTemp("", "rackless")
	if err != nil {
		return importer.Source{}, nil, err
	}
	remove := func() { _ = os.RemoveAll(dir) }
	if err = os.WriteFile(filepath.Join(dir, "stdin"), text, 0o600); err == nil {
		src, closeSource, err = openSource(filepath.Join(dir, "stdin"))
	}
	if err != nil {
		remove()
		return importer.Source{}, nil, err
	}
	src.Name, src.Base = "standard input", "stdin"
	closeFile := closeSource
	return src, func() { closeFile(); remove() }, nil
}

// openSource opens LEVEL=PATH, or a PATH that may contain an equals sign.
func openSource(arg string) (src importer.Source, closeSource func(), err error) {
	level, path := "", arg
	info, err := os.Stat(arg)
	if before, after, ok := strings.Cut(arg, "="); ok && errors.Is(err, os.ErrNotExist) {
		level, path = before, after
		if level == "" {
			return importer.Source{}, nil, fmt.Errorf("%q: want a level before the equals sign", arg)
		}
		info, err = os.Stat(path)
	}
	if err != nil {
		return importer.Source{}, nil, err
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return importer.Source{}, nil, err
	}
	if files, err := inspect.OpenBundle(path); files != nil || err != nil {
		return measured(files, err, importer.Source{Name: path, Path: ".", Level: level, Base: filepath.Base(abs)})
	}
	// The user's path may be a link; links below it must not lead out.
	dir, err := filepath.EvalSymlinks(abs)
	if err != nil {
		return importer.Source{}, nil, err
	}
	src = importer.Source{Name: path, Path: ".", Level: level, Base: filepath.Base(abs)}
	if !info.IsDir() {
		dir, src.Path, src.Base = filepath.Dir(dir), filepath.Base(dir), filepath.Base(filepath.Dir(abs))
	}
	// os.Root also refuses links created while it is read.
	root, err := os.OpenRoot(dir)
	if err != nil {
		return importer.Source{}, nil, err
	}
	src.FS = root.FS()
	return src, func() { _ = root.Close() }, nil
}

// MeasurementsDir is the directory of a bundle with the figures of measurements.
const MeasurementsDir = "measurements"

// measured returns src with the measurements of a bundle. err is that of opening the bundle.
func measured(bundle fs.FS, err error, src importer.Source) (importer.Source, func(), error) {
	if err == nil {
		_, err = fs.Stat(bundle, MeasurementsDir)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = fmt.Errorf("%s: the bundle has no measurements", src.Name)
	case err == nil:
		src.FS, err = fs.Sub(bundle, MeasurementsDir)
	}
	return src, func() {}, err
}

// WriteInvocation writes a tool's command lines and output.
func WriteInvocation(w io.Writer, x store.Invocation) error {
	var s bench.Sample
	if err := json.Unmarshal(x.Raw, &s); err != nil {
		return err
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "== %s\n", s.Test)
	for _, c := range []struct{ who, node, command string }{{"client", s.Client, s.Command},
		{"server", s.Server, s.ServerCommand}} {
		if c.command != "" {
			fmt.Fprintf(&b, "%s on %s: %s\n", c.who, c.node, c.command)
		}
	}
	if s.Error != "" {
		fmt.Fprintf(&b, "failed: %s\n", s.Error)
	}
	// Printed has the output of a successful attempt; for a failed one, the sample has both ends of it.
	switch {
	case len(x.Printed) > 0:
		for _, p := range x.Printed {
			fmt.Fprintf(&b, "-- %s\n%s", p.Name, p.Text)
			if !bytes.HasSuffix(p.Text, []byte("\n")) {
				b.WriteByte('\n')
			}
		}
	case s.Output != "":
		b.WriteString(s.Output)
	default:
		b.WriteString("nothing of what it printed was kept\n")
	}
	_, err := w.Write(b.Bytes())
	return err
}

// maxFailures limits the stored failures of an imported run; a file may hold thousands.
const maxFailures = 5

// Keep stores all imported studies, or none on an error. A taken name is an error unless replace is set.
func Keep(ctx context.Context, db *store.DB, studies []*importer.Study, rackless string, now time.Time,
	replace bool) error {
	var all []*store.Made
	for _, s := range studies {
		spec, err := json.Marshal(s.Spec)
		if err != nil {
			return err
		}
		m := &store.Made{Study: &store.Study{Name: s.Spec.Name, Spec: spec, Digest: s.Digest, Created: now,
			Rackless: rackless, Environment: s.Environment}}
		for _, r := range s.Runs {
			run, err := keptRun(r)
			if err != nil {
				return err
			}
			m.Runs = append(m.Runs, run)
		}
		all = append(all, m)
	}
	return db.AddAll(ctx, all, replace)
}

// keptRun stores data common to all figures of a test, with the origin, once.
func keptRun(r importer.Run) (*store.ImportedRun, error) {
	out := &store.ImportedRun{Observation: study.Observation{Block: r.Block, Place: r.Place, Attempt: 1, Cell: r.Cell,
		Status: study.StatusDone, Started: r.Started}}
	if n := len(r.Failures); n > 0 {
		out.Status, out.Error = study.StatusFailed, strings.Join(r.Failures[:min(n, maxFailures)], "; ")
		if n > maxFailures {
			out.Error += fmt.Sprintf("; and %d more", n-maxFailures)
		}
	}
	// The raw sample takes most of a file.
	seen := map[string]bool{}
	for _, x := range r.Samples {
		if err := addLatencies(&out.Observation, &x.Sample); err != nil {
			return nil, err
		}
		s := store.Sample{Test: x.Test, Metric: x.Metric, Bytes: x.Bytes, Value: x.Value, Unit: x.Unit}
		if key := x.Run + "\x00" + x.Test; !seen[key] {
			seen[key] = true
			raw, err := json.Marshal(x)
			if err != nil {
				return nil, err
			}
			s.Raw = raw
		}
		out.Samples = append(out.Samples, s)
	}
	return out, nil
}
