package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rackless/rackless/driver/qemu"
	"github.com/rackless/rackless/guest"
	"github.com/rackless/rackless/image"
	"github.com/rackless/rackless/qapi"
	"github.com/rackless/rackless/vm"
)

// A bench holds what the cases share.
type bench struct {
	bin, tmp, run, cache string
	memory               map[string][]float64 // MiB of each node, by lab
}

func (b *bench) up(ctx context.Context, lab, cache string) (time.Duration, error) {
	return b.rackless(ctx, cache, "up", "examples/"+lab+".yaml")
}

func (b *bench) down(ctx context.Context, lab string) (time.Duration, error) {
	return b.rackless(ctx, b.cache, "down", lab)
}

func (b *bench) cases(kernel string) []*benchCase {
	b.memory = make(map[string][]float64)
	upDown := func(lab string) func(context.Context) (time.Duration, error) {
		return func(ctx context.Context) (time.Duration, error) {
			took, err := b.up(ctx, lab, b.cache)
			if err == nil {
				err = b.weigh(lab)
			}
			_, downErr := b.down(ctx, lab)
			return took, errors.Join(err, downErr)
		}
	}
	cases := []*benchCase{
		{name: "pair", what: "rackless up: two nodes RDMA-ready, image and template cached",
			target: 1500 * time.Millisecond, run: upDown("pair")},
		{name: "sixteen", what: "rackless up: 16 nodes RDMA-ready, every pair has pinged", target: 6 * time.Second,
			run: upDown("sixteen")},
		{name: "sixtyfour", what: "rackless up: 64 nodes RDMA-ready", target: 45 * time.Second,
			run: upDown("sixtyfour")},
		{name: "pair-cold", what: "rackless up: two nodes, image built, no template", target: 8 * time.Second,
			run: b.cold},
		{name: "down-16", what: "rackless down of 16 nodes", target: time.Second,
			run: func(ctx context.Context) (time.Duration, error) {
				if _, err := b.up(ctx, "sixteen", b.cache); err != nil {
					return 0, err
				}
				return b.down(ctx, "sixteen")
			}},
		{name: "host", what: "rackless emulate epyc-7551p --scale 4, 16 CPUs: from its template to the end of a " +
			"command, and gone", run: b.host("epyc-7551p")},
		{name: "host-small", what: "rackless emulate desktop --scale 4, 4 CPUs: from its template to the end of a " +
			"command, and gone", run: b.host("desktop")},
		{name: "host-cold", what: "rackless emulate --cold epyc-7551p --scale 4: GRUB, kernel and systemd until a " +
			"command has ended, and gone", run: b.host("epyc-7551p", "--cold")},
		{name: "host-small-cold", what: "rackless emulate --cold desktop --scale 4, the same",
			run: b.host("desktop", "--cold")},
		{name: "floor-2", what: "two clones resumed by QMP until their agents answer, no RoCE, no checks",
			run: b.floor(2, false)},
		{name: "floor-16", what: "16 clones resumed by QMP until their agents answer, no RoCE, no checks",
			run: b.floor(16, false)},
		{name: "floor-16-rdma", what: "16 clones resumed by QMP and configured at their setup ports, no checks",
			run: b.floor(16, true)},
	}
	if _, err := exec.LookPath("vng"); err == nil && kernel != "" {
		cases = append(cases, &benchCase{name: "vng", peer: true,
			what: "virtme-ng without KVM: one node of the same kernel, without RDMA",
			run:  func(ctx context.Context) (time.Duration, error) { return vng(ctx, kernel) }})
	} else {
		fmt.Println("# no comparison with virtme-ng: pip install virtme-ng, and give --vng-kernel")
	}
	return cases
}

// host times a command in an emulated host that is there for it alone.
func (b *bench) host(profile string, flags ...string) func(context.Context) (time.Duration, error) {
	return func(ctx context.Context) (time.Duration, error) {
		args := append([]string{"emulate", profile, "--scale", "4", "-n"}, flags...)
		return b.rackless(ctx, b.cache, append(args, "--", "true")...)
	}
}

// cold times a start with a cache that has the image and no template.
func (b *bench) cold(ctx context.Context) (time.Duration, error) {
	cache, err := os.MkdirTemp(b.tmp, "cold")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(cache)
	for _, shared := range []string{"images", "kvm-probe.json"} { // the probe is made once a boot of the host
		target := filepath.Join(b.cache, shared)
		if _, err := os.Stat(target); err != nil {
			continue
		}
		if err := os.Symlink(target, filepath.Join(cache, shared)); err != nil {
			return 0, err
		}
	}
	took, err := b.up(ctx, "pair", cache)
	_, downErr := b.down(ctx, "pair")
	return took, errors.Join(err, downErr)
}

// weigh notes how much memory each node of a running lab takes, shared pages divided by those who share them.
func (b *bench) weigh(lab string) error {
	procs, err := vm.ProcessesUsing("qemu-system", filepath.Join(b.run, lab)+"/")
	if err != nil {
		return err
	}
	// Memory hardly differs between runs, so that those of one are enough.
	b.memory[lab] = b.memory[lab][:0] // of the last run
	for _, p := range procs {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", p.PID))
		if err != nil {
			return err
		}
		sc := bufio.NewScanner(bytes.NewReader(data))
		for sc.Scan() {
			if v, ok := strings.CutPrefix(sc.Text(), "Pss:"); ok {
				kib, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(v), " kB"), 64)
				if err != nil {
					return err
				}
				b.memory[lab] = append(b.memory[lab], kib/1024)
			}
		}
	}
	return nil
}

// floor resumes n clones of the template that up uses, all at once, with nothing around them: no
// switch, no state, no checks.
func (b *bench) floor(n int, configure bool) func(context.Context) (time.Duration, error) {
	return func(ctx context.Context) (time.Duration, error) {
		binary, version, err := vm.Find()
		if err != nil {
			return 0, err
		}
		img, err := image.Node.Ensure(ctx, image.Options{Cache: filepath.Join(b.cache, "images")})
		if err != nil {
			return 0, err
		}
		d := &qemu.Driver{Binary: binary, Version: version, Accel: "tcg", Image: img,
			Cache: filepath.Join(b.cache, "templates")}
		dir, err := os.MkdirTemp(b.tmp, "f")
		if err != nil {
			return 0, err
		}
		defer os.RemoveAll(dir)
		spec := func(i int) qemu.Spec {
			return qemu.Spec{Lab: "floor", Name: fmt.Sprintf("vm%02d", i), Dir: filepath.Join(dir, strconv.Itoa(i)),
				CPUs: 1, Memory: 256 << 20,
				NICs: []qemu.NIC{{MAC: fmt.Sprintf("52:54:00:00:00:%02x", i+1)}}}
		}
		if err := d.Prepare(ctx, spec(0), func(string) {}); err != nil {
			return 0, err
		}
		// The clock starts here: what is made ready above, up has ready as well.
		nodes := make([]*qemu.Node, n)
		errs := make([]error, n)
		began := time.Now()
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() { nodes[i], errs[i] = resume(ctx, d, spec(i), i, configure) })
		}
		wg.Wait()
		took := time.Since(began)
		for _, node := range nodes {
			if node != nil {
				errs = append(errs, node.Setup.Close(), node.Process.Kill(ctx))
			}
		}
		return took, errors.Join(errs...)
	}
}

// resume starts one clone and waits until it has run code of its own.
func resume(ctx context.Context, d *qemu.Driver, s qemu.Spec, i int, configure bool) (*qemu.Node, error) {
	node, err := d.Start(ctx, s)
	if err != nil {
		return nil, err
	}
	if configure {
		nic := guest.NIC{Device: "eth0", MAC: s.NICs[0].MAC,
			Addr: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}), 24)}
		id := guest.Identity{Name: s.Name, MachineID: guest.NewMachineID(), MTU: 4200, NICs: []guest.NIC{nic}}
		_, err = guest.NewSetup(node.Setup).Configure(ctx, id)
		return node, err
	}
	agent, err := qapi.DialAgent(ctx, node.Agent)
	if err != nil {
		return node, err
	}
	return node, agent.Close()
}

// vng times virtme-ng from its start to the end of a command in the guest.
func vng(ctx context.Context, kernel string) (time.Duration, error) {
	began := time.Now()
	// it prints nothing where there is no terminal, but for --verbose
	cmd := exec.CommandContext(ctx, "vng", "--run", kernel, "--disable-kvm", "--memory", "512M", "--cpus", "1",
		"--verbose", "--", "uname -r")
	// Its status is 255 where it has no terminal, though the command ran: what counts is that the
	// command printed the version in a line of its own.
	out, err := cmd.CombinedOutput()
	took := time.Since(began)
	version := strings.TrimPrefix(filepath.Base(kernel), "vmlinuz-")
	for line := range strings.Lines(string(out)) {
		if strings.TrimSpace(line) == version {
			return took, nil
		}
	}
	return 0, fmt.Errorf("vng did not run the command: %w: ...%s", err, out[max(0, len(out)-300):])
}
