package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// faultFrom makes the faults that tests of prepare and rollback ask for by RACKLESS_FAULT, so that what is tested is this program and not one built for
// tests: "kill:12" ends the process with SIGKILL before the 12th single change, "reset:12" resets the machine there without writing
// anything to its disks, which is what a power cut does, and "count" prints how many changes there are.
//
// "kill:12:begun" counts steps in place of changes, and ends the process where the 12th is in the journal and nothing of it has been made; "kill:12:made" where all of it
// has been made, and the journal does not say so yet.
func faultFrom(text string) func(what string) {
	if text == "" {
		return nil
	}
	fields := append(strings.Split(text, ":"), "", "")
	how, phase := fields[0], fields[2]
	at, _ := strconv.Atoi(fields[1]) // 0, which is no change, where there is no number
	n, before := 0, ""
	return func(what string) {
		counts := true
		switch phase {
		case "begun":
			counts = strings.HasPrefix(before, "journal begin ") || strings.HasPrefix(before, "journal restoring ")
		case "made":
			counts = strings.HasPrefix(what, "journal done ") || strings.HasPrefix(what, "journal restored ")
		}
		before = what
		if !counts {
			return
		}
		n++
		switch {
		case how == "count":
			fmt.Fprintf(os.Stderr, "change %d: %s\n", n, what)
		case n != at:
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
