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

// A Recorder records everything read from another tree. Repeated reads are answered from the record, so that all
// readings agree even on a machine that changes.
//
// Content read through a link is recorded at its own place, and the link as a link.
type Recorder struct {
	from fs.FS
	mu   sync.Mutex
	seen map[string]*seen // by name without links
}

var _ FS = (*Recorder)(nil)

type seen struct {
	link asked[string] // EINVAL: the name exists and is no link
	data asked[[]byte]
	list asked[[]fs.DirEntry]
	info asked[fs.FileInfo] // of Lstat

	parted  bool   // content was read through Open
	part    []byte // that part
	partErr error
}

// asked is an operation that is done once.
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

// NewRecorder returns a recorder of fsys.
func NewRecorder(fsys fs.FS) *Recorder { return &Recorder{from: fsys, seen: make(map[string]*seen)} }

func (r *Recorder) at(name string) *seen {
	s := r.seen[name]
	if s == nil {
		s = new(seen)
		r.seen[name] = s
	}
	return s
}

// readLink takes a name whose directory has no links.
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

// ask calls question with the resolved name. Errors have the caller's operation and name.
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

// Bytes returns a file's content, which the caller must not modify.
func (r *Recorder) Bytes(name string) ([]byte, error) {
	return ask(r, "read", name, true, func(at string) ([]byte, error) {
		data, err := r.at(at).data.once(func() ([]byte, error) { return Bytes(r.from, at) })
		if err != nil {
			r.lstat(at) // records the type
		}
		return data, err
	})
}

// ReadFile returns a copy of a file's content.
func (r *Recorder) ReadFile(name string) ([]byte, error) {
	b, err := r.Bytes(name)
	return slices.Clone(b), err
}

// ReadDir returns the entries by name.
func (r *Recorder) ReadDir(name string) ([]fs.DirEntry, error) {
	return ask(r, "readdir", name, true, func(at string) ([]fs.DirEntry, error) {
		entries, err := r.at(at).list.once(func() ([]fs.DirEntry, error) { return fs.ReadDir(r.from, at) })
		if err != nil {
			r.lstat(at)
		}
		for _, e := range entries {
			if e.Type()&fs.ModeSymlink != 0 {
				r.readLink(join(at, e.Name())) // a list with links needs their targets
			}
		}
		return slices.Clone(entries), err
	})
}

// ReadLink returns a link's target as written.
func (r *Recorder) ReadLink(name string) (string, error) {
	return ask(r, "readlink", name, false, func(at string) (string, error) {
		target, err := r.readLink(at)
		if err != nil {
			r.lstat(at)
		}
		return target, err
	})
}

// Stat follows links.
func (r *Recorder) Stat(name string) (fs.FileInfo, error) { return r.status("stat", name, true) }

// Lstat does not follow a link at the end of name.
func (r *Recorder) Lstat(name string) (fs.FileInfo, error) { return r.status("lstat", name, false) }

func (r *Recorder) status(op, name string, follow bool) (fs.FileInfo, error) {
	return ask(r, op, name, follow, func(at string) (fs.FileInfo, error) {
		info, err := r.lstat(at)
		return renamed{info, base(name)}, err
	})
}

// Open opens a file or directory. Of a file it records only the parts that are read.
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

// note records bytes or, if nothing could be read, the error. Gaps between parts are zero.
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

// ReadAt works if the underlying file has it, as in Live, Dir and Mem.
func (f *recordedFile) ReadAt(b []byte, at int64) (int, error) {
	src, ok := f.File.(io.ReaderAt)
	if !ok || at < 0 {
		return 0, pathError("read", f.name, errors.ErrUnsupported)
	}
	n, err := src.ReadAt(b, at)
	f.note(b[:n], at, err)
	return n, err
}

// Entries returns the record by name, with the directories above.
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
	// A name that was only part of a path is a directory; a link may go through it and back.
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
	case s.info.good(): // only Stat succeeded, or it is unreadable
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
		return e, false // only part of another path
	}
	return e, !isAbsent(e.Err)
}

func isAbsent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// ComparePaths orders a directory before its entries: "a", "a/b", "a-b".
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
