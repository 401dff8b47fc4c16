package serve_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rackless/rackless/internal/storey"
	"github.com/rackless/rackless/rdma/connectx"
	"github.com/rackless/rackless/rdma/fabric"
	"github.com/rackless/rackless/rdma/serve"
	"github.com/rackless/rackless/vm/image"
	"github.com/rackless/rackless/vm/kerneltest"
)

// start returns when QEMU can connect.
func start(t *testing.T, c serve.Config) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ready, ended := make(chan bool), make(chan error, 1)
	c.Ready = func() { close(ready) }
	go func() { ended <- serve.Run(ctx, c) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("%s: %v", c.Dir, err)
		}
	})
	select {
	case <-ready:
	case err := <-ended:
		ended <- nil
		t.Fatal(err)
	}
}

func adapter(dir, name string, mac byte) serve.Adapter {
	return serve.Adapter{Name: name, Model: connectx.ConnectX5, MAC: net.HardwareAddr{2, 0, 0, 0, 0, mac},
		Socket: filepath.Join(dir, name+".nic")}
}

func TestE2EServedAdapters(t *testing.T) {
	storey.E2E(t)
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	o := image.Options{Cache: filepath.Join(cache, "rackless", "images")}
	node, err := image.Node.Ensure(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	qemu, err := image.QEMU.Ensure(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	dir, far := t.TempDir(), t.TempDir()
	lost, logf := kerneltest.Watch(t)
	log := slog.New(slog.NewTextHandler(writer(logf), nil))
	control := filepath.Join(dir, "fabric.sock")
	start(t, serve.Config{Adapters: []serve.Adapter{adapter(dir, "a", 1), adapter(dir, "b", 2)}, Dir: dir,
		Control: control, Log: log})
	other, err := fabric.Dial(control)
	if err != nil {
		t.Fatal(err)
	}
	start(t, serve.Config{Adapters: []serve.Adapter{adapter(far, "c", 3)}, Dir: far,
		Control: filepath.Join(far, "fabric.sock"), Other: other, Log: log})
	initrd := kerneltest.GuestInitrd(t, node)
	guests := map[string]*kerneltest.Guest{}
	for i, name := range []string{"a", "b", "c"} {
		at := dir
		if name == "c" {
			at = far
		}
		guests[name] = kerneltest.Boot(t, lost, at, name, fmt.Sprintf("10.0.0.%d", i+1), filepath.Join(at, name+".nic"),
			kerneltest.SharedMemory, qemu, node, initrd)
	}
	for _, g := range guests {
		g.Up()
	}
	const tool = "ib_write_bw -F -d mlx5_0 -x 3 -s 4096 -n 100"
	for _, server := range []string{"b", "c"} {
		g, address := guests[server], map[string]string{"b": "10.0.0.2", "c": "10.0.0.3"}[server]
		g.Start("timeout 60 " + tool)
		g.Until("Waiting for client")
		out := guests["a"].Run("for i in 1 2 3 4 5; do timeout 60 " + tool + " " + address + " && break; sleep 1; done")
		g.Finish(tool)
		if !strings.Contains(out, " 4096       100 ") {
			t.Errorf("%s printed %s", server, out)
		}
	}
}

type writer func(format string, args ...any)

func (w writer) Write(b []byte) (int, error) {
	w("%s", strings.TrimSpace(string(b)))
	return len(b), nil
}

func TestRun(t *testing.T) {
	dir := t.TempDir()
	control := filepath.Join(dir, "fabric.sock")
	log := slog.New(slog.DiscardHandler)
	start(t, serve.Config{Adapters: []serve.Adapter{adapter(dir, "a", 1)}, Dir: dir, Control: control, Log: log})
	other, err := fabric.Dial(control)
	if err != nil {
		t.Fatal(err)
	}
	ports := func() (names []string) {
		have, err := other.Counters(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range have.Ports {
			names = append(names, p.Name)
		}
		return names
	}
	far := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	during := 0
	err = serve.Run(ctx, serve.Config{Adapters: []serve.Adapter{adapter(far, "c", 3)}, Dir: far,
		Control: filepath.Join(far, "fabric.sock"), Other: other, Log: log, Ready: func() {
			during = len(ports())
			cancel()
		}})
	if err != nil || during != 2 || len(ports()) != 1 {
		t.Errorf("error %v, %d ports while both run, then %v", err, during, ports())
	}

	file := filepath.Join(far, "file")
	if err := os.WriteFile(file, []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, filepath.Join(dir, "a.nic")} {
		x := adapter(far, "d", 4)
		x.Socket = path
		err := serve.Run(t.Context(), serve.Config{Adapters: []serve.Adapter{x}, Dir: far,
			Control: filepath.Join(far, "fabric.sock"), Log: log, Ready: func() { t.Errorf("it serves at %s", path) }})
		if err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: error %v", path, err)
		}
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != "kept" {
		t.Errorf("the file has %q, %v", b, err)
	}
}
