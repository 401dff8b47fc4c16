package tree

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"sync"
	"syscall"
)

// A Recorder is a tree that records everything read from another one: contents, lists of directories, links, and
// errors. Entries returns the record. Repeated reads are answered from the record, so that all readings agree with it
// even on a machine that changes meanwhile.
//
// Links are resolved here, one after the other: content read through a link is recorded at its own place, and the
// link as a link.
type Recorder struct {
	from fs.FS
	mu   sync.Mutex
	seen map[string]*seen // by name without links
}

var _ FS = (*Recorder)(nil)

type seen struct {
	link asked[string] // The error EINVAL means that the name exists and is not a link.
	data asked[[]byte]
	list asked[[]fs.DirEntry]
	info asked[fs.FileInfo] // of Lstat

	parted  bool   // part of the content was read through Open
	part    []byte // that part
	partErr error
}

// asked is an operation that is done once, and its result.
type asked[T any] struct {
	done  bool
	value T
	err   error
}

func (a *asked[T]) once(ask func() (T, error)) (T, error) {
	if !a.done {
		a.done = true
		a.value, a.err = ask()
		a.err = cause(a.err)
	}
	return a.value, a.err
}

func (a *asked[T]) good() bool { return a.done && a.err == nil }

// NewRecorder returns a Recorder of fsys.
func NewRecorder(fsys fs.FS) *Recorder { return &Recorder{from: fsys, seen: make(map[string]*seen)} }

func (r *Recorder) at(name string) *seen {
	s := r.seen[name]
	if s == nil {
		s = new(seen)
		r.seen[name] = s
	}
	return s
}

// readLink reads the link at a name whose directory has no links.
func (r *Recorder) readLink(name string) (string, error) {
	return r.at(name).link.once(func() (string, error) {
		target, err := fs.ReadLink(r.from, name)
		if errors.Is(err, fs.ErrInvalid) {
			err = syscall.EINVAL // for other implementations of fs.FS
		}
		return target, err
	})
}

func (r *Recorder) lstat(name string) (fs.FileInfo, error) {
	return r.at(name).info.once(func() (fs.FileInfo, error) { return fs.Lstat(r.from, name) })
}

// ask resolves name and calls question with the result. Errors have the operation and the name that the caller used.
func ask[T any](r *Recorder, op, name string, follow bool, question func(at string) (T, error)) (T, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var answer T
	at, err := resolve(name, follow, r.readLink)
	if err == nil {
		answer, err = question(at)
	}
	if err != nil {
		return *new(T), pathError(op, name, err)
	}
	return answer, nil
}

// Bytes returns the content of a file, which the caller must not modify.
func (r *Recorder) Bytes(name string) ([]byte, error) {
	return ask(r, "read", name, true, func(at string) ([]byte, error) {
		data, err := r.at(at).data.once(func() ([]byte, error) { return Bytes(r.from, at) })
		if err != nil {
			r.lstat(at) // records the type of the unreadable entry
		}
		return data, err
	})
}

// ReadFile returns a copy of the content of a file.
func (r *Recorder) ReadFile(name string) ([]byte, error) {
	b, err := r.Bytes(name)
	return slices.Clone(b), err
}

// ReadDir returns the entries of a directory by name.
func (r *Recorder) ReadDir(name string) ([]fs.DirEntry, error) {
	return ask(r, "readdir", name, true, func(at string) ([]fs.DirEntry, error) {
		entries, err := r.at(at).list.once(func() ([]fs.DirEntry, error) { return fs.ReadDir(r.from, at) })
		if err != nil {
			r.lstat(at)
		}
		for _, e := range entries {
			if e.Type()&fs.ModeSymlink != 0 {
				r.readLink(join(at, e.Name())) // A list with links must also have their targets.
			}
		}
		return slices.Clone(entries), err
	})
}

// ReadLink returns the target of a link as written.
func (r *Recorder) ReadLink(name string) (string, error) {
	return ask(r, "readlink", name, false, func(at string) (string, error) {
		target, err := r.readLink(at)
		if err != nil {
			r.lstat(at)
		}
		return target, err
	})
}

// Stat describes the file of that name and follows links.
func (r *Recorder) Stat(name string) (fs.FileInfo, error) { return r.status("stat", name, true) }

// Lstat is like Stat but does not follow a link at the end of name.
func (r *Recorder) Lstat(name string) (fs.FileInfo, error) { return r.status("lstat", name, false) }

func (r *Recorder) status(op, name string, follow bool) (fs.FileInfo, error) {
	return ask(r, op, name, follow, func(at string) (fs.FileInfo, error) {
		info, err := r.lstat(at)
		return renamed{info, base(name)}, err
	})
}

// Open opens a file or directory. Of a file it records only the parts that are read, such as a few registers of a
// device's configuration space.
func (r *Recorder) Open(name string) (fs.File, error) {
	info, err := r.Stat(name)
	if err != nil {
		return nil, pathError("open", name, cause(err))
	}
	if info.IsDir() {
		entries, err := r.ReadDir(name)
		return &openDir{info, name, listing{entries, err}}, nil
	}
	return ask(r, "open", name, true, func(at string) (fs.File, error) {
		s := r.at(at)
		if s.data.good() {
			return openFile{bytes.NewReader(s.data.value), info}, nil
		}
		f, err := r.from.Open(at)
		if err != nil {
			s.data = asked[[]byte]{done: true, err: cause(err)}
			return nil, s.data.err
		}
		return &recordedFile{File: f, recorder: r, seen: s, name: name}, nil
	})
}

type recordedFile struct {
	fs.File
	recorder *Recorder
	seen     *seen
	name     string
	at       int64
}

// note records the bytes read at an offset, or the error if nothing could be read. Gaps between parts are zero.
func (f *recordedFile) note(b []byte, at int64, err error) {
	f.recorder.mu.Lock()
	defer f.recorder.mu.Unlock()
	s := f.seen
	if s.data.good() {
		return // read whole meanwhile
	}
	if err != nil && err != io.EOF {
		s.partErr = cmp.Or(s.partErr, cause(err))
		return
	}
	if end := at + int64(len(b)); end <= maxRead {
		if grow := int(end) - len(s.part); grow > 0 {
			s.part = append(s.part, make([]byte, grow)...)
		}
		copy(s.part[at:], b)
		s.parted = true
	}
}

func (f *recordedFile) Read(b []byte) (int, error) {
	n, err := f.File.Read(b)
	f.note(b[:n], f.at, err)
	f.at += int64(n)
	return n, err
}

// ReadAt reads at an offset if the underlying file can, as files of Live, Dir and Mem do.
func (f *recordedFile) ReadAt(b []byte, at int64) (int, error) {
	src, ok := f.File.(io.ReaderAt)
	if !ok || at < 0 {
		return 0, pathError("read", f.name, errors.ErrUnsupported)
	}
	n, err := src.ReadAt(b, at)
	f.note(b[:n], at, err)
	return n, err
}

// Entries returns the recorded entries by name, with the directories above them.
func (r *Recorder) Entries() []Entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	found := make(map[string]Entry)
	for name, s := range r.seen {
		if e, ok := s.entry(name); ok {
			found[name] = e
		}
	}
	for name, s := range r.seen {
		for _, c := range s.list.value {
			child := join(name, c.Name())
			if _, ok := found[child]; !ok {
				found[child] = Entry{Name: child, Mode: c.Type(), Omitted: true}
			}
		}
	}
	// A name that was only part of a path is a directory; a link may go through it and back: "a/../b".
	for name, s := range r.seen {
		if _, ok := found[name]; !ok && s.link.err == syscall.EINVAL && !s.info.done {
			found[name] = Entry{Name: name, Mode: fs.ModeDir, Omitted: true}
		}
	}
	for _, name := range slices.Collect(maps.Keys(found)) {
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			if _, ok := found[dir]; ok {
				break
			}
			found[dir] = Entry{Name: dir, Mode: fs.ModeDir, Omitted: true}
		}
	}
	delete(found, ".")
	return slices.SortedFunc(maps.Values(found), func(a, b Entry) int { return ComparePaths(a.Name, b.Name) })
}

// entry returns the Entry for a name; ok is false if the name does not exist.
func (s *seen) entry(name string) (e Entry, ok bool) {
	e = Entry{Name: name}
	switch {
	case s.link.good():
		e.Mode, e.Target = fs.ModeSymlink, s.link.value
		return e, true
	case s.data.good():
		e.Data = s.data.value
		return e, true
	case s.list.good():
		e.Mode = fs.ModeDir
		return e, true
	case s.parted:
		e.Data = s.part
		return e, true
	case s.info.good(): // Only Stat succeeded, or the entry exists but could not be read.
		e.Mode = s.info.value.Mode().Type()
		err := cmp.Or(s.data.err, s.partErr)
		if e.Mode.IsDir() {
			err = s.list.err
		}
		if e.Omitted = err == nil || isAbsent(err); !e.Omitted {
			e.Err = err
		}
		return e, true
	case s.info.done:
		e.Err, e.Hidden = s.info.err, true
	case s.link.done && s.link.err != syscall.EINVAL:
		e.Err, e.Hidden = s.link.err, true
	default:
		return e, false // It was only part of another path.
	}
	return e, !isAbsent(e.Err)
}

func isAbsent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// ComparePaths orders names so that a directory is followed by its entries: "a", "a/b", "a-b".
func ComparePaths(a, b string) int {
	for i := range min(len(a), len(b)) {
		switch {
		case a[i] == b[i]:
		case a[i] == '/':
			return -1
		case b[i] == '/':
			return 1
		default:
			return cmp.Compare(a[i], b[i])
		}
	}
	return cmp.Compare(len(a), len(b))
}
