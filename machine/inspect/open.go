package inspect

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rackless/rackless/internal/lazyregexp"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/trace"
	"github.com/rackless/rackless/internal/userfile"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/machine/dump/esxi"
	"github.com/rackless/rackless/machine/dump/hwlocxml"
	"github.com/rackless/rackless/machine/dump/lspci"
	"github.com/rackless/rackless/machine/dump/nccl"
	"github.com/rackless/rackless/machine/dump/paste"
	"github.com/rackless/rackless/machine/dump/smi"
	"github.com/rackless/rackless/machine/dump/texts"
	"github.com/rackless/rackless/machine/dump/where"
	"github.com/rackless/rackless/machine/inspect/tree"
	"github.com/rackless/rackless/machine/message"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/machine/topology/compare"
)

// A format describes a whole machine.
type format struct {
	*texts.Kind
	sniff func(head []byte) bool
}

// The most distinctive formats come first.
var formats = []format{{kindHostJSON, sniffHostJSON}, {kindHwloc, hwlocxml.Sniff}, {kindNCCL, nccl.Sniff},
	{kindSMI, smi.Sniff}, {kindLspci, lspci.Sniff}, {kindESXi, esxi.Sniff}}

const maxText = 64 << 20

// sniffLen determines the format. The matrix of nvidia-smi may be anywhere, so it is searched for in all of the text.
const sniffLen = 64 << 10

// Opened is a machine not read yet.
type Opened struct {
	Name   string // as given
	Format string // "directory", "archive", "snapshot", "hwloc XML", ...
	Source Source // its FS is nil for texts

	tool  string // if known
	note  string // parts of the text that are not read
	text  []byte
	texts []texts.Text // from one text or several
	parse func(b []byte, name string) (*topology.Host, error)
	close func() error
}

// Close releases Open's resources.
func (o *Opened) Close() error {
	if o.close == nil {
		return nil
	}
	return o.close()
}

// Read reads the machine.
func (o *Opened) Read(ctx context.Context) (*topology.Host, error) {
	h, err := o.read(ctx)
	if h != nil && o.note != "" {
		h.Unread = append(h.Unread, topology.Unread{Path: o.Name, Why: o.note})
	}
	return h, err
}

func (o *Opened) read(ctx context.Context) (*topology.Host, error) {
	if len(o.texts) > 0 && o.parse == nil {
		found, err := parts(o.texts)
		if err != nil {
			return nil, err
		}
		return compare.Join(found), nil
	}
	if o.parse != nil {
		h, err := o.parse(o.text, o.Name)
		if err != nil && len(o.texts) == 1 {
			if piece, failed := o.texts[0].Read(); failed == nil {
				return piece, nil
			}
		}
		return h, err
	}
	h, err := Read(ctx, o.Source)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.Name, err)
	}
	h.Provenance.Tool = o.tool
	return h, nil
}

// Live returns this machine, with its commands.
func Live() Source {
	return Source{Name: "/", FS: tree.Live(), Run: listsAtOnce(runCommand), Live: true}
}

const maxOutput = 16 << 20

// runCommand uses the C locale. It returns fs.ErrNotExist for a missing program; with any other error it returns
// standard output, or standard error if that is empty.
func runCommand(ctx context.Context, argv ...string) ([]byte, error) {
	trace.Runs("", argv)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), "LC_ALL=C", "LANGUAGE=")
	cmd.WaitDelay = time.Second // a child may keep the pipe open
	var out, complaint bounded
	cmd.Stdout, cmd.Stderr = &out, &complaint
	err := cmd.Run()
	switch {
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return nil, fs.ErrNotExist
	case out.full:
		return nil, fmt.Errorf("it printed more than %d MiB", maxOutput>>20)
	case err != nil && len(bytes.TrimSpace(out.b)) == 0:
		return complaint.b, err
	}
	return out.b, err
}

type bounded struct {
	b    []byte
	full bool
}

func (b *bounded) Write(p []byte) (int, error) {
	if len(b.b)+len(p) > maxOutput {
		b.full = true
		return len(p), nil // lets the program finish
	}
	b.b = append(b.b, p...)
	return len(p), nil
}

// ReadFile reads anything that Open accepts, or a directory of texts of one machine.
func ReadFile(ctx context.Context, path string) (*topology.Host, error) {
	if list, err := List(path); err == nil && OneMachine(list) {
		return ReadTogether(ctx, list)
	}
	o, err := Open(path)
	if err != nil {
		return nil, err
	}
	h, err := o.Read(ctx)
	return h, errors.Join(err, o.Close())
}

// ReadStream reads an open file. name is for messages and the provenance.
func ReadStream(ctx context.Context, r io.Reader, name string) (*topology.Host, error) {
	o, err := openStdin(r, name)
	if err != nil {
		return nil, err
	}
	return o.Read(ctx)
}

// ReadRoot reads the machine with root directory dir, without detecting its format.
func ReadRoot(ctx context.Context, dir string) (*topology.Host, error) {
	d, err := tree.Dir(dir)
	if err != nil {
		return nil, err
	}
	h, err := Read(ctx, Source{Name: dir, FS: d})
	if err != nil {
		err = fmt.Errorf("%s: %w", dir, err)
	}
	return h, errors.Join(err, d.Close())
}

// A ManyError is for a path with several machines.
type ManyError struct {
	Path string
	Dirs []string // for Open, one per machine; empty for a directory of dumps
}

func (e *ManyError) Error() string {
	if len(e.Dirs) == 0 {
		return fmt.Sprintf("%s is a directory with dumps, not one machine: name one of them", e.Path)
	}
	return fmt.Sprintf("%s holds %d machines: name one, such as %q", e.Path, len(e.Dirs), e.Dirs[0])
}

// Open detects the format of path by its content: a directory with /sys and /proc, or with a single subdirectory that
// has them; an archive of such a directory; or a dump of another tool. "-" is standard input. A path may continue into
// an archive: "dumps.tar/server".
func Open(path string) (*Opened, error) {
	if path == "-" {
		return openStdin(os.Stdin, "standard input")
	}
	file, inside := path, ""
	info, err := os.Stat(path)
	for err != nil && !errors.Is(err, fs.ErrPermission) {
		// The longest existing prefix must be a file.
		up := filepath.Dir(file)
		if up == file {
			break
		}
		inside = filepath.Join(filepath.Base(file), inside)
		file = up
		found, upErr := os.Stat(file)
		if upErr == nil {
			if found.Mode().IsRegular() {
				info, err = found, nil
			}
			break
		}
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, notThere(path)
	case err != nil:
		return nil, err
	case info.IsDir():
		return openDir(path)
	case !info.Mode().IsRegular() && info.Mode()&fs.ModeNamedPipe == 0:
		return nil, fmt.Errorf("%s: neither a file nor a directory", path)
	}
	f, err := userfile.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	o, err := openStream(f, file, inside)
	if err != nil {
		return nil, err
	}
	o.Name = path
	if o.Format == kindESXi.Name {
		o.parse = func(b []byte, name string) (*topology.Host, error) {
			return esxi.Saved(b, name, savedIn(filepath.Dir(file)))
		}
	}
	if o.Source.FS != nil {
		o.Source.Name = path
	}
	return o, nil
}

// savedIn finds files such as 0053-VirtualMachine-vm-53.xml of govc object.save.
func savedIn(dir string) esxi.Object {
	list := sync.OnceValues(func() ([]os.DirEntry, error) { return os.ReadDir(dir) })
	return func(kind, id string) ([]byte, error) {
		entries, err := list()
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if strings.HasSuffix(e.Name(), "-"+kind+"-"+id+".xml") {
				return userfile.Read(filepath.Join(dir, e.Name()), userfile.Text)
			}
		}
		return nil, fs.ErrNotExist
	}
}

// openStdin is for input that may never end.
func openStdin(r io.Reader, name string) (*Opened, error) {
	s := userfile.Stream(r, name)
	defer s.Close()
	return openStream(s, name, "")
}

// openStream reads r into memory. inside is a path in an archive.
func openStream(r io.Reader, name, inside string) (*Opened, error) {
	head, err := readHead(r, tree.ArchiveHead)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	whole := io.MultiReader(bytes.NewReader(head), r)
	if tree.IsArchive(head) {
		m, err := tree.ReadArchive(whole, tree.Limits{})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		return openTree(m, name, inside, "archive")
	}
	text, err := io.ReadAll(io.LimitReader(whole, maxText+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", name, err)
	case len(text) > maxText:
		return nil, fmt.Errorf("%s: larger than %d MiB and not an archive", name, maxText>>20)
	case tree.IsText(text[:min(len(text), sniffLen)]):
		m, err := tree.ParseText(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		return openTree(m, name, inside, "text archive")
	}
	if inside != "" {
		return nil, fmt.Errorf("%s: it is not an archive, so there is no %q in it", name, inside)
	}
	if esxi.Sniff(text) {
		return &Opened{Name: name, Format: kindESXi.Name, text: text, parse: esxi.Parse}, nil
	}
	raw := text
	text, ranks := paste.First(text)
	note := ""
	if len(ranks) > 1 {
		note = fmt.Sprintf("the lines are of %d ranks or nodes (%s): those of %s are read, and others have to be "+
			"cut out", len(ranks), strings.Join(ranks[:min(8, len(ranks))], ", "), ranks[0])
	}
	text = paste.Clean(text)
	if sniffHostJSON(text) {
		return &Opened{Name: name, Format: kindHostJSON.Name, text: text, parse: parseHostJSON}, nil
	}
	found := texts.Split(text, name, textKinds())
	if other := stranger(text); other != "" {
		note = strings.Join(slices.DeleteFunc([]string{note, other}, func(s string) bool { return s == "" }), "; ")
		found = slices.DeleteFunc(found, func(t texts.Text) bool {
			return t.Kind.Name == "ethtool -i" && t.Subject == ""
		})
	}
	if isNew(found) {
		return &Opened{Name: name, Format: kindNames(found), texts: found, note: note}, nil
	}
	for _, part := range [][]byte{text[:min(len(text), sniffLen)], text} {
		for _, f := range formats {
			if f.sniff(part) {
				return &Opened{Name: name, Format: f.Name, text: text, texts: found, parse: f.Parse, note: note}, nil
			}
		}
	}
	if len(found) > 0 {
		return &Opened{Name: name, Format: kindNames(found), texts: found, note: note}, nil
	}
	return nil, fmt.Errorf("%s: %w", name, unknownError(raw, text))
}

func readHead(r io.Reader, n int64) ([]byte, error) { return io.ReadAll(io.LimitReader(r, n)) }

// ErrUnknown is for input that is not a machine.
var ErrUnknown = errors.New("not a machine in a form that rackless knows")

// relatives are rackless's other files and their commands. A comment may precede their keys.
var relatives = []struct {
	is   func() *regexp.Regexp
	what string
}{
	{lazyregexp.New(`(?m)^(numa_nodes|threads_per_core)[ \t]*:`),
		"the profile of an emulated host: look at the machine with rackless emulate PROFILE -- rackless inspect"},
	{lazyregexp.New(`(?m)^factors[ \t]*:`), "the file of a study: rackless study run takes it"},
	{lazyregexp.New(`(?m)^nodes[ \t]*:`), "a lab file: rackless up and rackless plan take it"},
	{lazyregexp.New(`"schema": ?"rackless/plan/v1"`), "a plan: rackless verify --plan takes it"},
}

// Relative tells which other rackless file a text is, or "".
func Relative(text []byte) string {
	for _, r := range relatives {
		if r.is().Match(text[:min(len(text), sniffLen)]) {
			return r.what
		}
	}
	if Results == nil {
		return ""
	}
	return Results(text)
}

// kernelLog matches dmesg, with any timestamp, or journalctl -k.
var kernelLog = lazyregexp.New(`(?m)^(?:<\d+>)?(?:\[ *\d+\.\d{6}\] |\[\w{3} \w{3} +\d+ [\d:]{8} \d{4}\] |` +
	`(?:\w{3} +\d+ [\d:]{8}|\d{4}-\d\d-\d\dT[\d:.,]{8,}(?:Z|[+-]\d\d:?\d\d)?) \S+ kernel: )`)

// Results describes texts that match nothing else. The program sets it, because nothing below imports measurement
// results.
var Results func(text []byte) string

// Misplaced adds to err that text is a machine or another file than want.
func Misplaced(path string, text []byte, want string, err error) error {
	is := Relative(text)
	if is == "" {
		if o, unread := openStream(bytes.NewReader(text), path, ""); unread == nil {
			is = "the description of a machine (" + o.Format + "): rackless inspect reads it, --host takes that of a " +
				"host, and rackless host check that of a virtual machine"
		}
	}
	if is != "" && !strings.HasPrefix(is, want) {
		return fmt.Errorf("%s is not %s: it is %s\n%w", path, want, is, err)
	}
	return err
}

// unknownError lists the supported formats. raw is before paste.Clean.
func unknownError(raw, text []byte) error {
	known := []string{"a snapshot", "an archive of /sys and /proc (tar, plain or with gzip, bzip2, xz or zstd)"}
	known = append(known, lists.Map(formats, func(f format) string { return f.Name })...)
	for _, k := range textKinds() {
		known = lists.Add(known, k.Name)
	}
	what := cmp.Or(Relative(text), stranger(text))
	if what == "" && (kernelLog().Match(raw) || kernelLog().Match(text)) {
		what = texts.OddLog
	}
	if line, _, _ := strings.Cut(strings.TrimSpace(string(text[:min(len(text), sniffLen)])), "\n"); what == "" {
		if kinds := message.Explain(line); len(kinds) > 0 {
			what = fmt.Sprintf("a log of a program (%s), which is not read: rackless explain says what its messages "+
				"mean", kinds[0].Short)
		}
	}
	if what != "" {
		return fmt.Errorf("%w: it is %s", ErrUnknown, what)
	}
	what = "it is empty"
	if line, _, _ := bytes.Cut(bytes.TrimSpace(text[:min(len(text), 200)]), []byte("\n")); len(line) > 0 {
		what = fmt.Sprintf("it starts with %q", where.Clip(string(line)))
	}
	return fmt.Errorf("%w: %s; rackless inspect reads %s", ErrUnknown, what, strings.Join(known, ", "))
}

var errNoRoot = errors.New("no directory with sys or proc in it, nor /sys or /sys/devices/system itself: " +
	"rackless host snapshot writes a whole machine")

// The deepest archive has directories of a collector, a node and a dump.
const archiveDepth = 6

func openTree(m *tree.Mem, name, inside, format string) (*Opened, error) {
	m, err := m.Chroot(cmp.Or(filepath.ToSlash(inside), "."))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	roots, at := tree.FindRoots(m, archiveDepth), ""
	if len(roots) == 0 {
		roots, at = tree.FindParts(m, archiveDepth)
	}
	if len(roots) == 0 {
		return nil, fmt.Errorf("%s: %w", name, errNoRoot)
	}
	if len(roots) > 1 {
		return nil, &ManyError{filepath.Join(name, inside), joined(filepath.Join(name, inside), roots)}
	}
	if at != "" {
		m, err = m.At(roots[0], at)
	} else {
		m, err = m.Chroot(roots[0])
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	o := &Opened{Name: name, Format: format, Source: Source{Name: name, FS: m}}
	return o, o.asSnapshot()
}

func joined(path string, names []string) []string {
	for i, name := range names {
		names[i] = filepath.Join(path, name)
	}
	return names
}

func openDir(path string) (*Opened, error) {
	roots, err := rootsBelow(path)
	switch {
	case err != nil:
		return nil, err
	case len(roots) == 0:
		return nil, &ManyError{Path: path}
	case len(roots) > 1:
		return nil, &ManyError{Path: path, Dirs: roots}
	}
	d, err := tree.Dir(roots[0])
	if err != nil {
		return nil, err
	}
	o := &Opened{Name: path, Format: "directory", Source: Source{Name: path, FS: d}, close: d.Close}
	if err := o.asSnapshot(); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return o, nil
}

func rootsBelow(path string) ([]string, error) {
	if _, err := os.ReadDir(path); err != nil {
		return nil, err
	}
	return joined(path, tree.FindRoots(os.DirFS(path), 2)), nil
}

// notThere is an fs.ErrNotExist.
func notThere(path string) error {
	fix := "rackless host snapshot --out FILE keeps a machine in a file"
	if strings.HasPrefix(path, "ssh://") {
		fix = "hosts are read by ssh with: rackless inspect --host " + path
	}
	return fmt.Errorf("%s: %w; %s", path, syscall.ENOENT, fix)
}

// dumpSuffixes promise a machine, so that a broken archive is reported.
var dumpSuffixes = []string{".tar", ".tgz", ".tbz", ".tbz2", ".txz", ".gz", ".bz2", ".xz", ".zst", ".xml", ".ttar"}

// List returns the sorted machines in a directory of dumps, judging by their beginning or name. It returns nil without
// an error if path is itself one machine, is not a directory, or is "-" (standard input).
func List(path string) ([]string, error) {
	info, err := os.Stat(path)
	if path == "-" || err != nil || !info.IsDir() {
		return nil, nil // Open reports the error
	}
	roots, err := rootsBelow(path)
	if err != nil {
		return nil, err
	}
	if len(roots) == 1 && roots[0] == path {
		return nil, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	out := roots
	for _, e := range entries {
		file := filepath.Join(path, e.Name())
		if info, err := os.Stat(file); err != nil || !info.Mode().IsRegular() {
			continue
		}
		if isDump(file) {
			out = append(out, file)
		}
	}
	switch {
	case len(out) == 0:
		if parts, at := tree.FindParts(os.DirFS(path), 2); parts != nil {
			return nil, fmt.Errorf("%s: it has /%s of a machine without its path: tar -c %s | rackless inspect -",
				path, at, words.Quote(filepath.Join(path, parts[0])))
		}
		return nil, fmt.Errorf("%s: neither /sys and /proc of a machine nor a dump of one in it", path)
	case len(roots) == 1 && len(out) == 1:
		return nil, nil // a directory around one machine
	}
	slices.Sort(out)
	return out, nil
}

func hasDumpSuffix(name string) bool {
	return slices.ContainsFunc(dumpSuffixes, func(s string) bool { return strings.HasSuffix(name, s) })
}

// isDump also counts unreadable files.
func isDump(file string) bool {
	f, err := os.Open(file)
	if err != nil {
		return true // Open reports why not
	}
	defer f.Close()
	head, err := readHead(f, sniffLen)
	switch kind := esxi.Type(head); {
	case kind != "": // only hosts of govc's objects
		return esxi.Sniff(head)
	case err != nil || hasDumpSuffix(file) || tree.IsArchive(head) || tree.IsText(head):
		return true
	}
	head = paste.Clean(head)
	return slices.ContainsFunc(formats, func(f format) bool { return f.sniff(head) }) ||
		len(texts.Split(head, file, textKinds())) > 0
}
