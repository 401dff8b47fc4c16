package tree

import (
	"bytes"
	"io"
	"io/fs"
	"syscall"
)

// An openFile is an open file whose content is in memory.
type openFile struct {
	*bytes.Reader
	info fs.FileInfo
}

func (f openFile) Stat() (fs.FileInfo, error) { return f.info, nil }
func (f openFile) Close() error               { return nil }

// A brokenFile is an open file that cannot be read.
type brokenFile struct {
	info fs.FileInfo
	err  error
}

func (f brokenFile) Stat() (fs.FileInfo, error)        { return f.info, nil }
func (f brokenFile) Close() error                      { return nil }
func (f brokenFile) Read([]byte) (int, error)          { return 0, f.err }
func (f brokenFile) ReadAt([]byte, int64) (int, error) { return 0, f.err }

// An openDir is an open directory whose list is in memory.
type openDir struct {
	info fs.FileInfo
	path string
	listing
}

func (d *openDir) Stat() (fs.FileInfo, error) { return d.info, nil }
func (d *openDir) Close() error               { return nil }

func (d *openDir) Read([]byte) (int, error) { return 0, pathError("read", d.path, syscall.EISDIR) }

// A listing is what an open directory has not handed out yet.
type listing struct {
	left []fs.DirEntry
	err  error // of listing it
}

// ReadDir implements fs.ReadDirFile.
func (l *listing) ReadDir(n int) ([]fs.DirEntry, error) {
	out := l.left
	switch {
	case l.err != nil:
		return nil, l.err
	case n > 0 && len(out) == 0:
		return nil, io.EOF
	case n > 0:
		out = out[:min(n, len(out)):min(n, len(out))]
	}
	l.left = l.left[len(out):]
	return out, nil
}
