package ui

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/rack/emulated"
	"github.com/rackless/rackless/rdma/fabric"
	"github.com/rackless/rackless/report/live"
	"github.com/rackless/rackless/study"
	"github.com/rackless/rackless/study/lock"
	"github.com/rackless/rackless/study/store"
)

func TestOnlyLoopbackIsListenedAt(t *testing.T) {
	t.Parallel()
	for listen, want := range map[string]string{
		"127.0.0.1:0": "127.0.0.1:0", "127.0.0.2:80": "127.0.0.2:80", "[::1]:8080": "[::1]:8080",
		"localhost:9": "127.0.0.1:9", "[::ffff:127.0.0.1]:1": "127.0.0.1:1",
	} {
		if got, err := Loopback(listen); err != nil || got != want {
			t.Errorf("%s: got %q, %v; want %q", listen, got, err, want)
		}
	}
	for listen, want := range map[string]string{
		"": "want an address and a port", "8080": "want an address and a port",
		"127.0.0.1": "want an address and a port", "127.0.0.1:http!": "is not a port",
		"127.0.0.1:70000": "is not a port",
		":80":             "for this machine alone", "0.0.0.0:80": "for this machine alone",
		"[::]:80": "for this machine alone", "192.0.2.1:80": "for this machine alone",
		"example.org:80": "for this machine alone", "[::1%lo]:80": "for this machine alone",
		"localhost.example.org:80": "for this machine alone", "127.1:80": "for this machine alone",
	} {
		if got, err := Loopback(listen); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %q, %v; want %q", listen, got, err, want)
		}
	}
}

func TestReadToken(t *testing.T) {
	t.Parallel()
	const fresh = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	dir := t.TempDir()
	file := func(name, text string, mode os.FileMode) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := errors.Join(os.WriteFile(path, []byte(text), mode), os.Chmod(path, mode)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	made := filepath.Join(dir, "made")
	for _, again := range []string{fresh, "another that is not taken, since there is one"} {
		if got, err := ReadToken(made, again, os.Getuid()); err != nil || got != fresh {
			t.Errorf("got %q, %v; want %q", got, err, fresh)
		}
	}
	if info, err := os.Stat(made); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v; want 0600", info.Mode(), err)
	}
	if got, err := ReadToken(file("own", " "+fresh+"_-9\n\n", 0o400), "x", os.Getuid()); err != nil ||
		got != fresh+"_-9" {
		t.Errorf("got %q, %v", got, err)
	}
	for path, want := range map[string]string{
		file("group", fresh, 0o640):                           "chmod 600",
		file("empty", "", 0o600):                              "want 22 letters",
		file("short", fresh[:21], 0o600):                      "want 22 letters",
		file("odd", fresh+"\r\nSet-Cookie: x", 0o600):         "want 22 letters",
		file("long", strings.Repeat("a", 2000), 0o600):        "want 22 letters",
		filepath.Join(dir, "no", "such", "directory", "file"): "no such file",
		dir:  "is not your file",
		pipe: "is not your file",
	} {
		if got, err := ReadToken(path, fresh, os.Getuid()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %q, %v; want %q", path, got, err, want)
		}
	}
	if _, err := ReadToken(made, fresh, os.Getuid()+1); err == nil {
		t.Error("a file of somebody else's was taken")
	}
}

func testSource(t *testing.T) *Source {
	t.Helper()
	dir := t.TempDir()
	l, err := lock.FromEnv(func(string) string { return fmt.Sprintf("rackless-ui-%d-%s", os.Getpid(), t.Name()) })
	if err != nil {
		t.Fatal(err)
	}
	return &Source{Dirs: rack.Dirs{Run: filepath.Join(dir, "run"), Data: dir}, DB: filepath.Join(dir, "studies.db"),
		Lock: l}
}

// The page starts nothing.
func TestTheHostOfThisTest(t *testing.T) {
	t.Parallel()
	u := testSource(t)
	h, err := u.Host(t.Context())
	if err != nil || h.Document == nil || len(h.Document.Cores) == 0 || len(h.Doctor) != 3 ||
		len(h.Doctor[0].Checks) < 5 {
		t.Fatalf("got %+v, %v", h, err)
	}
	var page bytes.Buffer
	if err := h.Document.WritePage(&page); err != nil || page.Len() == 0 {
		t.Errorf("its page has %d bytes: %v", page.Len(), err)
	}
	if left, err := os.ReadDir(u.Dirs.Data); err != nil || len(left) > 0 {
		t.Errorf("it left %v: %v", left, err)
	}
}

func TestPortsAreNamedAfterNICs(t *testing.T) {
	t.Parallel()
	l := &lab.Lab{Nodes: []lab.Node{{Name: "a", NICs: []lab.NIC{{Name: "eth0"}, {Name: "eth1"}}}}}
	ports := func(string) []string { return []string{"a", "a.1"} }
	c := fabric.Counters{Ports: []fabric.PortCounters{
		{Name: "a.1", RxFiltered: 1, RxNowhere: 2, Link: fabric.Link{Delay: 50 * time.Microsecond, Loss: 0.001,
			Seed: 7}, Drops: fabric.Drops{Lost: 3}}, {Name: "gone"},
	}}
	want := []live.Port{{PortCounters: c.Ports[0], Node: "a", NIC: "eth1", Impaired: "delay 50us, loss 0.1%"},
		{PortCounters: c.Ports[1]}}
	if diff := cmp.Diff(want, liveFabric(c, l, ports).Ports); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// Without data, and with a real database.
func TestUISource(t *testing.T) {
	t.Parallel()
	u := testSource(t)
	ctx := t.Context()
	labs, err1 := u.Labs(ctx)
	studies, err2 := u.Studies(ctx)
	results, err3 := u.Results(ctx)
	if err := errors.Join(err1, err2, err3); err != nil || len(labs)+len(studies)+len(results) != 0 {
		t.Errorf("an empty machine: %v, %v, %v, %v", labs, studies, results, err)
	}
	for _, name := range []string{"none", "../x"} {
		if _, err := u.Fabric(ctx, name); err == nil {
			t.Errorf("fabric of %q: no error", name)
		}
		if _, err := u.RDMA(ctx, name); err == nil {
			t.Errorf("RDMA of %q: no error", name)
		}
	}
	if _, err := u.Study(ctx, "study.yaml"); err == nil || !strings.Contains(err.Error(), "not a name") {
		t.Errorf("a file as a study: %v", err)
	}

	dir := filepath.Join(u.results().Dir(), "pair", "20260102T030405Z")
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "report.json"), []byte("{"),
		0o644)); err != nil {
		t.Fatal(err)
	}
	if results, err := u.Results(ctx); err != nil || len(results) != 1 || !strings.Contains(results[0].Error,
		"unexpected end of JSON") {
		t.Errorf("a torn result: %+v, %v", results, err)
	}
	text := `{"lab":"pair","generated":"2026-01-02T03:04:05Z","findings":[{"id":"link","status":"ok"}],` +
		`"samples":[{"test":"iperf3","value":1,"emulated":true},{"test":"iperf3","value":2},` +
		`{"test":"ping","error":"x"}]}`
	if err := os.WriteFile(filepath.Join(dir, "report.json"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	want := []live.Result{{Lab: "pair", Time: "20260102T030405Z", Detailed: true, Generated: time.Date(2026, 1, 2, 3, 4,
		5, 0, time.UTC), Emulated: true, Tests: []string{"iperf3"}, Figures: 2, Failed: 1,
		Findings: []finding.Finding{{ID: "link", Status: finding.OK}}}}
	got, err := u.Results(ctx)
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v, -want +got:\n%s", err, diff)
	}
	if data, err := u.Result(ctx, got[0]); err != nil || data.Lab != "pair" {
		t.Errorf("got %+v, %v", data, err)
	}
}

func TestProgressOfStudies(t *testing.T) {
	t.Parallel()
	u := testSource(t)
	db, err := store.Open(t.Context(), u.DB)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	begun := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	add := func(name, more string) *store.Study {
		t.Helper()
		spec, err := study.Parse("s.yaml", []byte("name: "+name+
			"\nquestion: Why?\nlab: pair.yaml\nfactors:\n  lab.fabric.mtu: [1500, 9000]\nmeasure: [{test: iperf3}]\n"+
			more))
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(spec)
		if err != nil {
			t.Fatal(err)
		}
		s := &store.Study{Name: name, Spec: text, Created: begun}
		if err := db.Create(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		return s
	}
	run := func(s *store.Study, block, place, attempt int, status, message string) {
		t.Helper()
		r := &study.Observation{Block: block, Place: place, Attempt: attempt,
			Cell: map[string]string{"lab.fabric.mtu": "9000"}, Started: begun.Add(time.Duration(block) * time.Minute)}
		if err := db.Begin(t.Context(), s.ID, r); err != nil {
			t.Fatal(err)
		}
		if status == study.StatusRunning {
			return
		}
		r.Status, r.Error, r.Seconds = status, message, 10
		raw := json.RawMessage(`{"tool":"iperf3","emulated":true}`)
		if err := db.End(t.Context(), r, []store.Sample{{Test: "iperf3", Metric: "throughput", Value: 1, Unit: "Gb/s",
			Raw: raw}}); err != nil {
			t.Fatal(err)
		}
	}
	// Two levels, each twice: four runs. The newest belongs to going.
	going := add("going", "blocks: 6\n")
	run(going, 9, 1, 1, study.StatusDone, "")
	run(going, 9, 2, 1, study.StatusDisturbed, "load")
	run(going, 9, 2, 2, study.StatusDone, "")
	run(going, 9, 3, 1, study.StatusFailed, "cut off: rackless ended before the run did")
	run(going, 9, 3, 2, study.StatusFailed, "x")
	run(going, 9, 3, 3, study.StatusFailed, "x")
	run(going, 9, 3, 4, study.StatusFailed, "x") // the third that counts
	run(going, 9, 4, 1, study.StatusRunning, "")
	over := add("over", "blocks: 1\n")
	for place := 1; place <= 4; place++ {
		run(over, 1, place, 1, study.StatusDone, "")
	}
	budget := add("budget", "budget: 75s\n")
	spent := add("spent", "budget: 60s\n")
	for place := 1; place <= 4; place++ {
		if place < 3 {
			run(budget, 1, place, 1, study.StatusDone, "")
		}
		run(spent, 1, place, 1, study.StatusDone, "")
	}
	add("new", "blocks: 6\n")

	got := func() map[string]live.Study {
		t.Helper()
		all, err := u.Studies(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]live.Study{}
		for _, s := range all {
			out[s.Name] = s
		}
		return out
	}
	base := live.Study{Question: "Why?", Lab: "pair.yaml", Created: begun}
	want := map[string]live.Study{}
	expect := func(name string, change func(*live.Study)) {
		s := base
		s.Name = name
		change(&s)
		want[name] = s
	}
	expect("going", func(s *live.Study) {
		s.Done, s.Failed, s.Disturbed, s.Total, s.Left, s.Emulated = 2, 4, 1, 24, 210*time.Second, true
	})
	expect("over", func(s *live.Study) { s.Done, s.Total, s.Complete, s.Emulated = 4, 4, true, true })
	expect("budget", func(s *live.Study) { s.Done, s.Left, s.Emulated = 2, 55*time.Second, true })
	expect("spent", func(s *live.Study) { s.Done, s.Complete, s.Emulated = 4, true, true })
	expect("new", func(s *live.Study) { s.Total = 24 })
	if diff := cmp.Diff(want, got()); diff != "" {
		t.Errorf("none runs (-want +got):\n%s", diff)
	}
	unlock, err := u.Lock.Take(u.Dirs.Run)
	if err != nil {
		t.Fatal(err)
	}
	expect("going", func(s *live.Study) {
		s.Done, s.Failed, s.Disturbed, s.Total, s.Left, s.Emulated, s.Running, s.Cell = 2, 4, 1, 24, 210*time.Second,
			true, true, "lab.fabric.mtu=9000"
	})
	if diff := cmp.Diff(want, got()); diff != "" {
		t.Errorf("one runs (-want +got):\n%s", diff)
	}
	if _, err := u.RDMA(t.Context(), "pair"); err == nil || !strings.Contains(err.Error(), "must not be disturbed") {
		t.Errorf("got %v", err)
	}
	unlock()
	if got()["going"].Running {
		t.Error("it still runs")
	}
	if doc, err := u.Study(t.Context(), "over"); err != nil || len(doc.Data.Runs) != 4 {
		t.Errorf("what it shows: %v, %v", doc, err)
	}
}

// A real switch and a lab's state on disk; the test plays the nodes.
func TestUISourceReadsARunningSwitch(t *testing.T) {
	t.Parallel()
	u := testSource(t)
	d := &u.Dirs
	var err error
	d.Run, err = os.MkdirTemp("/tmp", "rl") // short, because sockets are created below it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(d.Run) })
	l, err := lab.Parse("pair.yaml", []byte("name: pair\nnodes: {vm00: {}, vm01: {}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(&rack.State{Version: 1, Lab: l, Driver: "qemu", Accel: "tcg", Emulate: "asked for",
		Ready: true, Created: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(d.Run, "pair")
	if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, "state.json"), text,
		0o600)); err != nil {
		t.Fatal(err)
	}
	if _, err := u.Fabric(t.Context(), "pair"); err == nil || !strings.Contains(err.Error(), "does not answer") {
		t.Errorf("no switch: %v", err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	ready, told, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer ready.Close()
	go func() {
		ended <- emulated.RunDaemon(ctx, dir, told, slog.New(slog.DiscardHandler))
		told.Close()
	}()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	if _, err := bufio.NewReader(ready).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	node, err := net.Dial("unix", filepath.Join(dir, "p-vm01.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer node.Close()
	frame := append(bytes.Repeat([]byte{0xff}, 6), 2, 0, 0, 0, 0, 1, 0x88, 0xb5)
	frame = append(frame, make([]byte, 60-len(frame))...)
	if _, err := node.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...)); err != nil {
		t.Fatal(err)
	}

	labs, err := u.Labs(t.Context())
	if err != nil || len(labs) != 1 || !labs[0].HasSwitch || !labs[0].Emulated || len(labs[0].Nodes) != 2 ||
		labs[0].Nodes[0].State != "starting" {
		t.Errorf("got %+v, %v", labs, err)
	}
	for {
		f, err := u.Fabric(t.Context(), "pair")
		if err != nil || len(f.Ports) != 2 {
			t.Fatalf("got %+v, %v", f, err)
		}
		if p := f.Ports[1]; p.RxFrames == 1 {
			if p.Node != "vm01" || p.NIC != "eth0" || p.RxBytes != 60 || p.RxFiltered+p.RxNowhere != 1 ||
				!p.Connected ||
				f.Ports[0].RxFrames != 0 {
				t.Errorf("got %+v", f.Ports)
			}
			return
		}
		time.Sleep(time.Millisecond) // the frame is on its way
	}
}
