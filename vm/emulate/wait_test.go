package emulate

import (
	"bufio"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rackless/rackless/vm"
)

// bootingQEMU answers QMP, first with a closed agent's port.
func bootingQEMU(t *testing.T, dir string, closed int) {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(dir, vm.SocketQMP))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conn.Write([]byte(`{"QMP": {"version": {}, "capabilities": []}}` + "\n"))
			for s := bufio.NewScanner(conn); s.Scan(); {
				reply := `{"return": {}}`
				if strings.Contains(s.Text(), "query-chardev") {
					reply = `{"return": [{"label": "` + agentChardev + `", "frontend-open": true}]}`
					if closed--; closed >= 0 {
						reply = strings.Replace(reply, "true", "false", 1)
					}
				}
				conn.Write([]byte(reply + "\n"))
			}
			conn.Close()
		}
	}()
}

func TestAHostThatRestartsIsWaitedFor(t *testing.T) {
	t.Parallel()
	running, err := vm.FindProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name    string
		closed  int
		process vm.Process
		told    string
		err     string
	}{
		{"up", 0, running, "", ""},
		{"boots", 3, running, "host try restarts: waiting for it, at most 15m0s", ""},
		{"went off", 9, vm.Process{}, "host try restarts: waiting for it, at most 15m0s",
			"host try went off: rackless emulate try boots it"},
	} {
		dir := t.TempDir()
		bootingQEMU(t, dir, tt.closed)
		var told []string
		h := &Host{Dir: dir, State: State{Name: "try", Process: tt.process}}
		err := h.AwaitBoot(t.Context(), func(what string) { told = append(told, what) })
		if got := strings.Join(told, "\n"); got != tt.told || err == nil && tt.err != "" || err != nil &&
			err.Error() != tt.err {
			t.Errorf("%s: told %q, and %v", tt.name, got, err)
		}
	}
}
