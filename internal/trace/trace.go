// Package trace prints reads, programs and changes, for --verbose. It is global: otherwise every package would need a
// logger.
package trace

import (
	"fmt"
	"io"
	"path"
	"sync"

	"github.com/rackless/rackless/internal/words"
)

var state struct {
	sync.Mutex
	w     io.Writer
	dir   string // of the last file that was read
	name  string // first file read there
	files int
}

// To starts printing to w. stop also prints pending reads.
func To(w io.Writer) (stop func()) {
	state.Lock()
	defer state.Unlock()
	state.w = w
	return func() {
		state.Lock()
		defer state.Unlock()
		flush()
		state.w = nil
	}
}

// Reads reports a file that is read. A host has ten thousand, so consecutive reads in one directory are one line.
func Reads(file string) {
	state.Lock()
	defer state.Unlock()
	if state.w == nil {
		return
	}
	if dir := path.Dir(file); state.files == 0 || dir != state.dir {
		flush()
		state.dir, state.name = dir, file
	}
	state.files++
}

// Runs reports a program, and its node unless it is this machine.
func Runs(node string, argv []string) {
	if node != "" {
		node = "on " + node + ": "
	}
	say("run     " + node + words.CommandLine(argv))
}

// Changes reports a change to this machine.
func Changes(format string, args ...any) { say("change  " + fmt.Sprintf(format, args...)) }

func say(line string) {
	state.Lock()
	defer state.Unlock()
	if state.w != nil {
		flush()
		fmt.Fprintln(state.w, line)
	}
}

// flush needs the lock held by the caller.
func flush() {
	switch {
	case state.files == 1:
		fmt.Fprintf(state.w, "read    %s\n", state.name)
	case state.files > 1:
		fmt.Fprintf(state.w, "read    %s: %d files\n", state.dir, state.files)
	}
	state.files = 0
}
