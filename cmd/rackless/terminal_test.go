package main

import (
	"fmt"
	"io"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// openPTY has 40 columns and 10 lines (see pts(4)).
func openPTY(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close() })
	fd := int(master.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { slave.Close() })
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 10, Col: 40}); err != nil {
		t.Fatal(err)
	}
	return master, slave
}

// screenOf ends when the terminal's other end is closed.
func screenOf(master, slave *os.File) func() string {
	got := make(chan string, 1)
	go func() {
		b, _ := io.ReadAll(master) // EIO when the slave is closed
		got <- string(b)
	}()
	return func() string {
		slave.Close()
		return <-got
	}
}

func TestResultsOnATerminalHaveItsWidthAndColours(t *testing.T) {
	_, slave := openPTY(t)
	a := &app{out: slave, env: func(string) string { return "" }}
	if !a.color() || a.width() != 40 {
		t.Errorf("color %v, width %d", a.color(), a.width())
	}
	a.out = io.Discard
	if a.color() || a.width() != 0 {
		t.Errorf("without a terminal: color %v, width %d", a.color(), a.width())
	}
}
