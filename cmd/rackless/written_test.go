package main

import (
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/report"
	"github.com/rackless/rackless/study/record"
	"github.com/rackless/rackless/study/results"
)

const ownTest = "TestCaptureFile" // a capture needs a running lab

// writesFiles has a command line that writes FILE for each flag of an output file.
var writesFiles = map[string]string{
	"bench baseline save --out": "bench baseline save RESULT --out FILE",
	"link capture --out":        ownTest,
	"nic serve --socket":        ownTest,
	"run --junit":               ownTest,
	"run --out":                 ownTest,
	"run --take":                ownTest,
	"plan --out":                "plan lab.yaml --host host.ttar --out FILE",
	"plan --model-out":          "plan h20.yaml --host h20.txt --explain --model-out FILE",
	"bench show --out":          "bench show RESULT -o html --out FILE",
	"bundle --out":              "bundle --yes --force --out FILE",
	"host snapshot --out":       "host snapshot --force --out FILE",
	"simulate --out":            "simulate incast.yaml --capture h0 --force --out FILE",
	"study run --slurm":         ownTest,
	"study report --out":        "study report aa-idle --db studies.db -o html --out FILE",
	"ui --token-file":           "ui --listen 127.0.0.1:0 --token-file FILE",
}

// TestWhatIsWrittenIsThereWholeOrNotAtAll writes to paths that are not regular files, and to a full disk.
func TestWhatIsWrittenIsThereWholeOrNotAtAll(t *testing.T) {
	for what, line := range readsFiles {
		if line == onlyWritten && strings.Contains(what, "--") && writesFiles[what] == "" {
			t.Errorf("%s names a file to write: say in writesFiles how", what)
		}
	}
	dir := filesWithoutEnd(t, "/dev/null")
	result := filesToWriteFrom(t, dir)
	_, mountErr := exec.Command("unshare", "-rm", "true").CombinedOutput()
	for what, line := range writesFiles {
		if line == ownTest {
			continue
		}
		// run's script has the command as "$@" and the file as $0.
		run := func(t *testing.T, file, script string, isolate ...string) string {
			args := strings.Fields(strings.NewReplacer("FILE", file, "RESULT", result).Replace(line))
			argv := append(append(isolate, "sh", "-c", script, file, "rackless"), args...)
			cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
			inDirectory(cmd, dir)
			out, err := cmd.CombinedOutput()
			if err == nil {
				t.Errorf("%s: no error\n%s", what, out)
			}
			return string(out)
		}
		t.Run(what, func(t *testing.T) {
			fifo := filepath.Join(t.TempDir(), "fifo")
			if err := syscall.Mkfifo(fifo, 0o600); err != nil {
				t.Fatal(err)
			}
			device := filepath.Join(t.TempDir(), "device")
			if err := os.Symlink("/dev/null", device); err != nil {
				t.Fatal(err)
			}
			files := []string{fifo, device}
			if info, err := os.Stat("/dev/stdout"); err == nil && !info.Mode().IsRegular() {
				files = append(files, "/dev/stdout")
			}
			for _, file := range files {
				out := run(t, file, `exec "$@"`)
				if !strings.Contains(out, "not a regular file") && !strings.Contains(out, "is not your file") &&
					!strings.Contains(out, "--out: ") {
					t.Errorf("to %s: %s", file, out)
				}
				if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() {
					t.Errorf("%s is a file now", file)
				}
			}
			full := t.TempDir()
			if mountErr != nil {
				t.Skipf("no mount namespaces for this user: %v", mountErr)
			}
			out := run(t, filepath.Join(full, "file"),
				`cd "${0%/*}" && mount -t tmpfs -o size=16k tmpfs . && cd - >/dev/null &&
				chmod 700 "${0%/*}" && printf 'the old file\n' >"$0" && chmod 600 "$0" &&
				{ cat /dev/zero >"$0-ballast" 2>/dev/null; "$@"; }
				code=$?; cat "$0"; ls "${0%/*}"; exit $code`, "unshare", "-rm")
			if !strings.HasSuffix(out, "\nthe old file\nfile\nfile-ballast\n") {
				t.Errorf("on a full disk:\n%s", out)
			}
		})
	}
}

func filesToWriteFrom(t *testing.T, dir string) string {
	t.Helper()
	data := record.Record{Lab: "pair", Generated: time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)}
	for i := range 3 {
		data.Samples = append(data.Samples, bench.Sample{Run: fmt.Sprint("r-", i), Test: "ib_write_bw", Client: "vm01",
			Server: "vm00", Metric: bench.MetricBWAverage, Bytes: 65536, Value: 24.5, Unit: bench.UnitGbps,
			Tool: "perftest", Version: "6.06", Started: data.Generated})
	}
	result, err := results.Store{Data: t.TempDir()}.Save(data, report.Page)
	if err != nil {
		t.Fatal(err)
	}
	packed, err := os.Open("../../docs/studies/studies.db.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer packed.Close()
	z, err := gzip.NewReader(packed)
	if err != nil {
		t.Fatal(err)
	}
	db, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	mustWrite(t, filepath.Join(dir, "studies.db"), string(db))
	matrix, err := os.ReadFile("../../examples/hosts/h20.txt")
	if err != nil {
		t.Fatal(err)
	}
	mustWrite(t, filepath.Join(dir, "h20.txt"), string(matrix))
	mustWrite(t, filepath.Join(dir, "h20.yaml"), "name: h20\nworkload: gpu-collective\n"+
		"nodes:\n  vm: {count: 4, cpus: auto, memory: 400GiB, gpus: 2, nics: 1}\n")
	return result
}
