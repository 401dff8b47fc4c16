// Package userfile reads files that a user names, and standard input, up to a limit.
//
// What a user names can be anything: /dev/zero has no end, a pipe may never close, and a disk image that was
// taken for a lab file fills the memory. So nothing is read whole without a limit, and no read outlives a signal.
package userfile

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/rackless/rackless/internal/trace"
)

// ended ends reads that may wait for ever.
var ended = context.Background()

// EndWith makes reads of pipes, devices and standard input end when ctx does: main calls it with the context that
// signals end. A FIFO without a writer cannot even be opened before.
func EndWith(ctx context.Context) { ended = ctx }

// Open opens the file at path to read it.
func Open(path string) (io.ReadCloser, error) {
	trace.Reads(path)
	if info, err := os.Stat(path); err != nil || info.Mode().IsRegular() || info.IsDir() {
		return os.Open(path)
	}
	return stream(path, func() (io.ReadCloser, error) { return os.Open(path) }), nil
}

// Stream returns what reads f, which is standard input or the like. f stays open.
func Stream(f io.Reader, name string) io.ReadCloser {
	return stream(name, func() (io.ReadCloser, error) { return io.NopCloser(f), nil })
}

// stream reads what open opens in a goroutine of its own, which is left alone when reads end: nothing else can end
// one that waits in open or read.
func stream(name string, open func() (io.ReadCloser, error)) io.ReadCloser {
	r, w := io.Pipe()
	context.AfterFunc(ended, func() { w.CloseWithError(fmt.Errorf("read %s: %w", name, context.Cause(ended))) })
	go func() {
		f, err := open()
		if err == nil {
			_, err = io.Copy(w, f)
			f.Close()
		}
		w.CloseWithError(err) // nil is the end of the file
	}()
	return r
}

// The most that is read of each kind of file, in bytes. All are multiples of 1 MiB. Where a parser has a limit of its
// own, that is the lower one, and its error says more: what was read here is far too large to be meant.
const (
	// Text is for what people write: lab files, profiles, studies and weights.
	Text = 4 << 20
	// Data is for lists, baselines and what one measurement printed.
	Data = 16 << 20
	// Document is for what rackless writes of whole labs: plans, findings and reports. The plan of 500 lab nodes
	// with 256 virtual CPUs each takes a tenth of it.
	Document = 64 << 20
	// Kernel is for kernel images, compressed or not.
	Kernel = 256 << 20
)

// Read reads the file at path, which may be a pipe or a device. A file of more than limit bytes is an error that
// names the file and the limit.
func Read(path string, limit int64) ([]byte, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return ReadFrom(f, path, limit)
}

// ReadFrom reads r to its end. More than limit bytes are an error that names the limit and, by name, the source.
// An error of r is returned as it is: one of a file names it already.
func ReadFrom(r io.Reader, name string, limit int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("%s: more than %d MiB, which is the most that is read", name, limit>>20)
	}
	return data, nil
}
