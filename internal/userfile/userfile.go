// Package userfile reads files that a user names up to a limit: /dev/zero has no end, and a disk image taken for a lab
// file fills the memory. No read outlives a signal.
package userfile

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/rackless/rackless/internal/trace"
)

var ended = context.Background()

// EndWith makes reads of pipes, devices and standard input end with ctx. Even opening a FIFO blocks until there is a
// writer.
func EndWith(ctx context.Context) { ended = ctx }

// Open opens a file.
func Open(path string) (io.ReadCloser, error) {
	trace.Reads(path)
	if info, err := os.Stat(path); err != nil || info.Mode().IsRegular() || info.IsDir() {
		return os.Open(path)
	}
	return stream(path, func() (io.ReadCloser, error) { return os.Open(path) }), nil
}

// Stream returns a reader of f that ends with the context of EndWith. Closing it leaves f open.
func Stream(f io.Reader, name string) io.ReadCloser {
	return stream(name, func() (io.ReadCloser, error) { return io.NopCloser(f), nil })
}

// stream abandons its goroutine when reads end, because a blocked open or read cannot be interrupted.
func stream(name string, open func() (io.ReadCloser, error)) io.ReadCloser {
	r, w := io.Pipe()
	context.AfterFunc(ended, func() { w.CloseWithError(fmt.Errorf("read %s: %w", name, context.Cause(ended))) })
	go func() {
		f, err := open()
		if err == nil {
			_, err = io.Copy(w, f)
			f.Close()
		}
		w.CloseWithError(err) // nil means the end of the file
	}()
	return r
}

// Maximum sizes in bytes, all multiples of 1 MiB. A parser's own limit is lower.
const (
	// Text is for files written by people: lab files, profiles, studies and weights.
	Text = 4 << 20
	// Data is for lists, baselines and the output of one measurement.
	Data = 16 << 20
	// Document is for files about whole labs. The plan of 500 lab nodes with 256 virtual CPUs each takes a tenth of it.
	Document = 64 << 20
	// Kernel is for kernel images, compressed or not.
	Kernel = 256 << 20
)

// Read reads a file, a pipe or a device. More than limit bytes are an error.
func Read(path string, limit int64) ([]byte, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return ReadFrom(f, path, limit)
}

// ReadFrom names the file if it has more than limit bytes. Errors of r are unchanged.
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
