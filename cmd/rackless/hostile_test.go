package main

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/rackless/rackless/internal/storey"
	"github.com/rackless/rackless/study"
	"github.com/rackless/rackless/study/store"
)

// steering clears the screen, sets a title, has colours as one byte and as two, reverses letters, and hides some.
const steering = "\x1b[2J\x1b]0;t\x07\x1b[31m\u009b31m\u202e\u2066\u200b\U000e0041\r"

var hostileFiles = map[string]string{
	"text": steering + "\n" + steering,
	"yaml": "name: \"a\\e[2J\\x9b\\u202E\"\n\"b\\e[31m\\u200B\": {\"c\\e]0;t\\a\": d}\nnodes: {\"e\\u2066\": {x: " +
		"\"\\e[2J\"}}\n",
	"raw": "name: a" + "\u202e\u200b\u009b" + "\nnodes: {b" + "\u2066" + ": {}}\n",
	"json": `{"schema": "a\u001b[2J\u009b", "lab": "b\u001b[31m\u202e", "samples": [{"test": "c\u001b[2J\u200b",` +
		` "metric": "\u2066", "unit": "\u001b]0;t\u0007", "value": 1}], "findings": [{"title": "\u001b[2J"}]}`,
}

func checkShown(t *testing.T, what, out string) {
	t.Helper()
	for i, r := range out {
		if r != '\n' && r != '\t' && !unicode.IsPrint(r) || r == utf8.RuneError && !utf8.ValidString(out) {
			t.Errorf("%s shows %U: %q", what, r, out[max(0, i-60):min(len(out), i+60)])
			return
		}
	}
}

// TestNothingInAFileSteersTheTerminal has escape sequences in content and name, for every verb that takes a file.
func TestNothingInAFileSteersTheTerminal(t *testing.T) {
	for kind, text := range hostileFiles {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			name := filepath.Join(t.TempDir(), kind+"\x1b[2J\u202e\u009b.yaml")
			mustWrite(t, name, text)
			dir := filesWithoutEnd(t, name)
			ways := slices.Sorted(maps.Keys(readsFiles))
			if testing.Short() {
				ways = storey.Some(storey.Rand(t), ways, len(ways)/6)
			}
			for _, what := range ways {
				line := readsFiles[what]
				switch {
				case line == onlyWritten, line == asStudyReport, strings.HasSuffix(what, "--kernel"):
					continue // every file is accepted as a kernel, and an image would be built for it
				}
				args := strings.Fields(line)
				for i, arg := range args {
					args[i] = strings.ReplaceAll(arg, "/dev/zero", name)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
				input := os.DevNull
				if args[0] == "-" {
					input, args = name, args[1:]
				}
				cmd := exec.CommandContext(ctx, "rackless", args...)
				inDirectory(cmd, dir)
				in, err := os.Open(input)
				if err != nil {
					t.Fatal(err)
				}
				cmd.Stdin = in
				out, _ := cmd.CombinedOutput() // whichever verbs accept it
				checkShown(t, what+" of "+kind, string(out))
				in.Close()
				cancel()
			}
		})
	}
}

// Text is escaped for people, and exact for programs.
func TestNothingInAStudySteersTheTerminal(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "s.db")
	db, err := store.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	s := &store.Study{Name: steering, Spec: json.RawMessage(`{"name":"x"}`), Digest: "0", Lab: steering,
		Rackless: steering}
	r := &study.Observation{Block: 1, Place: 1, Attempt: 1, Cell: map[string]string{steering: steering}}
	if err := db.Create(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if err := db.Begin(t.Context(), s.ID, r); err != nil {
		t.Fatal(err)
	}
	r.Status, r.Error = study.StatusFailed, steering
	if err := db.End(t.Context(), r, []store.Sample{{Test: steering, Metric: steering, Unit: steering,
		Value: 1}}); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	const question = "SELECT name, lab FROM study"
	run := func(out io.Writer, args ...string) {
		cmd := exec.CommandContext(t.Context(), "rackless", append(args, "--db", path)...)
		inDirectory(cmd, dir)
		cmd.Stdout, cmd.Stderr = out, out
		_ = cmd.Run() // no report without a spec
	}
	for _, args := range [][]string{{"study", "ls"}, {"study", "report", steering}, {"study", "report", steering,
		"-o",
		"md"}, {"study", "rm", steering + "x"}, {"study", "query", "SELECT * FROM sample, study"},
		{"study", "query", "SELECT 1 AS '" + steering + "'"}, {"study", "query", steering},
		{"study", "raw", "1"}} {
		var out strings.Builder
		run(&out, args...)
		checkShown(t, strings.Join(args, " "), out.String())
	}
	var csv strings.Builder
	run(&csv, "study", "query", "-o", "csv", question)
	if want := "name,lab\n" + steering + "," + steering + "\n"; strings.ReplaceAll(csv.String(), `"`, "") != want {
		t.Errorf("csv to a program: got %q, want %q", csv.String(), want)
	}
	master, slave := openPTY(t)
	for _, format := range []string{"csv", "json", "table"} {
		go func() {
			run(slave, "study", "query", "-o", format, question)
			io.WriteString(slave, "the end\n")
		}()
		var shown strings.Builder
		for b := make([]byte, 1); !strings.Contains(shown.String(), "the end\r\n"); shown.Write(b) {
			if _, err := master.Read(b); err != nil {
				t.Fatal(err)
			}
		}
		checkShown(t, format+" to a terminal", strings.ReplaceAll(shown.String(), "\r\n", "\n"))
	}
}
