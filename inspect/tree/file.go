package tree

import (
	"io"
	"io/fs"
	"slices"
	"syscall"
)

// openFile is an open file of a Mem.
type openFile struct {
	node *node
	info fs.FileInfo
	path string
	at   int64
}

func (f *openFile) Stat() (fs.FileInfo, error) { return f.info, nil }
func (f *openFile) Close() error               { return nil }

func (f *openFile) Read(b []byte) (int, error) {
	n, err := f.ReadAt(b, f.at)
	f.at += int64(n)
	if n > 0 && err == io.EOF {
		err = nil // the next call says so, as files do
	}
	return n, err
}

func (f *openFile) ReadAt(b []byte, at int64) (int, error) {
	if f.node.err != nil {
		return 0, pathError("read", f.path, f.node.err)
	}
	if at < 0 {
		return 0, pathError("read", f.path, fs.ErrInvalid)
	}
	if at >= int64(len(f.node.data)) {
		if len(b) == 0 {
			return 0, nil
		}
		return 0, io.EOF
	}
	n := copy(b, f.node.data[at:])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

func (f *openFile) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += f.at
	case io.SeekEnd:
		offset += int64(len(f.node.data))
	}
	if offset < 0 || whence < io.SeekStart || whence > io.SeekEnd {
		return 0, pathError("seek", f.path, fs.ErrInvalid)
	}
	f.at = offset
	return offset, nil
}

// openDir is an open directory of a Mem.
type openDir struct {
	node *node
	info fs.FileInfo
	path string
	at   int
}

func (d *openDir) Stat() (fs.FileInfo, error) { return d.info, nil }
func (d *openDir) Close() error               { return nil }

func (d *openDir) Read([]byte) (int, error) {
	return 0, pathError("read", d.path, syscall.EISDIR)
}

func (d *openDir) ReadDir(n int) ([]fs.DirEntry, error) {
	if d.node.err != nil {
		return nil, pathError("readdir", d.path, d.node.err)
	}
	left := d.node.children[d.at:]
	if n > 0 {
		if len(left) == 0 {
			return nil, io.EOF
		}
		left = left[:min(n, len(left))]
	}
	d.at += len(left)
	entries := slices.Grow([]fs.DirEntry(nil), len(left))
	for _, c := range left {
		entries = append(entries, c)
	}
	return entries, nil
}
