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
func faultFrom(text string) func(what string) {
	if text == "" {
		return nil
	}
	how, number, _ := strings.Cut(text, ":")
	at, _ := strconv.Atoi(number) // 0, which is no change, where there is no number
	n := 0
	return func(what string) {
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
