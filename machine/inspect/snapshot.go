package inspect

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/rackless/rackless/machine/inspect/tree"
	"github.com/rackless/rackless/machine/topology"
)

// A snapshot is a tar archive, compressed with zstd, of everything that Read reads, at its own place below the root,
// and of
//
//	rackless/snapshot.json    version, commands that were run, and failed reads
//	rackless/commands/NNN     output of a command
//
// Reading it gives the same host as when it was made.

// SnapshotSchema identifies the format. Keys may be added, but never removed or redefined.
const SnapshotSchema = "rackless/snapshot/v1"

const (
	snapshotFile     = "rackless/snapshot.json"
	snapshotCommands = "rackless/commands"
)

// SnapshotOptions remove identities by default.
type SnapshotOptions struct {
	// KeepIDs keeps addresses, GUIDs, UUIDs, serial numbers and names; else each has the same substitute everywhere.
	KeepIDs bool
	// Tool is "rackless v1.2".
	Tool string
}

type snapshotInfo struct {
	Schema   string            `json:"schema"`
	Tool     string            `json:"tool,omitempty"`
	IDs      string            `json:"ids"` // "kept" or "removed"
	Unread   []snapshotFailure `json:"unreadable,omitempty"`
	Commands []snapshotCommand `json:"commands,omitempty"` // absent without commands
}

// A snapshotFailure is also in the archive, but lost when unpacked.
type snapshotFailure struct {
	Path   string `json:"path"`
	Error  string `json:"error"`            // as in tree.ErrorName
	Hidden bool   `json:"hidden,omitempty"` // even its type is unknown
}

type snapshotCommand struct {
	Argv   []string `json:"argv"`
	Output string   `json:"output,omitempty"` // absent if the output is empty
	Error  string   `json:"error,omitempty"`  // as in tree.ErrorName

	out []byte
}

// WriteSnapshot writes everything read from src. Equal readings give equal bytes.
func WriteSnapshot(ctx context.Context, w io.Writer, src Source, opts SnapshotOptions) error {
	s, _, err := takeSnapshot(ctx, src)
	if err != nil {
		return err
	}
	if !opts.KeepIDs {
		s.anonymize(src.FS)
	}
	return s.write(w, opts)
}

type snapshot struct {
	entries  []tree.Entry
	commands []snapshotCommand // nil without commands
}

func takeSnapshot(ctx context.Context, src Source) (*snapshot, *topology.Host, error) {
	files := tree.NewRecorder(src.FS)
	commands := &commandRecorder{run: src.Run}
	recorded := Source{Name: src.Name, FS: files, Live: src.Live}
	if src.Run != nil {
		recorded.Run = commands.Run
	}
	h, err := Read(ctx, recorded)
	if err != nil {
		return nil, nil, err
	}
	s := &snapshot{entries: withoutPID(files.Entries())}
	for i := range s.entries {
		if e := &s.entries[i]; isAliasFile(e.Name) && e.Err == nil && e.Mode.IsRegular() {
			e.Data = usedAliases(e.Data, h)
		}
	}
	if src.Run != nil {
		s.commands = commands.commands()
	}
	// Facts without a file, such as the architecture, are in the form of hwloc-gather-topology.
	const notes = "proc/hwloc-nofile-info"
	noted := slices.ContainsFunc(s.entries, func(e tree.Entry) bool { return e.Name == notes })
	if src.Live && !noted && h.System.Arch != "" {
		s.entries = append(s.entries, tree.Entry{Name: notes, Data: []byte("Architecture: " + h.System.Arch + "\n")})
	}
	slices.SortFunc(s.entries, func(a, b tree.Entry) int { return tree.ComparePaths(a.Name, b.Name) })
	return s, h, nil
}

// withoutPID moves the process's own entries to /proc/self. The process ID differs each time.
func withoutPID(entries []tree.Entry) []tree.Entry {
	const self = "proc/self"
	i := slices.IndexFunc(entries, func(e tree.Entry) bool { return e.Name == self })
	if i < 0 || entries[i].Mode&fs.ModeSymlink == 0 || !isFileName(entries[i].Target) {
		return entries
	}
	process := "proc/" + entries[i].Target
	in := func(name, dir string) bool { return name == dir || strings.HasPrefix(name, dir+"/") }
	var out []tree.Entry
	for _, e := range entries {
		if in(e.Name, self) {
			continue
		}
		if in(e.Name, process) {
			e.Name = self + strings.TrimPrefix(e.Name, process)
		}
		out = append(out, e)
	}
	return out
}

func (s *snapshot) write(w io.Writer, opts SnapshotOptions) error {
	all, err := s.files(opts)
	if err != nil {
		return err
	}
	// The blocks must not depend on the number of CPUs.
	z, err := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedBetterCompression))
	if err != nil {
		return err
	}
	return errors.Join(tree.WriteTar(z, all), z.Close())
}

// files returns the entries of the archive.
func (s *snapshot) files(opts SnapshotOptions) ([]tree.Entry, error) {
	info := snapshotInfo{Schema: SnapshotSchema, Tool: opts.Tool, IDs: "removed", Commands: s.commands}
	if opts.KeepIDs {
		info.IDs = "kept"
	}
	all := []tree.Entry{{Name: "rackless", Mode: fs.ModeDir}, {Name: snapshotFile}}
	if len(s.commands) > 0 {
		all = append(all, tree.Entry{Name: snapshotCommands, Mode: fs.ModeDir})
	}
	for i := range info.Commands {
		if c := &info.Commands[i]; len(c.out) > 0 {
			c.Output = fmt.Sprintf("%s/%03d", snapshotCommands, i)
			all = append(all, tree.Entry{Name: c.Output, Data: c.out})
		}
	}
	for _, e := range s.entries {
		if e.Err != nil {
			info.Unread = append(info.Unread, snapshotFailure{Path: e.Name, Error: tree.ErrorName(e.Err),
				Hidden: e.Hidden})
		}
		if e.Name != "rackless" && !strings.HasPrefix(e.Name, "rackless/") {
			all = append(all, e)
		}
	}
	b, err := json.MarshalIndent(info, "", "  ")
	if err != nil {
		return nil, err
	}
	all[1].Data = append(b, '\n')
	return all, nil
}

type commandRecorder struct {
	run runFunc

	mu   sync.Mutex
	list []snapshotCommand
}

// Run records the result, which is ctx's error if that is done first.
func (r *commandRecorder) Run(ctx context.Context, argv ...string) ([]byte, error) {
	out, err := runUntil(ctx, r.run, argv)
	if ctx.Err() != nil && (err != nil || out == nil) {
		out, err = nil, context.Cause(ctx)
	}
	c := snapshotCommand{Argv: slices.Clone(argv), out: out}
	if err != nil {
		c.Error = tree.ErrorName(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, c)
	return out, err
}

// commands is in the order of the commands' ends, and never nil.
func (r *commandRecorder) commands() []snapshotCommand {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]snapshotCommand{}, r.list...)
}

// asSnapshot adds recorded commands and errors.
func (o *Opened) asSnapshot() error {
	b, err := tree.Bytes(o.Source.FS, snapshotFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", o.Name, err)
	}
	var info snapshotInfo
	if err := json.Unmarshal(b, &info); err != nil {
		return fmt.Errorf("%s: %s: %w", o.Name, snapshotFile, err)
	}
	if info.Schema != SnapshotSchema {
		return fmt.Errorf("%s: %s: schema %q: want %q: a newer rackless may know it", o.Name, snapshotFile, info.Schema,
			SnapshotSchema)
	}
	o.Format, o.tool = "snapshot", info.Tool
	if info.Commands != nil {
		if o.Source.Run, err = replayCommands(o.Source.FS, info.Commands); err != nil {
			return fmt.Errorf("%s: %w", o.Name, err)
		}
	}
	if _, ok := o.Source.FS.(*tree.Mem); !ok {
		m, err := loadUnpacked(o.Source.FS, info.Unread)
		if err != nil {
			return fmt.Errorf("%s: %w", o.Name, err)
		}
		o.Source.FS = m
	}
	return nil
}

func replayCommands(fsys fs.FS, commands []snapshotCommand) (runFunc, error) {
	for i := range commands {
		c := &commands[i]
		if c.Output == "" {
			continue
		}
		var err error
		if c.out, err = tree.Bytes(fsys, c.Output); err != nil {
			return nil, fmt.Errorf("%s: output of %q: %w", snapshotFile, strings.Join(c.Argv, " "), err)
		}
	}
	return func(_ context.Context, argv ...string) ([]byte, error) {
		for i := range commands {
			c := &commands[i]
			switch {
			case !slices.Equal(c.Argv, argv):
				continue
			case c.Error == "":
				return bytes.Clone(c.out), nil
			case c.Error == errHangs.Error():
				return nil, errHangs
			}
			return bytes.Clone(c.out), tree.ErrorOf(c.Error)
		}
		return nil, fs.ErrNotExist
	}, nil
}

func loadUnpacked(fsys fs.FS, failures []snapshotFailure) (*tree.Mem, error) {
	var b tree.Builder
	if err := b.Load(fsys); err != nil {
		return nil, err
	}
	for _, f := range failures {
		e := tree.Entry{Name: f.Path, Err: tree.ErrorOf(f.Error), Hidden: f.Hidden}
		if info, err := fs.Lstat(fsys, f.Path); err == nil {
			e.Mode = info.Mode().Type()
		}
		if err := b.Add(e); err != nil {
			return nil, fmt.Errorf("%s: %w", snapshotFile, err)
		}
	}
	return b.Mem(), nil
}
