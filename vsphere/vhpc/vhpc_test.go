package vhpc

import (
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/rackless/rackless/lab"
)

var update = flag.Bool("update", false, "write the golden file of this package anew")

// scripts are those that cluster files name.
func scripts(path string) ([]byte, error) {
	text, ok := map[string]string{"setup.sh": "#!/usr/bin/env bash\necho \"it's $1\" >>/root/log\n",
		"hello.sh": "echo hello"}[path]
	if !ok {
		return nil, fs.ErrNotExist
	}
	return []byte(text), nil
}

func TestLabs(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/cluster.conf")
	if err != nil {
		t.Fatal(err)
	}
	files, err := Labs("cluster.conf", text, scripts)
	if err != nil {
		t.Fatal(err)
	}
	var got txtar.Archive
	for _, f := range files {
		got.Files = append(got.Files, txtar.File{Name: f.Name, Data: f.Data})
	}
	golden := filepath.Join("testdata", "labs.txtar")
	if *update {
		if err := os.WriteFile(golden, txtar.Format(&got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(txtar.Format(&got))); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if strings.Contains(string(want), "not-a-secret") {
		t.Error("a password is carried")
	}
}

func TestRangesGoRound(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, want string }{
		{"h{1:4}", "h1 h2 h3 h4 h1 h2"}, {"h{{1:3}}", "h1 h1 h2 h2 h3 h3"}, {"h{{1:4}}", "h1 h1 h2 h3 h3 h4"},
		{"{08:10}-{1:2}", "08-1 09-2 10-1 08-2 09-1 10-2"}, {"h{3:1}", "h{3:1} h{3:1} h{3:1} h{3:1} h{3:1} h{3:1}"},
		{"plain", "plain plain plain plain plain plain"},
	} {
		var got []string
		for i := range 6 {
			got = append(got, at(c.text, i, 6))
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("%s: %s, want %s", c.text, s, c.want)
		}
	}
}

func TestFilesThatAreNone(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, want string }{
		{"", "no virtual machines in it"},
		{"name: x", "f:1: a line outside of any section"},
		{"[_VMS_]\nvm1 BASE", "f:2: want NAME: SECTION"},
		{"[_VMS_]\nvm1: BASE", `f:2: no section "BASE" above`},
		{"[_VMS_]\nvm1: cpu: 2", "vm1 has no host"},
		{"[_VMS_]\nvm{1:999999}: host: h", "more than 4096"},
		{"[_VMS_]\nvm1: host: h cpu: 99999", "the lab of host h"},
		{"[_SVS_]\ns: pnic: vmnic1", "f:2: switch s has no host"},
		{"[_DVS_]\ns: host: h{1:2000}", "or more than 1024"},
	} {
		if _, err := Labs("f", []byte(c.text), scripts); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %s", c.text, err, c.want)
		}
	}
}

// Whatever a file has in it, the labs are such as rackless reads.
func FuzzLabs(f *testing.F) {
	text, err := os.ReadFile("testdata/cluster.conf")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(text))
	f.Add("[_VMS_]\na{{1:2}}: host: \"h device: [a,b\n")
	f.Add("[_DVS_]\ns: host: h{1:2} pnic: [a,'b'] port_group: p\n[_SVS_]\ns: host: h1\n[_VMS_]\na: host: h1 " +
		"script: setup.sh sequence:0 domain: d ip: 1.2.3.4 netmask: 255.0.0.0\n")
	f.Fuzz(func(t *testing.T, text string) {
		files, err := Labs("f", []byte(text), scripts)
		if err != nil {
			return
		}
		for _, file := range files {
			if l, err := lab.Parse(file.Name, file.Data); err != nil || l.Driver != lab.DriverVSphere {
				t.Errorf("%v\n%s", err, file.Data)
			}
		}
	})
}
