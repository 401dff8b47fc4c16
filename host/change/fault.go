package change

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/rackless/rackless/internal/words"
)

// FaultFrom makes the faults that tests of prepare and rollback ask for by RACKLESS_FAULT, so that
// what is tested is this program and not one built for tests: "kill:12" ends the process with
// SIGKILL before the 12th single change, "reset:12" resets the machine there without writing
// anything to its disks, which is what a power cut does, and "count" prints how many changes there
// are. It is nil for "".
//
// "kill:12:begun" counts steps in place of changes, and ends the process where the 12th is in the
// journal, whose head does not tell of it yet, and nothing of it has been made; "kill:12:made"
// where all of it has been made, and the journal does not say so yet. "kill:module vfio_pci:made"
// takes the step of this kind and subject, wherever it comes.
func FaultFrom(text string) func(what string) {
	if text == "" {
		return nil
	}
	how, rest, _ := strings.Cut(text, ":")
	where, phase := rest, ""
	// A subject may have colons in it, a number has none.
	if i := strings.LastIndex(rest, ":"); i >= 0 {
		where, phase = rest[:i], rest[i+1:]
	}
	at, err := strconv.Atoi(where)
	named := err != nil && where != ""
	n, before := 0, ""
	return func(what string) {
		record := what
		switch phase {
		case "begun":
			record = stepOf(before, "begin", "restoring")
		case "made":
			record = stepOf(what, "done", "restored")
		}
		before = what
		if record == "" {
			return
		}
		n++
		here := words.Either(named, record == where, n == at)
		switch {
		case how == "count":
			fmt.Fprintf(os.Stderr, "change %d: %s\n", n, what)
		case !here:
		case how == "kill":
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		case how == "reset":
			// Magic SysRq b: at once, without sync or unmount.
			_ = os.WriteFile("/proc/sysrq-trigger", []byte("b"), 0)
			select {}
		}
	}
}

// stepOf returns kind and subject of the step that a change tells the journal of, if it is one of
// these events; "" otherwise.
func stepOf(what string, events ...string) string {
	for _, event := range events {
		if step, ok := strings.CutPrefix(what, "journal "+event+" "); ok {
			return step
		}
	}
	return ""
}
