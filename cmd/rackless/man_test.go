package main

import (
	"bytes"
	"context"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

var (
	manDir     = flag.String("man", "", "write the manual pages into this directory, for a release")
	manVersion = flag.String("man-version", "devel", "the version in the manual pages")
	manTime    = flag.Int64("man-time", 0, "the time in the manual pages, in seconds since 1970")
)

// man shows each without a warning.
func TestManualPages(t *testing.T) {
	dir := *manDir
	if dir == "" {
		dir = t.TempDir()
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	a, _, _ := testApp(t)
	root := newRootCmd(a)
	var every func(*cobra.Command) int
	every = func(c *cobra.Command) int {
		c.DisableAutoGenTag = true
		n := 1
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() {
				n += every(sub)
			}
		}
		return n
	}
	want := every(root)
	date := time.Unix(*manTime, 0).UTC()
	head := &doc.GenManHeader{Section: "1", Source: "rackless " + *manVersion, Manual: "rackless", Date: &date}
	if err := doc.GenManTree(root, head, dir); err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob(filepath.Join(dir, "rackless*.1"))
	if err != nil || len(pages) != want {
		t.Fatalf("%d pages of %d commands: %v", len(pages), want, err)
	}
	for _, p := range pages {
		b, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range []string{".SH NAME", ".SH SYNOPSIS", ".SH DESCRIPTION"} {
			if !strings.Contains(string(b), part) {
				t.Errorf("%s has no %s", filepath.Base(p), part)
			}
		}
	}
	if man, err := exec.LookPath("man"); err == nil {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, man, "--warnings", "-l", filepath.Join(dir, "rackless-plan.1"))
		cmd.Env = append(os.Environ(), "MANPAGER=cat", "MANWIDTH=80", "LC_ALL=C")
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		if out, err := cmd.Output(); err != nil || stderr.Len() > 0 || !strings.Contains(string(out), "--host") {
			t.Errorf("man says %s, %v, and prints %.200s", stderr.String(), err, out)
		}
	}
}
