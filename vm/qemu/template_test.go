package qemu

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/rackless/rackless/vm"
	"github.com/rackless/rackless/vm/guest"
	"github.com/rackless/rackless/vm/image"
	"github.com/rackless/rackless/vm/qapi"
)

const clocksource = "/sys/devices/system/clocksource/clocksource0/current_clocksource"

// realImage is the built-in one: nothing smaller has the agent.
func realImage(t *testing.T) *image.Image {
	t.Helper()
	cache := os.Getenv("RACKLESS_CACHE")
	if cache == "" {
		dir, err := os.UserCacheDir()
		if err != nil {
			t.Fatal(err)
		}
		cache = filepath.Join(dir, "rackless")
	}
	img, err := image.Node.Ensure(limited(t), image.Options{Cache: filepath.Join(cache, "images"),
		Progress: func(s string) {
			t.Log(s)
		}})
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// One template for all, because booting takes seconds: two processes request it in place of a damaged one, and nodes
// are cloned.
func TestTemplate(t *testing.T) {
	if testing.Short() {
		t.Skip("boots a machine")
	}
	bin, version := findQEMU(t)
	img := realImage(t)
	cache := shortDir(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// For an equal key.
	open := func() *Driver {
		return &Driver{Binary: bin, Version: "0", Accel: "tcg", Cache: cache,
			Image: &image.Image{Dir: img.Dir, Kernel: "vmlinux", Initramfs: "initramfs.cpio"}}
	}
	d := open()
	if d.Version == version {
		t.Fatal("a QEMU of version 0")
	}
	key := d.templateKey(shape(""))
	dir, stale := filepath.Join(cache, key), filepath.Join(cache, ".t"+key)
	spoil(t, dir, key)
	if err := os.MkdirAll(filepath.Join(stale, "x"), 0o700); err != nil { // left by a killed process
		t.Fatal(err)
	}

	var wg sync.WaitGroup
	said := make([]string, 2)
	for i := range said {
		wg.Go(func() {
			out, err := exec.CommandContext(limited(t), self, "prepare", bin, img.Dir, cache).CombinedOutput()
			if err != nil {
				t.Errorf("%v: %s", err, out)
			}
			said[i] = string(out)
		})
	}
	wg.Wait()
	const made = "the cached template is damaged (state is not what was written): making it again\n" +
		"boot the template (1 CPU, 256 MiB, tcg)\n"
	if got := strings.Join(said, ""); strings.Count(got, made) != 1 || strings.Count(got, "damaged") != 1 {
		t.Fatalf("two processes said %q, want %q once", got, made)
	}
	if all, err := (vm.Cache{Dir: cache}).List(); err != nil || len(all) != 1 || all[0].Damaged != nil {
		t.Errorf("templates: %v, %v", all, err)
	}
	if _, err := os.Stat(stale); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", stale, err)
	}
	if err := d.Prepare(limited(t), shape(""), func(s string) {
		t.Errorf("a template that is there: %s", s)
	}); err != nil {
		t.Fatal(err)
	}

	t.Run("clones are machines of their own that run", func(t *testing.T) {
		var nodes []*Node
		for range 2 {
			n, err := d.Start(limited(t), shape(filepath.Join(shortDir(t), "vm00")))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				n.Setup.Close()
				if err := n.Process.Kill(context.Background()); err != nil { // the test's own context has ended
					t.Error(err)
				}
			})
			nodes = append(nodes, n)
		}
		for _, n := range nodes {
			if !n.Cloned || n.ColdReason != "" {
				t.Errorf("cloned %v: %s", n.Cloned, n.ColdReason)
			}
			if st, err := vm.QueryState(limited(t), n.Process, filepath.Dir(n.Agent)); err != nil || st != vm.Running {
				t.Errorf("state %v, %v", st, err)
			}
			c, err := qapi.DialAgent(limited(t), n.Agent)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			a := guest.NewAgent(c)
			r, err := a.Run(limited(t), guest.Command{Argv: []string{"sh", "-c",
				"cat /tmp/mark; echo seen > /tmp/mark; cat /sys/class/net/eth0/mtu"}})
			if err != nil || r.ExitCode != 0 || strings.TrimSpace(string(r.Stdout)) == "" ||
				bytes.Contains(r.Stdout, []byte("seen")) {
				t.Errorf("got %q %q, %v", r.Stdout, r.Stderr, err)
			}
			// perftest refuses to measure with the ACPI timer, which is slow under TCG.
			r, err = a.Run(limited(t), guest.Command{Argv: []string{"cat", clocksource}})
			if got := strings.TrimSpace(string(r.Stdout)); err != nil || vm.TrustTSC(d.Accel) && got != "tsc" {
				t.Errorf("the clone's clock is %q, %v, want the TSC", got, err)
			}
		}
	})

	t.Run("none is made of a kernel whose clock is wrong", func(t *testing.T) {
		if !vm.TrustTSC(d.Accel) {
			t.Skip("the TSC of this machine is not steady")
		}
		// The first measurement (Linux, arch/x86/kernel/tsc.c), from which the second is too far.
		bad := &Driver{Binary: bin, Version: version, Accel: "tcg", Image: img, Cache: shortDir(t),
			moreArgs: " tsc_early_khz=544000"}
		if _, err := bad.bootTemplate(limited(t), vm.Cache{Dir: bad.Cache}, "key", shape(""),
			true); !errors.Is(err, vm.ErrClock) {
			t.Errorf("got %v, want %v", err, vm.ErrClock)
		}
		if _, err := os.Stat(filepath.Join(bad.Cache, "key")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("a template is there: %v", err)
		}
	})

	t.Run("a state that QEMU refuses is QEMU's error, not a node", func(t *testing.T) {
		info := filepath.Join(dir, "template.json")
		kept, err := os.ReadFile(info)
		if err != nil {
			t.Fatal(err)
		}
		state, err := os.ReadFile(filepath.Join(dir, "state"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := os.WriteFile(info, kept, 0o600); err != nil {
				t.Error(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "state"), state, 0o600); err != nil {
				t.Error(err)
			}
		}()
		bad := append([]byte(nil), state[:len(state)/2]...)
		sum := sha256.Sum256(bad)
		if err := os.WriteFile(filepath.Join(dir, "state"), bad, 0o600); err != nil {
			t.Fatal(err)
		}
		rewrite(t, info, func(b []byte) []byte {
			var i vm.Template
			if err := json.Unmarshal(b, &i); err != nil {
				t.Fatal(err)
			}
			i.StateSHA256 = hex.EncodeToString(sum[:])
			b, err := json.Marshal(i)
			if err != nil {
				t.Fatal(err)
			}
			return b
		})
		d := open()
		if err := d.Prepare(limited(t), shape(""), func(s string) { t.Error(s) }); err != nil {
			t.Fatal(err)
		}
		at := shortDir(t)
		_, err = d.Start(limited(t), shape(at))
		if err == nil || !strings.HasPrefix(err.Error(), "QEMU for vm00 ended (exit status 1); its last words: ") {
			t.Errorf("got %v", err)
		}
		if p, err := vm.Strays(at); err != nil || len(p) != 0 {
			t.Errorf("left: %v, %v", p, err)
		}
	})
}

func rewrite(t *testing.T, path string, change func([]byte) []byte) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, change(b), 0o600); err != nil {
		t.Fatal(err)
	}
}

func spoil(t *testing.T, dir, key string) {
	t.Helper()
	manifest, err := json.Marshal(vm.Template{Format: 4, Key: key, StateSHA256: "00"})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{"template.json": manifest, "state": []byte("another")} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
