package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/rackless/rackless/guest"
	"github.com/rackless/rackless/rack"
)

// files is a machine's root with these files.
func files(pairs ...string) fstest.MapFS {
	m := fstest.MapFS{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = &fstest.MapFile{Data: []byte(pairs[i+1])}
	}
	return m
}

func TestCgroupLimit(t *testing.T) {
	const v1, v2 = "sys/fs/cgroup/pids/", "sys/fs/cgroup/"
	tests := []struct {
		name  string
		root  fstest.MapFS
		limit int64
		where string
	}{
		{"no control groups", files(), 0, ""},
		{"version 2, the own group", files("proc/self/cgroup", "0::/a/b\n", v2+"a/b/pids.max", "100\n"), 100,
			"cgroup /sys/fs/cgroup/a/b"},
		{"version 2, a parent has less", files("proc/self/cgroup", "0::/a/b\n", v2+"a/b/pids.max", "100\n",
			v2+"a/pids.max", "50\n"), 50, "cgroup /sys/fs/cgroup/a"},
		{"version 2, no limit", files("proc/self/cgroup", "0::/a\n", v2+"a/pids.max", "max\n"), 0, ""},
		{"version 2, the root", files("proc/self/cgroup", "0::/\n", v2+"pids.max", "7\n"), 7, "cgroup /sys/fs/cgroup"},
		{"version 1", files("proc/self/cgroup", "5:cpu,cpuacct:/x\n4:pids:/a\n0::/\n", v1+"a/pids.max", "9\n",
			v2+"pids.max", "1\n"), 9, "cgroup /sys/fs/cgroup/pids/a"},
		{"a namespace hides the group, its root counts", files("proc/self/cgroup", "4:pids:/docker/x\n", v1+"pids.max",
			"9\n"), 9, "cgroup /sys/fs/cgroup/pids"},
		{"nonsense is no limit", files("proc/self/cgroup", "0::/a\nnonsense\n", v2+"a/pids.max", "many\n"), 0, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			limit, where, ok := cgroupLimit(tt.root, "pids", "pids.max", "pids.max")
			if limit != tt.limit || where != tt.where || ok != (tt.where != "") {
				t.Errorf("got %d, %q, %v, want %d, %q", limit, where, ok, tt.limit, tt.where)
			}
		})
	}
}

func TestCgroupMemory(t *testing.T) {
	tests := []struct {
		name        string
		root        fstest.MapFS
		limit, used int64
	}{
		{"no limit", files("proc/self/cgroup", "0::/\n"), 0, 0},
		{"version 2, page cache is not in use", files("proc/self/cgroup", "0::/a\n", "sys/fs/cgroup/a/memory.max",
			"1000\n",
			"sys/fs/cgroup/a/memory.current", "600\n", "sys/fs/cgroup/a/memory.stat",
			"anon 300\nactive_file 100\ninactive_file 200\n"), 1000, 300},
		{"version 1", files("proc/self/cgroup", "3:memory:/a\n", "sys/fs/cgroup/memory/a/memory.limit_in_bytes",
			"1000\n",
			"sys/fs/cgroup/memory/a/memory.usage_in_bytes", "600\n"), 1000, 600},
		{"version 1 says no limit with a large number", files("proc/self/cgroup", "3:memory:/a\n",
			"sys/fs/cgroup/memory/a/memory.limit_in_bytes", "9223372036854771712\n"), 0, 0},
		{"use is not known", files("proc/self/cgroup", "0::/\n", "sys/fs/cgroup/memory.max", "5\n"), 5, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			limit, used, _, ok := cgroupMemory(tt.root)
			if limit != tt.limit || used != tt.used || ok != (tt.limit > 0) {
				t.Errorf("got %d, %d, %v, want %d, %d", limit, used, ok, tt.limit, tt.used)
			}
		})
	}
}

// found returns the status and the evidence of a check that a doctor has made.
func found(t *testing.T, d *doctor, id string) doctorItem {
	t.Helper()
	for _, i := range d.items {
		if i.ID == id {
			if (i.Status == statusOK) != (i.Fix == "") {
				t.Errorf("%s is %s, and its fix is %q", id, i.Status, i.Fix)
			}
			return i
		}
	}
	t.Fatalf("no check %s in %v", id, d.items)
	return doctorItem{}
}

func TestDoctorOnPackages(t *testing.T) {
	all := func(string) (string, error) { return "/usr/bin/x", nil }
	none := func(string) (string, error) { return "", errors.New("not found") }
	lists := files("var/lib/apt/lists/deb.example_main_Packages.lz4", "")
	tests := []struct {
		name       string
		look       func(string) (string, error)
		root       fstest.MapFS
		image      *guest.Image
		apt, lists string
	}{
		{"all is there", all, lists, nil, statusOK, statusOK},
		{"nothing is there, and no image", none, files(), nil, statusLack, statusLack},
		{"nothing is there, but an image", none, files(), &guest.Image{}, statusWarn, statusWarn},
		{"apt-get update was never run", all, files(), nil, statusOK, statusLack},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := &doctor{look: tt.look, root: tt.root, image: tt.image}
			d.checkPackages()
			if got := found(t, d, "apt").Status; got != tt.apt {
				t.Errorf("apt: got %s, want %s", got, tt.apt)
			}
			if got := found(t, d, "apt-lists").Status; got != tt.lists {
				t.Errorf("lists: got %s, want %s", got, tt.lists)
			}
		})
	}
}

func TestDoctorOnKVM(t *testing.T) {
	d := &doctor{root: files()}
	d.checkKVM(t.Context())
	if i := found(t, d, "kvm"); i.Status != statusWarn || !strings.Contains(i.Evidence,
		"no /dev/kvm; nodes are emulated") {
		t.Errorf("without the device: %+v", i)
	}
	d = &doctor{root: files("dev/kvm", "")}
	d.checkKVM(t.Context())
	if i := found(t, d, "kvm"); i.Status != statusWarn || !strings.Contains(i.Fix, "rackless image build") {
		t.Errorf("without an image: %+v", i)
	}
}

func TestDoctorOnMemory(t *testing.T) {
	d := &doctor{root: files("proc/self/cgroup", "0::/a\n", "sys/fs/cgroup/a/memory.max", "104857600\n",
		"sys/fs/cgroup/a/memory.current", "0\n")}
	d.checkMachine()
	if i := found(t, d, "memory"); i.Status != statusLack || !strings.Contains(i.Evidence,
		"100 MiB available by cgroup /sys/fs/cgroup/a, room for 0 default nodes") {
		t.Errorf("a control group of 100 MiB: %+v", i)
	}
	if out := d.output(); out.Ready {
		t.Error("ready, although memory is lacking")
	}
}

func TestDoctorOnDirectories(t *testing.T) {
	dir := t.TempDir()
	plain := filepath.Join(dir, "file")
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	short := "/tmp/rl-doctor-test" // not made by anybody
	d := &doctor{dirs: rack.Dirs{Run: short, Cache: filepath.Join(dir, "a/b"), Data: filepath.Join(plain, "x")},
		root: files()}
	d.checkDirs()
	for id, want := range map[string]string{"run": statusOK, "cache": statusOK, "data": statusWarn,
		"run-path": statusOK} {
		if got := found(t, d, id); got.Status != want {
			t.Errorf("%s: got %+v, want %s", id, got, want)
		}
	}
	for path, want := range map[string]string{
		"/" + strings.Repeat("a", 49): statusOK, "/" + strings.Repeat("a", 60): statusWarn,
		"/" + strings.Repeat("a", 95): statusLack, plain: statusLack,
	} {
		d := &doctor{dirs: rack.Dirs{Run: path, Cache: dir, Data: dir}, root: files()}
		d.checkDirs()
		if got := found(t, d, "run-path"); got.Status != want {
			t.Errorf("path of %d bytes: got %+v, want %s", len(path), got, want)
		}
	}
	for _, made := range []string{short, filepath.Join(dir, "a")} {
		if _, err := os.Stat(made); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("doctor made %s", made)
		}
	}
}

func TestDoctorOnLimits(t *testing.T) {
	d := &doctor{root: files("proc/self/cgroup", "0::/\n", "sys/fs/cgroup/pids.max", "100\n")}
	d.checkLimits()
	if i := found(t, d, "cgroup-pids"); i.Status != statusWarn || !strings.HasPrefix(i.Evidence,
		"100; a lab of 64 nodes takes up to ") {
		t.Errorf("got %+v", i)
	}
	d = &doctor{}
	d.limit("x", "x", noLimitAtAll, 5, "")
	if i := found(t, d, "x"); i.Status != statusOK || i.Evidence != "no limit, enough for 64 nodes" {
		t.Errorf("got %+v", i)
	}
}

func TestDoctorPrintsTheFixBelowWhatIsLacking(t *testing.T) {
	a, out, _ := testApp(t)
	err := a.printDoctor(doctorOutput{Checks: []doctorItem{
		{ID: "a", Status: statusOK, Title: "good", Evidence: "there"},
		{ID: "b", Status: statusWarn, Title: "not so good", Evidence: "slow", Fix: "wait"},
		{ID: "c", Status: statusLack, Title: "bad", Evidence: "missing", Fix: "get it"},
	}})
	want := "ok    good         there\n" +
		"warn  not so good  slow\n      fix: wait\n" +
		"lack  bad          missing\n      fix: get it\n" +
		"\nlacking: 1 thing, with 1 warning: rackless up will not work before that is there\n"
	if err != nil || out.String() != want {
		t.Errorf("got %q, %v, want %q", out, err, want)
	}
}
