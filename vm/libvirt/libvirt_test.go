package libvirt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	api "github.com/digitalocean/go-libvirt"
	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/vm/guest"
	"github.com/rackless/rackless/vm/libvirttest"
	"github.com/rackless/rackless/vm/qapi"
)

func TestLifeOfALab(t *testing.T) {
	img := nodeImage(t)
	d, c := connected(t)
	ctx := limited(t)
	if !strings.Contains(c.Caps.QEMU, ".") || !c.Local() {
		t.Errorf("capabilities %+v, local %v", c.Caps, c.Local())
	}
	if err := os.WriteFile(filepath.Join(d.Dir, "tenant.xml"), []byte(foreign), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Virsh("define", filepath.Join(d.Dir, "tenant.xml")); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Virsh("start", "tenant"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := d.Virsh("destroy", "tenant"); err != nil {
			t.Error(err)
		}
		if _, err := d.Virsh("undefine", "tenant"); err != nil {
			t.Error(err)
		}
	})
	untouched, err := d.Virsh("dumpxml", "tenant")
	if err != nil {
		t.Fatal(err)
	}

	boot, err := c.install(ctx, img, filepath.Join(d.Dir, "pool"))
	if err != nil {
		t.Fatal(err)
	}
	if again, err := c.install(ctx, img, filepath.Join(d.Dir, "pool")); err != nil || *again != *boot {
		t.Errorf("installed again: %+v, %v, want %+v", again, err, boot)
	}
	for range 2 { // the second replaces the first
		path, err := c.installSeed(ctx, "pair.vm00-seed.iso", img.KernelPath(), filepath.Join(d.Dir, "pool"))
		if fi, statErr := os.Stat(path); err != nil || statErr != nil || fi.Size() == 0 {
			t.Errorf("the seed is at %q, %v, %v", path, err, statErr)
		}
	}
	specs := pair(t, boot)
	wire(t, specs)

	var told []string
	changes, err := c.Up(ctx, specs, UpOptions{Progress: func(name string, a Action) {
		told = append(told, name+" "+string(a))
	}})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Change{{Name: "pair.vm00", Action: Create}, {Name: "pair.vm01", Action: Create}},
		changes); diff != "" {
		t.Errorf("first up (-want +got):\n%s", diff)
	}
	slices.Sort(told)
	if diff := cmp.Diff([]string{"pair.vm00 create", "pair.vm01 create"}, told); diff != "" {
		t.Error(diff)
	}
	again, err := c.Up(ctx, specs, UpOptions{Recreate: true})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Change{{Name: "pair.vm00", Action: Keep}, {Name: "pair.vm01", Action: Keep}},
		again); diff != "" {
		t.Errorf("second up (-want +got):\n%s", diff)
	}

	if err := c.uninstall(ctx); err != nil {
		t.Error(err)
	}
	if _, err := d.Virsh("vol-path", "--pool", Pool, whole(img.Key)); err != nil {
		t.Errorf("the image is gone while domains boot it: %v", err)
	}

	t.Run("a changed domain is shown and not touched", func(t *testing.T) {
		before, err := d.Virsh("domid", "pair.vm01")
		if err != nil {
			t.Fatal(err)
		}
		changed := slices.Clone(specs)
		changed[1].XML = bytes.ReplaceAll(specs[1].XML, []byte("<memory unit='MiB'>320</memory>"),
			[]byte("<memory unit='MiB'>384</memory>"))
		_, err = c.Up(ctx, changed, UpOptions{})
		e, ok := errors.AsType[*ChangedError](err)
		if !ok {
			t.Fatalf("got %v", err)
		}
		want := []Change{{Name: "pair.vm01", Action: Replace, Diff: []string{"- <memory unit='MiB'>320</memory>",
			"+ <memory unit='MiB'>384</memory>"}}}
		if diff := cmp.Diff(want, e.Changes); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
		if after, err := d.Virsh("domid", "pair.vm01"); err != nil || after != before {
			t.Errorf("it runs as %q now, was %q; %v", after, before, err)
		}
	})

	t.Run("a domain that somebody else has pinned is shown and not touched", func(t *testing.T) {
		pin := func(cpu string) {
			t.Helper()
			if _, err := d.Virsh("vcpupin", "pair.vm01", "0", cpu, "--config"); err != nil {
				t.Fatal(err)
			}
		}
		pin("1")
		changes, err := c.Compare(ctx, specs)
		want := []Change{
			{Name: "pair.vm00", Action: Keep},
			{Name: "pair.vm01", Action: Replace, Diff: []string{"- <vcpupin vcpu='0' cpuset='1'/>",
				"+ <vcpupin vcpu='0' cpuset='0'/>"}},
		}
		if diff := cmp.Diff(want, changes); err != nil || diff != "" {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
		pin("0")
		changes, err = c.Compare(ctx, specs)
		if diff := cmp.Diff([]Change{{Name: "pair.vm00", Action: Keep}, {Name: "pair.vm01", Action: Keep}},
			changes); err != nil || diff != "" {
			t.Errorf("pinned as it was: %v (-want +got):\n%s", err, diff)
		}
	})

	agents := make([]*guest.Agent, len(specs))
	var wg sync.WaitGroup
	for i, s := range specs {
		wg.Go(func() {
			var err error
			if agents[i], err = c.AwaitAgent(ctx, s.Name); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}

	t.Run("a node that is restarted boots anew", func(t *testing.T) {
		boot := func() string {
			res, err := agents[1].Run(ctx, guest.Command{Argv: []string{"cat", "/proc/sys/kernel/random/boot_id"}})
			if err != nil || len(res.Stdout) < 36 {
				t.Fatalf("boot_id: %q, %v", res.Stdout, err)
			}
			return string(res.Stdout)
		}
		before := boot()
		if err := errors.Join(agents[1].Close(), c.Restart(ctx, "pair.vm01")); err != nil {
			t.Fatal(err)
		}
		var err error
		if agents[1], err = c.AwaitAgent(ctx, "pair.vm01"); err != nil {
			t.Fatal(err)
		}
		if now := boot(); now == before {
			t.Errorf("it still runs since the boot %s", now)
		}
	})

	t.Run("programs run in the nodes", func(t *testing.T) {
		text := `it's "quoted" \ $HOME ; virsh # error: "E" ` + "\t\x01 tab, ü and 😀\nnext line\n"
		res, err := agents[0].Run(ctx, guest.Command{Argv: []string{"sh", "-c", `cat; echo "$0" >&2; exit 3`, text},
			Stdin: []byte(text)})
		if err != nil || string(res.Stdout) != text || string(res.Stderr) != text+"\n" || res.ExitCode != 3 {
			t.Errorf("got %q, %q, %d, %v", res.Stdout, res.Stderr, res.ExitCode, err)
		}
		// above the 128 KiB limit of a process argument
		large := strings.Repeat("0123456789", 10<<10)
		if res, err = agents[0].Run(ctx, guest.Command{Argv: []string{"cat"}, Stdin: []byte(large)}); err != nil ||
			string(res.Stdout) != large {
			t.Errorf("100 KiB: got %d bytes back, %v", len(res.Stdout), err)
		}
		var out, errOut bytes.Buffer
		exit, err := agents[1].Stream(ctx, guest.Command{Argv: []string{"sh", "-c", "uname -n; echo no >&2; exit 4"}},
			&out, &errOut)
		if err != nil || exit != 4 || out.String() != "template\n" || errOut.String() != "no\n" {
			t.Errorf("streamed: %q, %q, %d, %v", out.String(), errOut.String(), exit, err)
		}
		_, err = agents[0].Run(ctx, guest.Command{Argv: []string{"no-such-program"}})
		if e, ok := errors.AsType[*qapi.Error](err); !ok || e.Class == qapi.ClassUnreachable ||
			!strings.Contains(e.Desc, "No such file or directory") {
			t.Errorf("a program that is not there: %v", err)
		}
		// libvirt forwards 4 MiB; the agent keeps 16.
		if _, err = agents[0].Run(ctx, guest.Command{Argv: []string{"head", "-c", "3200000", "/dev/zero"}}); err ==
			nil || !strings.Contains(err.Error(), "at most 4 MiB") {
			t.Errorf("an answer that is too long: %v", err)
		}
	})

	t.Run("nodes get their names, addresses and RoCE", func(t *testing.T) {
		for i, a := range agents {
			id := guest.Identity{Name: fmt.Sprintf("vm%02d", i), MachineID: guest.NewMachineID(), MTU: 1500,
				NICs: []guest.NIC{
					{Device: "eth0", Path: nicPath, Addr: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0,
						byte(i + 1)}),
						24)},
				}}
			for _, when := range []string{"first", "again"} {
				f, err := a.Configure(ctx, id)
				if err != nil {
					t.Fatalf("%s: %v", when, err)
				}
				eth0, nic0 := f.Netdev("eth0"), f.Netdev("nic0")
				on, rxe0 := f.RDMADevice("rxe0")
				if f.Hostname != id.Name || eth0 == nil || eth0.MAC != fmt.Sprintf("52:54:00:aa:00:%02d", i) ||
					nic0 == nil || rxe0 == nil || !on.Has("eth0") {
					t.Errorf("%s: %s, eth0 %+v, nic0 %+v, rxe0 %+v", when, f.Hostname, eth0, nic0, rxe0)
				}
			}
			id.NICs[0].Path = "pci0000:00/0000:00:07.0"
			if _, err := a.Configure(ctx, id); err == nil || !strings.Contains(err.Error(),
				"no network device at /sys/devices/pci0000:00/0000:00:07.0") {
				t.Errorf("a NIC that is not there: %v", err)
			}
		}
		server := make(chan error, 1)
		go func() {
			res, err := agents[0].Run(ctx, guest.Command{Argv: []string{"rping", "-s", "-a", "10.0.0.1", "-C", "3"}})
			if err == nil && res.ExitCode != 0 {
				err = fmt.Errorf("rping -s: %d: %s", res.ExitCode, res.Stderr)
			}
			server <- err
		}()
		for {
			res, err := agents[1].Run(ctx, guest.Command{Argv: []string{"rping", "-c", "-a", "10.0.0.1", "-C", "3",
				"-v"}})
			if err != nil {
				t.Fatal(err)
			}
			if strings.Count(string(res.Stdout), "ping data: ") == 3 {
				break
			}
			select {
			case err := <-server:
				t.Fatalf("server ended (%v) before the client: %s%s", err, res.Stdout, res.Stderr)
			case <-ctx.Done():
				t.Fatalf("%v; client: %s%s", context.Cause(ctx), res.Stdout, res.Stderr)
			default:
			}
		}
		if err := <-server; err != nil {
			t.Error(err)
		}
	})

	t.Run("threads are those of the kernel", func(t *testing.T) {
		th, err := c.Threads(ctx, "pair.vm00")
		if err != nil || len(th.VCPUs) != 1 || len(th.IOThreads) != 1 {
			t.Fatalf("got %+v, %v", th, err)
		}
		for want, tid := range map[string]int{"CPU 0/TCG\n": th.VCPUs[0], "IO iothread1\n": th.IOThreads[0]} {
			if got, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/comm", th.PID, tid)); err != nil ||
				string(got) != want {
				t.Errorf("thread %d is %q, %v, want %q", tid, got, err, want)
			}
		}
		if _, err := c.Threads(ctx, "pair.vm07"); !errors.Is(err, ErrNoDomain) {
			t.Errorf("of no domain: %v", err)
		}
	})

	t.Run("a domain that does not start is led back", func(t *testing.T) {
		bad := slices.Clone(specs)
		bad[1].XML = bytes.ReplaceAll(bad[1].XML, []byte(boot.Kernel), []byte("/nonexistent/vmlinux"))
		third := Spec{Name: "pair.vm02", XML: bytes.ReplaceAll(specs[0].XML, []byte("vm00"), []byte("vm02"))}
		third.XML = bytes.Replace(third.XML, []byte("<uuid>"), []byte("<!-- <uuid>"), 1)
		third.XML = bytes.Replace(third.XML, []byte("</uuid>"), []byte("</uuid> -->"), 1)
		third.XML = bytes.ReplaceAll(third.XML, []byte(boot.Initramfs), []byte("/nonexistent/initramfs"))
		_, err := c.Up(ctx, append(bad, third), UpOptions{Recreate: true})
		if err == nil || !strings.Contains(err.Error(), "start domain pair.vm01: ") || !strings.Contains(err.Error(),
			"start domain pair.vm02: ") ||
			strings.Contains(err.Error(), "lead domain") {
			t.Errorf("got %v", err)
		}
		if _, err := c.Get(ctx, "pair.vm02"); !errors.Is(err, ErrNoDomain) {
			t.Errorf("the new one: %v", err)
		}
		changes, err := c.Compare(ctx, specs)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]Change{{Name: "pair.vm00", Action: Keep}, {Name: "pair.vm01", Action: Keep}},
			changes); diff != "" {
			t.Errorf("the old ones (-want +got):\n%s", diff)
		}
	})

	t.Run("foreign domains stay as they are", func(t *testing.T) {
		taken := Spec{Name: "tenant", XML: bytes.ReplaceAll(specs[0].XML, []byte("<name>pair.vm00"),
			[]byte("<name>tenant"))}
		for what, err := range map[string]error{
			"up":       second(c.Up(ctx, append(slices.Clone(specs), taken), UpOptions{Recreate: true})),
			"down":     c.Down(ctx, []string{"pair.vm00", "tenant"}, 0),
			"start":    c.Start(ctx, "tenant"),
			"shutdown": c.Shutdown(ctx, "tenant", time.Second),
			"destroy":  c.Destroy(ctx, "tenant"),
			"restart":  c.Restart(ctx, "tenant"),
			"undefine": c.Undefine(ctx, "tenant"),
			"agent":    second(c.Agent(ctx, "tenant")),
			"threads":  second(c.Threads(ctx, "tenant")),
		} {
			if !errors.Is(err, ErrForeign) || !strings.Contains(err.Error(), "domain tenant at ") {
				t.Errorf("%s: got %v", what, err)
			}
		}
		if now, err := d.Virsh("dumpxml", "tenant"); err != nil || now != untouched {
			t.Errorf("it has changed: %v\n%s", err, cmp.Diff(untouched, now))
		}
		list, err := c.List(ctx)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, d := range list {
			text := d.Name + " " + string(d.State)
			if d.Node != nil {
				text += " " + d.Node.Lab + "/" + d.Node.Node
			}
			got = append(got, text)
		}
		if diff := cmp.Diff([]string{"pair.vm00 running pair/vm00", "pair.vm01 running pair/vm01", "tenant running"},
			got); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	})

	if err := c.Undefine(ctx, "pair.vm00"); err == nil || !strings.Contains(err.Error(),
		"it is running: destroy it first") {
		t.Errorf("undefine what runs: %v", err)
	}
	if err := c.Shutdown(ctx, "pair.vm00", time.Minute); err != nil {
		t.Error(err)
	}
	if res, err := agents[0].Run(ctx, guest.Command{Argv: []string{"true"}}); err == nil ||
		!strings.Contains(err.Error(), "not running") {
		t.Errorf("the agent of what has ended: %+v, %v", res, err)
	}
	if _, err := c.AwaitAgent(ctx, "pair.vm00"); err == nil || !strings.Contains(err.Error(),
		"wait for the agent of pair.vm00: the domain is shut off") {
		t.Errorf("waiting for it: %v", err)
	}
	if changes, err := c.Compare(ctx, specs); err != nil || changes[0].Action != Boot {
		t.Errorf("what up would do now: %v, %v, want %s", changes, err, Boot)
	}
	for range 2 {
		if err := c.Down(ctx, []string{"pair.vm00", "pair.vm01"}, 0); err != nil {
			t.Fatal(err)
		}
	}
	if list, err := c.List(ctx); err != nil || len(list) != 1 {
		t.Errorf("left: %v, %v", list, err)
	}
	if err := c.uninstall(ctx); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(d.Dir, "pool")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the pool's directory is left: %v", err)
	}
	if pools, err := d.Virsh("pool-list", "--all", "--name"); err != nil || strings.Contains(pools, Pool) {
		t.Errorf("the pool is left: %q, %v", pools, err)
	}
	if err := c.uninstall(ctx); err != nil {
		t.Errorf("nothing is there to uninstall: %v", err)
	}
}

func second[T any](_ T, err error) error { return err }

func hold(t *testing.T, d *libvirttest.Daemon) (release func()) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range all {
		dir := filepath.Dir(path)
		name, _ := os.ReadFile(filepath.Join(dir, "comm"))
		env, _ := os.ReadFile(path)
		if string(name) != "libvirtd\n" || !bytes.Contains(env, []byte("HOME="+d.Dir+"\x00")) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err == nil {
			err = syscall.Kill(pid, syscall.SIGSTOP)
		}
		if err != nil {
			t.Fatal(err)
		}
		release := sync.OnceFunc(func() { _ = syscall.Kill(pid, syscall.SIGCONT) })
		t.Cleanup(release)
		return release
	}
	t.Fatal("no libvirtd runs")
	return nil
}

func TestAConnectionThatEndsCostsOneCall(t *testing.T) {
	d, c := connected(t)
	ctx := limited(t)
	conn := c.conn
	release := hold(t, d)
	asked, errs := make(chan struct{}), make(chan error, 1)
	go func() {
		errs <- second(ask(ctx, c, queryLimit, func(l *api.Libvirt) (string, error) {
			close(asked)
			return l.ConnectGetHostname()
		}))
	}()
	<-asked
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-errs; err == nil || !strings.Contains(err.Error(), "ended before it answered: whether the command was "+
		"carried out is not known") {
		t.Errorf("got %v", err)
	}
	release()
	if _, err := c.List(ctx); err != nil {
		t.Errorf("the next call: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.List(ctx); !errors.Is(err, errClosed) {
		t.Errorf("after Close: %v", err)
	}
}

func TestADaemonThatHangsHoldsNobodyUp(t *testing.T) {
	d, c := connected(t)
	ctx := limited(t)
	release := hold(t, d)
	short, cancel := context.WithTimeoutCause(ctx, 50*time.Millisecond, errors.New("interrupted"))
	defer cancel()
	if _, err := c.List(short); err == nil || !strings.HasSuffix(err.Error(), ": interrupted") {
		t.Errorf("a call whose caller has gone: %v", err)
	}
	if _, err := Connect(short, d.URI); err == nil || !strings.HasSuffix(err.Error(), ": interrupted") {
		t.Errorf("a connection whose caller has gone: %v", err)
	}
	if _, err := ask(ctx, c, time.Millisecond, (*api.Libvirt).ConnectGetHostname); err == nil ||
		!strings.Contains(err.Error(), "no answer from libvirt at "+d.URI+" within 1ms") {
		t.Errorf("a call past its limit: %v", err)
	}
	release()
	if _, err := c.List(ctx); err != nil {
		t.Errorf("once it goes on: %v", err)
	}
}

func TestManyCallsAtOnceGetTheirOwnAnswers(t *testing.T) {
	_, c := connected(t)
	ctx := limited(t)
	var wg sync.WaitGroup
	for i := range 24 {
		wg.Go(func() {
			for k := range 5 {
				name := fmt.Sprintf("none-%d-%d", i, k)
				if _, err := c.Get(ctx, name); !errors.Is(err, ErrNoDomain) || !strings.HasSuffix(err.Error(), name) {
					t.Errorf("%s: got %v", name, err)
				}
			}
		})
	}
	wg.Wait()
}

func TestWhatCannotBeConnectedToSaysWhatToDo(t *testing.T) {
	dir := t.TempDir()
	nobody := filepath.Join(dir, "nobody")
	for _, tt := range []struct{ name, uri, want string }{
		{"no daemon", "qemu+unix:///system?socket=" + nobody, nobody +
			": connect: no such file or directory: start the daemon: systemctl start libvirtd"},
		{"not a URI", "::::", `libvirt URI "::::": want one such as qemu:///system`},
		{"another hypervisor", "xen:///system", `is of hypervisor "xen": rackless runs its nodes on QEMU`},
		{"no path", "qemu+ssh://host", "want it to end in /system or /session"},
		{"nobody listens", "qemu+tcp://127.0.0.1:1/system", "connection refused: start the daemon"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Connect(limited(t), tt.uri)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %s", err, tt.want)
			}
		})
	}
}
