package rack

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/rackless/rackless/driver/qemu"
	"github.com/rackless/rackless/lab"
)

const sigKill = syscall.SIGKILL

// nodeOverhead is the host memory that a QEMU takes besides the guest's own: measured 24 to 40 MiB
// a clone under TCG, translated code included.
const nodeOverhead = 40 * lab.MiB

// fits checks that the memory of the nodes that are to be started is there, in the worst case that
// every guest touches all of its own.
func fits(name string, start []lab.Node) error {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return err
	}
	available, err := memAvailable(b)
	if err != nil {
		return err
	}
	return fitsIn(name, start, available)
}

func fitsIn(name string, start []lab.Node, available lab.Bytes) error {
	var want lab.Bytes
	for _, n := range start {
		want += n.Memory + nodeOverhead
	}
	if want <= available {
		return nil
	}
	each := want / lab.Bytes(len(start))
	return fmt.Errorf("lab %s: %d nodes of %v on average (their memory and %v each for QEMU) need %.1f GiB; this "+
		"machine has %.1f GiB available, room for %d: "+
		"have fewer nodes, lower memory:, or say --overcommit (idle nodes touch far less than their memory)",
		name, len(start), each, nodeOverhead, gib(want), gib(available), int(available/each))
}

func gib(b lab.Bytes) float64 { return float64(b) / float64(lab.GiB) }

// memAvailable reads MemAvailable of /proc/meminfo: what can be used without swapping, by the kernel's own estimate.
func memAvailable(meminfo []byte) (lab.Bytes, error) {
	sc := bufio.NewScanner(bytes.NewReader(meminfo))
	for sc.Scan() {
		if v, ok := strings.CutPrefix(sc.Text(), "MemAvailable:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(v), " kB"), 10, 64)
			if err != nil {
				return 0, fmt.Errorf("/proc/meminfo: %q: %w", sc.Text(), err)
			}
			return lab.Bytes(kib) * lab.KiB, nil
		}
	}
	return 0, fmt.Errorf("/proc/meminfo: no MemAvailable")
}

// accelerator decides what executes the guests' instructions, and says why it is not KVM. What a
// trial boot found is kept in dir.
func accelerator(ctx context.Context, d *qemu.Driver, want, dir string) (accel, reason string, err error) {
	switch want {
	case "tcg":
		return "tcg", "asked for", nil
	case "kvm", "auto", "":
	default:
		return "", "", fmt.Errorf("accelerator %q: want auto, kvm or tcg", want)
	}
	usable, reason, err := d.ProbeKVM(ctx, dir)
	if err != nil {
		return "", "", err
	}
	if usable {
		return "kvm", "", nil
	}
	if want == "kvm" {
		return "", "", fmt.Errorf("KVM was asked for but cannot be used: %s", reason)
	}
	return "tcg", reason, nil
}
