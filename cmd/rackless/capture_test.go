package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCaptureFile(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	a, _, _ := testApp(t)
	open := func(f captureFlags) (func(bool) error, string, error) {
		_, where, closeFile, err := a.captureFile("pair", f)
		return closeFile, where, err
	}
	closeFile, where, err := open(captureFlags{})
	if err != nil || where != "pair.pcapng" {
		t.Fatalf("got %q, %v", where, err)
	}
	if err := closeFile(false); err != nil {
		t.Error(err)
	}
	if _, _, err := open(captureFlags{}); err == nil ||
		err.Error() != "pair.pcapng exists: --force overwrites it, --out names another" {
		t.Errorf("a second time: %v", err)
	}
	if closeFile, _, err = open(captureFlags{force: true}); err != nil {
		t.Errorf("with force: %v", err)
	}
	if err := closeFile(true); err != nil {
		t.Error(err)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(left) != 1 {
		t.Errorf("a capture that failed leaves %v, %v; want the earlier file alone", left, err)
	}
	if closeFile, _, err = open(captureFlags{file: "new.pcapng"}); err != nil {
		t.Fatal(err)
	}
	if err := closeFile(true); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "new.pcapng")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file of a capture that failed is still there: %v", err)
	}
	if _, where, err := open(captureFlags{file: "-"}); err != nil || where != "standard output" {
		t.Errorf("got %q, %v", where, err)
	}
	_, slave := openPTY(t)
	a.out = slave
	if _, _, err := open(captureFlags{file: "-"}); err == nil || !strings.Contains(err.Error(), "not to the terminal") {
		t.Errorf("binary output to a terminal: %v", err)
	}
}
