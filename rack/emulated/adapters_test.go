package emulated

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/rdma/fabric"
	"github.com/rackless/rackless/vm/qemu"
)

func TestAdaptersFollowTheLab(t *testing.T) {
	dir, err := os.MkdirTemp("", "rla")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	parse := func(nodes string) *lab.Lab {
		l, err := lab.Parse("f", []byte("name: x\nnodes: {"+nodes+"}\n"))
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	both := parse("a: {nic: connectx-4-lx, nics: 2}, b: {nic: connectx-5}, c: {}")
	control := filepath.Join(dir, switchSocket)
	plugs := &fabric.Plugs{}
	go func() {
		_ = fabric.Run(t.Context(), fabric.Config{Ports: ports(dir, both), Control: control, Plugs: plugs})
	}()
	if err := waitSwitch(t.Context(), control); err != nil {
		t.Fatal(err)
	}
	a := &adapters{dir: dir, log: slog.New(slog.DiscardHandler), plugs: plugs}
	defer a.close()
	there := func(node string, nic int) bool {
		conn, err := net.Dial("unix", adapterSocket(dir, node, nic))
		if err != nil {
			return false
		}
		return conn.Close() == nil
	}
	for i, step := range []struct {
		lab  *lab.Lab
		want string // a0 a1 b0 c0
	}{
		{both, "1110"}, {both, "1110"}, {parse("b: {nic: connectx-5}"), "0010"},
		{parse("b: {nic: connectx-4-lx}, c: {nic: connectx-4-lx}"), "0011"}, {parse("b: {}"), "0000"},
	} {
		if err := a.sync(step.lab); err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
		got := ""
		for _, at := range []struct {
			node string
			nic  int
		}{{"a", 0}, {"a", 1}, {"b", 0}, {"c", 0}} {
			got += map[bool]string{true: "1", false: "0"}[there(at.node, at.nic)]
		}
		if got != step.want {
			t.Errorf("step %d: there are %s, want %s", i, got, step.want)
		}
		if i == 0 {
			restores(t, a)
		}
	}
}

// All adapters are restored, or none.
func restores(t *testing.T, a *adapters) {
	t.Helper()
	template := t.TempDir()
	for i, want := range []string{"adapter0: no such file", "adapter1: no such file", ""} {
		err := a.restore("a", template)
		if got := fmt.Sprint(err); (err == nil) != (want == "") || !strings.Contains(got, want) {
			t.Errorf("with %d states: got %v, want %s", i, err, want)
		}
		state, err := a.there["a"].Port.Save()
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(template, qemu.AdapterState(i)), state, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for node, want := range map[string]string{"b": "another adapter model", "c": "node c has no ConnectX"} {
		if err := a.restore(node, template); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("node %s: got %v, want %s", node, err, want)
		}
	}
}
