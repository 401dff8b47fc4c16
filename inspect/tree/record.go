package tree

import (
	"errors"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"sync"
	"syscall"
)

// A Recorder is a tree that notes what is read from another one: contents, lists of directories,
// links, and what could not be read. Entries returns it. What was read once is answered from the
// notes, so that all that is read agrees with what is recorded, on a machine that changes meanwhile
// too.
//
// Names are resolved here, one link after the other: what was read through a link is noted at its
// own place, and the link as a link.
type Recorder struct {
	from fs.FS
	mu   sync.Mutex
	seen map[string]*seen // by name without links
}

var _ FS = (*Recorder)(nil)

// seen is what is known of one name. Each question is asked once.
type seen struct {
	link, content, list, info bool // the question was asked

	target  string
	linkErr error // EINVAL: there, and not a link

	data    []byte
	dataErr error

	parted  bool   // something of the content was read by way of Open
	part    []byte // it
	partErr error

	entries []fs.DirEntry
	listErr error

	stat    fs.FileInfo // of Lstat
	statErr error
}

// NewRecorder returns a recorder of what is read from fsys.
func NewRecorder(fsys fs.FS) *Recorder { return &Recorder{from: fsys, seen: make(map[string]*seen)} }

func (r *Recorder) at(name string) *seen {
	s := r.seen[name]
	if s == nil {
		s = new(seen)
		r.seen[name] = s
	}
	return s
}

// readLink answers for a name whose directory has no links.
func (r *Recorder) readLink(name string) (string, error) {
	s := r.at(name)
	if !s.link {
		s.link = true
		s.target, s.linkErr = fs.ReadLink(r.from, name)
		s.linkErr = cause(s.linkErr)
		if errors.Is(s.linkErr, fs.ErrInvalid) {
			s.linkErr = syscall.EINVAL // of other implementations of fs.FS
		}
	}
	return s.target, s.linkErr
}

func (r *Recorder) lstat(name string) *seen {
	s := r.at(name)
	if !s.info {
		s.info = true
		s.stat, s.statErr = fs.Lstat(r.from, name)
		s.statErr = cause(s.statErr)
	}
	return s
}

// Bytes returns the content of a file, which the caller must not write to.
func (r *Recorder) Bytes(name string) ([]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, err := resolve(name, true, r.readLink)
	if err != nil {
		return nil, pathError("open", name, err)
	}
	s := r.at(at)
	if !s.content {
		s.content = true
		s.data, s.dataErr = Bytes(r.from, at)
		if s.dataErr = cause(s.dataErr); s.dataErr != nil {
			r.lstat(at) // what it is that cannot be read
		}
	}
	if s.dataErr != nil {
		return nil, pathError("read", name, s.dataErr)
	}
	return s.data, nil
}

// ReadFile returns a copy of the content of a file.
func (r *Recorder) ReadFile(name string) ([]byte, error) {
	b, err := r.Bytes(name)
	return slices.Clone(b), err
}

// ReadDir returns what is in a directory, by name.
func (r *Recorder) ReadDir(name string) ([]fs.DirEntry, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, err := resolve(name, true, r.readLink)
	if err != nil {
		return nil, pathError("readdir", name, err)
	}
	s := r.at(at)
	if !s.list {
		s.list = true
		s.entries, s.listErr = fs.ReadDir(r.from, at)
		if s.listErr = cause(s.listErr); s.listErr != nil {
			r.lstat(at)
		}
		for _, e := range s.entries {
			if e.Type()&fs.ModeSymlink != 0 {
				r.readLink(join(at, e.Name())) // a list that says "link" and not where to is half a list
			}
		}
	}
	if s.listErr != nil {
		return nil, pathError("readdir", name, s.listErr)
	}
	return slices.Clone(s.entries), nil
}

// ReadLink returns the target of a link as it is written.
func (r *Recorder) ReadLink(name string) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, err := resolve(name, false, r.readLink)
	var target string
	if err == nil {
		if target, err = r.readLink(at); err != nil {
			r.lstat(at)
		}
	}
	if err != nil {
		return "", pathError("readlink", name, err)
	}
	return target, nil
}

// Stat describes what name stands for, through links.
func (r *Recorder) Stat(name string) (fs.FileInfo, error) { return r.status("stat", name, true) }

// Lstat is Stat that does not follow a link at the end of name.
func (r *Recorder) Lstat(name string) (fs.FileInfo, error) { return r.status("lstat", name, false) }

func (r *Recorder) status(op, name string, follow bool) (fs.FileInfo, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, err := resolve(name, follow, r.readLink)
	if err != nil {
		return nil, pathError(op, name, err)
	}
	s := r.lstat(at)
	if s.statErr != nil {
		return nil, pathError(op, name, s.statErr)
	}
	if s.stat.Mode()&fs.ModeSymlink != 0 {
		r.readLink(at)
	}
	return renamed{s.stat, base(name)}, nil
}

// Open opens a file or directory. Of a file, those parts are recorded that are read: of the
// configuration space of a device, a few registers.
func (r *Recorder) Open(name string) (fs.File, error) {
	info, err := r.Stat(name)
	if err != nil {
		return nil, pathError("open", name, cause(err))
	}
	if info.IsDir() {
		entries, err := r.ReadDir(name)
		n := &node{name: info.Name(), mode: info.Mode(), err: cause(err)}
		for _, e := range entries {
			n.children = append(n.children, &node{name: e.Name(), mode: e.Type()})
		}
		return &openDir{node: n, info: info, path: name}, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	at, err := resolve(name, true, r.readLink)
	if err != nil {
		return nil, pathError("open", name, err)
	}
	s := r.at(at)
	if s.content && s.dataErr == nil {
		n := &node{name: info.Name(), data: s.data}
		return &openFile{node: n, info: info, path: name}, nil
	}
	f, err := r.from.Open(at)
	if err != nil {
		s.content, s.dataErr = true, cause(err)
		return nil, pathError("open", name, s.dataErr)
	}
	return &recordedFile{File: f, recorder: r, seen: s, name: name}, nil
}

// recordedFile is an open file of which what is read is noted.
type recordedFile struct {
	fs.File
	recorder *Recorder
	seen     *seen
	name     string
	at       int64
}

// note keeps what was read at an offset, and what went wrong if nothing could be. Bytes between
// parts that were read are zero.
func (f *recordedFile) note(b []byte, at int64, err error) {
	f.recorder.mu.Lock()
	defer f.recorder.mu.Unlock()
	s := f.seen
	if s.content && s.dataErr == nil {
		return // read whole meanwhile
	}
	if err != nil && err != io.EOF {
		if s.partErr == nil {
			s.partErr = cause(err)
		}
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

// ReadAt reads at an offset where the file below can, as files of Live, Dir and Mem do.
func (f *recordedFile) ReadAt(b []byte, at int64) (int, error) {
	src, ok := f.File.(io.ReaderAt)
	if !ok || at < 0 {
		return 0, pathError("read", f.name, errors.ErrUnsupported)
	}
	n, err := src.ReadAt(b, at)
	f.note(b[:n], at, err)
	return n, err
}

// Entries returns what was read, by name, with the directories on the way to it.
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
		for _, c := range s.entries {
			child := join(name, c.Name())
			if _, ok := found[child]; !ok {
				found[child] = Entry{Name: child, Mode: c.Type(), Omitted: true}
			}
		}
	}
	// What was only passed on the way to something else is a directory; a link may go through it and back: "a/../b".
	for name, s := range r.seen {
		if _, ok := found[name]; !ok && s.link && errors.Is(s.linkErr, syscall.EINVAL) && !s.info {
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

// entry turns what is known of a name into an entry; ok is false for what is not there.
func (s *seen) entry(name string) (e Entry, ok bool) {
	e = Entry{Name: name}
	switch {
	case s.link && s.linkErr == nil:
		e.Mode, e.Target = fs.ModeSymlink, s.target
		return e, true
	case s.content && s.dataErr == nil:
		e.Data = s.data
		return e, true
	case s.list && s.listErr == nil:
		e.Mode = fs.ModeDir
		return e, true
	}
	if s.parted {
		e.Data = s.part
		return e, true
	}
	// What was found by Stat alone, or is there and refused to be read.
	if s.info {
		if s.statErr != nil {
			e.Err, e.Hidden = s.statErr, true
			return e, !isAbsent(s.statErr)
		}
		e.Mode = s.stat.Mode().Type()
		err := s.dataErr
		switch {
		case e.Mode.IsDir():
			err = s.listErr
		case err == nil:
			err = s.partErr
		}
		e.Err, e.Omitted = err, err == nil || isAbsent(err)
		if e.Omitted {
			e.Err = nil
		}
		return e, true
	}
	if s.link && !errors.Is(s.linkErr, syscall.EINVAL) {
		e.Err, e.Hidden = s.linkErr, true
		return e, !isAbsent(s.linkErr)
	}
	return e, false // passed on the way to something else
}

// isAbsent reports whether err says that there is nothing of that name.
func isAbsent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// ComparePaths orders names so that a directory is followed by what is in it: "a", "a/b", "a-b".
func ComparePaths(a, b string) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] == b[i] {
			continue
		}
		switch {
		case a[i] == '/':
			return -1
		case b[i] == '/':
			return 1
		}
		return int(a[i]) - int(b[i])
	}
	return len(a) - len(b)
}
