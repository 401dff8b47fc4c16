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
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/machine/topology/compare"
)

// A format is a kind of text that is a whole machine by itself.
type format struct {
	*texts.Kind
	sniff func(head []byte) bool
}

// formats are asked in this order. Those that a text cannot be by accident come first.
var formats = []format{{kindHostJSON, sniffHostJSON}, {kindHwloc, hwlocxml.Sniff}, {kindNCCL, nccl.Sniff},
	{kindSMI, smi.Sniff}, {kindLspci, lspci.Sniff}, {kindESXi, esxi.Sniff}}

// maxText bounds a dump that is one text.
const maxText = 64 << 20

// sniffLen is how much of a text its format is told from. The matrix of nvidia-smi may stand
// anywhere in a longer text, and is looked for again in all of it.
const sniffLen = 64 << 10

// Opened is a machine that is not read yet.
type Opened struct {
	Name   string // as it was given
	Format string // what it is: "directory", "archive", "snapshot", "hwloc XML", ...
	Source Source // of a directory, an archive or a snapshot; its FS is nil otherwise

	tool  string // what wrote it, where that is known
	note  string // what of the text is not read
	text  []byte
	texts []texts.Text // what is in it, of one text or of many
	parse func(b []byte, name string) (*topology.Host, error)
	close func() error
}

// Close releases what Open holds.
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
		if err != nil && len(o.texts) == 1 { // prose may stand around it
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

// Live returns the machine that runs rackless, with its commands.
func Live() Source {
	return Source{Name: "/", FS: tree.Live(), Run: listsAtOnce(runCommand), Live: true}
}

// maxOutput bounds what a command may print.
const maxOutput = 16 << 20

// runCommand runs a program of this machine, in the C locale since what it prints is parsed. A
// program that is not there is fs.ErrNotExist. With an error comes what was printed, on the
// standard error where nothing came on the standard output.
func runCommand(ctx context.Context, argv ...string) ([]byte, error) {
	trace.Runs("", argv)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), "LC_ALL=C", "LANGUAGE=")
	cmd.WaitDelay = time.Second // for a child of it that keeps the pipe open
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

// bounded is a buffer that takes no more than maxOutput.
type bounded struct {
	b    []byte
	full bool
}

func (b *bounded) Write(p []byte) (int, error) {
	if len(b.b)+len(p) > maxOutput {
		b.full = true
		return len(p), nil // the program is left to end
	}
	b.b = append(b.b, p...)
	return len(p), nil
}

// ReadFile reads the machine at path, which is anything that Open knows, or a directory with texts of one machine.
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

// ReadStream reads the machine from a file that was opened, such as standard input. The name is
// what messages and the provenance call it.
func ReadStream(ctx context.Context, r io.Reader, name string) (*topology.Host, error) {
	o, err := openStdin(r, name)
	if err != nil {
		return nil, err
	}
	return o.Read(ctx)
}

// ReadRoot reads the machine whose root directory is dir, without asking what it is: a chroot, or a
// host's root mounted in a container.
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

// A ManyError is the error of Open when there is more than one machine at a path.
type ManyError struct {
	Path string
	Dirs []string // paths that Open takes, one for each machine; empty for a directory with dumps, which List lists
}

func (e *ManyError) Error() string {
	if len(e.Dirs) == 0 {
		return fmt.Sprintf("%s is a directory with dumps, not one machine: name one of them", e.Path)
	}
	return fmt.Sprintf("%s holds %d machines: name one, such as %q", e.Path, len(e.Dirs), e.Dirs[0])
}

// Open finds out what is at path, by its content: a directory with /sys and /proc, or with one
// directory that has them; an archive of such a directory; a snapshot, which is such an archive; or
// a dump of another tool. "-" is standard input. A path may lead into an archive,
// "dumps.tar/server", where that holds several machines.
func Open(path string) (*Opened, error) {
	if path == "-" {
		return openStdin(os.Stdin, "standard input")
	}
	file, inside := path, ""
	info, err := os.Stat(path)
	for err != nil && !errors.Is(err, fs.ErrPermission) {
		// "dumps.tar/server/x": the longest part that is there must be a file.
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

// savedIn returns the objects that govc object.save wrote into a directory, in files such as
// 0053-VirtualMachine-vm-53.xml.
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

// openStdin is openStream of what may never end.
func openStdin(r io.Reader, name string) (*Opened, error) {
	s := userfile.Stream(r, name)
	defer s.Close()
	return openStream(s, name, "")
}

// openStream finds out what r is and takes it into memory. inside leads to a machine in an archive.
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
	if len(found) > 0 { // below a command or prose
		return &Opened{Name: name, Format: kindNames(found), texts: found, note: note}, nil
	}
	return nil, fmt.Errorf("%s: %w", name, unknownError(raw, text))
}

// readHead reads the first n bytes of r, or as many as there are.
func readHead(r io.Reader, n int64) ([]byte, error) { return io.ReadAll(io.LimitReader(r, n)) }

// ErrUnknown is the error of Open for what is no machine.
var ErrUnknown = errors.New("not a machine in a form that rackless knows")

// relatives are files of rackless that are no machine, and where they go. A comment may stand before their keys.
var relatives = []struct {
	is   *lazyregexp.Regexp
	what string
}{
	{lazyregexp.New(`(?m)^(numa_nodes|threads_per_core)[ \t]*:`),
		"the profile of an emulated host: look at the machine with rackless emulate PROFILE -- rackless inspect"},
	{lazyregexp.New(`(?m)^factors[ \t]*:`), "the file of a study: rackless study run takes it"},
	{lazyregexp.New(`(?m)^nodes[ \t]*:`), "a lab file: rackless up and rackless plan take it"},
	{lazyregexp.New(`"schema": ?"rackless/plan/v1"`), "a plan: rackless verify --plan takes it"},
}

// Relative says which file of rackless a text is that is no machine, and what takes it; "" where it is none.
func Relative(text []byte) string {
	for _, r := range relatives {
		if r.is.Match(text[:min(len(text), sniffLen)]) {
			return r.what
		}
	}
	if Results == nil {
		return ""
	}
	return Results(text)
}

// oddLog says that a text is a kernel log that tells nothing.
const oddLog = "a kernel log (dmesg) with none of the lines that are read from one: the kernel command line, IOMMU " +
	"groups, and links that limit a function. They stand near its beginning: take the log of the whole boot " +
	"(journalctl -k -b)"

// kernelLog matches a line of dmesg, with whatever time it has, or of journalctl -k.
var kernelLog = lazyregexp.New(`(?m)^(?:<\d+>)?(?:\[ *\d+\.\d{6}\] |\[\w{3} \w{3} +\d+ [\d:]{8} \d{4}\] |` +
	`\w{3} +\d+ [\d:]{8} \S+ kernel: )`)

// Results is what Relative asks last of a text, with what it returns. The program sets it to what knows the results of
// measurements, which nothing below it imports.
var Results func(text []byte) string

// Misplaced adds to an error about a text what it is, where it is a file of rackless that something else than want
// takes, or describes a machine.
func Misplaced(path string, text []byte, want string, err error) error {
	is := Relative(text)
	if is == "" {
		if o, unread := openStream(bytes.NewReader(text), path, ""); unread == nil {
			is = "the description of a machine (" + o.Format + "): rackless inspect reads it, --host takes that of a " +
				"host, and rackless check that of a virtual machine"
		}
	}
	if is != "" && !strings.HasPrefix(is, want) {
		return fmt.Errorf("%s is not %s: it is %s\n%w", path, want, is, err)
	}
	return err
}

// unknownError says how a text begins or what it is, and lists the forms that are read. raw is the text before
// paste.Clean.
func unknownError(raw, text []byte) error {
	known := []string{"a snapshot", "an archive of /sys and /proc (tar, plain or with gzip, bzip2, xz or zstd)"}
	known = append(known, lists.Map(formats, func(f format) string { return f.Name })...)
	for _, k := range textKinds() {
		known = lists.Add(known, k.Name)
	}
	what := Relative(text)
	if what == "" && kernelLog.Match(raw) {
		what = oddLog
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

// errNoRoot is the error of an archive that is not of a machine.
var errNoRoot = errors.New("no directory with sys or proc in it, nor /sys or /sys/devices/system itself: " +
	"rackless snapshot writes a whole machine")

// archiveDepth is how deep machines are looked for in archives. The deepest seen holds the directory of a collector, of
// a node and of a dump.
const archiveDepth = 6

// openTree finds the machine in a tree in memory.
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

// joined puts the same path before all names.
func joined(path string, names []string) []string {
	for i, name := range names {
		names[i] = filepath.Join(path, name)
	}
	return names
}

// openDir opens a directory of this machine.
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

// rootsBelow returns the root directories of machines at path: itself, or those directories in it
// that have sys or proc.
func rootsBelow(path string) ([]string, error) {
	if _, err := os.ReadDir(path); err != nil {
		return nil, err
	}
	return joined(path, tree.FindRoots(os.DirFS(path), 2)), nil
}

// notThere is the error for a path that leads to nothing. It is an fs.ErrNotExist.
func notThere(path string) error {
	fix := "rackless snapshot -o FILE keeps a machine in a file"
	if strings.HasPrefix(path, "ssh://") {
		fix = "hosts are read by ssh with: rackless inspect --hosts " + path
	}
	return fmt.Errorf("%s: %w; %s", path, syscall.ENOENT, fix)
}

// dumpSuffixes are ends of names of files that are meant to be machines, whatever is in them: a
// broken archive is to be named, not passed over.
var dumpSuffixes = []string{".tar", ".tgz", ".tbz", ".tbz2", ".txz", ".gz", ".bz2", ".xz", ".zst", ".xml", ".ttar"}

// List returns what there is to inspect in a directory of dumps, sorted: files that are machines,
// as far as their beginning or their name tells, and directories with /sys and /proc. It is nil,
// without an error, where path is one machine itself, is not a directory, or is "-", standard input.
func List(path string) ([]string, error) {
	info, err := os.Stat(path)
	if path == "-" || err != nil || !info.IsDir() {
		return nil, nil // Open says what is wrong, or looks into the archive
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

// isDump reports whether a file starts as a machine does.
func isDump(file string) bool {
	f, err := os.Open(file)
	if err != nil {
		return true // Open says why not
	}
	defer f.Close()
	head, err := readHead(f, sniffLen)
	switch kind := esxi.Type(head); {
	case kind != "": // of the objects that govc saves, those that are hosts
		return esxi.Sniff(head)
	case err != nil || hasDumpSuffix(file) || tree.IsArchive(head) || tree.IsText(head):
		return true
	}
	head = paste.Clean(head)
	return slices.ContainsFunc(formats, func(f format) bool { return f.sniff(head) }) ||
		len(texts.Split(head, file, textKinds())) > 0
}
