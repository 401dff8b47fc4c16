package rack

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/facts"
	"github.com/rackless/rackless/vm"
)

func record(t *testing.T, d Dirs, name string, nodes ...*Node) {
	t.Helper()
	l, err := lab.Parse("x.yaml", []byte("name: "+name+"\nnodes:\n  a: {nics: 2}\n  b: {}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(d.Lab(name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := (&Rack{Dir: d.Lab(name), State: &State{Version: stateVersion, Lab: l, Driver: "fake", Nodes: nodes}}).
		Save(); err != nil {
		t.Fatal(err)
	}
}

func TestStatusWithoutProcesses(t *testing.T) {
	d := Dirs{Run: t.TempDir()}
	record(t, d, "x", &Node{Name: "a", Ready: true})
	r, err := Open(d, "x")
	if err != nil {
		t.Fatal(err)
	}
	got := r.Status(t.Context())
	if len(got) != 2 || got[0].State != vm.Dead || got[1].State != Starting || got[1].Node != nil ||
		got[0].Lab.Name != "a" {
		t.Errorf("got %+v", got)
	}
	if _, err := r.Endpoint("b"); err == nil || err.Error() != "node b has not been started yet" {
		t.Error(err)
	}
	if got := r.Ports("a"); !slices.Equal(got, []string{"a", "a.1"}) {
		t.Errorf("ports: %v", got)
	}
	if got, want := r.DaemonLog(), filepath.Join(d.Run, "x/daemon.log"); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestOpenAllReturnsWhatCanBeReadBesideTheError(t *testing.T) {
	d := Dirs{Run: t.TempDir()}
	record(t, d, "good")
	record(t, d, "worse")
	if err := os.Mkdir(d.Lab("begun"), 0o700); err != nil { // without a state yet
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(d.Lab("worse"), "state.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	all, err := OpenAll(d)
	if len(all) != 1 || all[0].Lab.Name != "good" || err == nil || !strings.Contains(err.Error(),
		"rackless down worse") {
		t.Errorf("got %v, %v", all, err)
	}
}

func TestCheckRun(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if n, err := CheckRun(Dirs{Run: "/" + strings.Repeat("a", 50)}); err != nil || n != 107-51-15 {
		t.Errorf("got %d, %v", n, err)
	}
	if _, err := CheckRun(Dirs{Run: file}); err == nil || !strings.Contains(err.Error(),
		"is not a directory of this user's") {
		t.Errorf("a file: %v", err)
	}
}

func TestReadRoom(t *testing.T) {
	room, err := ReadRoom()
	if err != nil || room.Available <= 0 {
		t.Errorf("got %v, %v", room, err)
	}
	if got := (Room{Available: 10 * lab.GiB, PerNode: lab.GiB}).Nodes(); got != 10 {
		t.Errorf("room for %d nodes", got)
	}
}

func TestFactsOfANodeInItsState(t *testing.T) {
	parsed := func(text string) *facts.Node {
		n, err := facts.Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for text, want := range map[string]*facts.Node{
		`{}`:                             nil,
		`{"facts": null}`:                nil,
		`{"facts": "hostname a\nx y\n"}`: parsed("hostname a\nx y\n"),
		// format of older versions
		`{"facts": {"Hostname": "a", "Cores": {"0/0": [1]}, "NUMA": 3, "PCI": "x"}}`: parsed("hostname a\n"),
	} {
		var n Node
		if err := json.Unmarshal([]byte(text), &n); err != nil || !reflect.DeepEqual(n.Facts, want) {
			t.Errorf("%s: got %+v, %v, want %+v", text, n.Facts, err, want)
		}
		again, err := json.Marshal(&n)
		if err != nil {
			t.Fatal(err)
		}
		var read Node
		if err := json.Unmarshal(again, &read); err != nil || !reflect.DeepEqual(read.Facts, want) {
			t.Errorf("%s: read again: %+v, %v, want %+v", text, read.Facts, err, want)
		}
	}
	if err := json.Unmarshal([]byte(`{"name": 1}`), &Node{}); err == nil {
		t.Error("a number is taken for a name")
	}
}

func TestMACsOf(t *testing.T) {
	l, err := lab.Parse("x.yaml", []byte("name: x\nnodes:\n  a: {nics: 2}\n  b: {}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if m, err := MACsOf(l, "a"); err != nil || len(m) != 2 || m[1].String() != l.Nodes[0].NICs[1].MAC {
		t.Errorf("got %v, %v", m, err)
	}
	if _, err := MACsOf(l, "c"); err == nil || err.Error() != "lab x has no node c" {
		t.Errorf("got %v", err)
	}
}
