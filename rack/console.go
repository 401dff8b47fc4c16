package rack

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strings"
)

// ConsoleFree returns an error if the console of a machine, called what, has a client. QEMU serves
// one client of a console and leaves others waiting without a word, so it is looked up whether there
// is one before connecting. (Two that connect in the same instant both get through the look-up, and
// one of them waits.)
func ConsoleFree(what, socket string) error {
	b, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		return err
	}
	if accepted(b, socket) {
		return fmt.Errorf("%s: its console is open elsewhere: QEMU serves one at a time", what)
	}
	return nil
}

// accepted reports whether a listening unix socket has a connection that its process has accepted, by /proc/net/unix:
//
//	Num       RefCount Protocol Flags    Type St Inode Path
//	ffff8880: 00000003 00000000 00000000 0001 03 23456 /run/rackless/pair/vm00/console.sock
//
// The accepted end of a connection carries the listener's path. St is 01 for a listener and 03 for
// a connection; a connection that waits to be accepted has the inode 0 (unix_seq_show in the
// kernel's net/unix/af_unix.c).
func accepted(procNetUnix []byte, path string) bool {
	sc := bufio.NewScanner(bytes.NewReader(procNetUnix))
	for sc.Scan() {
		if f := strings.Fields(sc.Text()); len(f) == 8 && f[7] == path && f[5] == "03" && f[6] != "0" {
			return true
		}
	}
	return false
}
