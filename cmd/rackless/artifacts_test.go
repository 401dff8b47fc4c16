package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func mustWrite(t testing.TB, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestAPlanThatIsKilledAtAnyMomentHasLeftAWholeOne(t *testing.T) {
	if testing.Short() {
		t.Skip("30 processes are not started with -short")
	}
	t.Parallel()
	a, b := t.TempDir(), t.TempDir()
	if err := unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE); err != nil {
		t.Skipf("directories cannot change places here: %v", err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "plan")
	text, err := os.ReadFile(pairLab)
	if err != nil {
		t.Fatal(err)
	}
	one := filepath.Join(t.TempDir(), "one.yaml")
	mustWrite(t, one, strings.Replace(string(text), "count: 2", "count: 1", 1))
	start := func(lab string) *exec.Cmd {
		args := []string{"rackless", "plan", lab, "--host", epycHost, "--out", dir}
		cmd := &exec.Cmd{Path: exe, Args: args}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	began := time.Now()
	if err := start(pairLab).Wait(); err != nil {
		t.Fatal(err)
	}
	whole := time.Since(began)
	for i := range 30 {
		cmd := start([]string{pairLab, one}[i%2])
		time.Sleep(whole * time.Duration(i+1) / 31)
		if err := cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		if err := wholePlan(dir); err != nil {
			t.Fatalf("after %d: %v", i, err)
		}
	}
}

// wholePlan checks a directory against its checksum list.
func wholePlan(dir string) error {
	check := exec.Command("sha256sum", "--quiet", "--check", "SHA256SUMS")
	check.Dir = dir
	if out, err := check.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	sums, err := os.ReadFile(filepath.Join(dir, "SHA256SUMS"))
	if err != nil {
		return err
	}
	return filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		name, _ := filepath.Rel(dir, path)
		if err == nil && !e.IsDir() && name != "SHA256SUMS" && !strings.Contains(string(sums), "  "+name+"\n") {
			return fmt.Errorf("%s is not among the checksums", name)
		}
		return err
	})
}
