// Package trace prints what a command reads, runs and changes: --verbose.
//
// It is one switch for the whole program, like the signals that end it: a reader of files deep below
// a verb would otherwise need a logger through every package between them. Nobody is told anything
// until To is called.
package trace

import (
	"fmt"
	"io"
	"path"
	"sync"

	"github.com/rackless/rackless/internal/words"
)

// state is whom to tell, and the reads that have not been told yet.
var state struct {
	sync.Mutex
	w     io.Writer
	dir   string // where the last file was read
	name  string // of the first file there
	files int
}

// To tells w from now on, until stop is called, which also tells what is left.
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

// Reads tells of a file that is read. A host has ten thousand of them: those that follow one another
// in one directory are one line.
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

// Runs tells of a program that is run, and on which node where that is not this machine.
func Runs(node string, argv []string) {
	if node != "" {
		node = "on " + node + ": "
	}
	say("run     " + node + words.CommandLine(argv))
}

// Changes tells of a change to a file, a device or a domain of this machine.
func Changes(format string, args ...any) { say("change  " + fmt.Sprintf(format, args...)) }

// say writes one line, after what was read before it.
func say(line string) {
	state.Lock()
	defer state.Unlock()
	if state.w != nil {
		flush()
		fmt.Fprintln(state.w, line)
	}
}

// flush tells what was read. The caller holds the lock.
func flush() {
	switch {
	case state.files == 1:
		fmt.Fprintf(state.w, "read    %s\n", state.name)
	case state.files > 1:
		fmt.Fprintf(state.w, "read    %s: %d files\n", state.dir, state.files)
	}
	state.files = 0
}
