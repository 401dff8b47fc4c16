package checks

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/finding"
)

// BytesProgram moves bytes between the memory of GPUs and NICs; its own text says how it is called.
//
//go:embed dmabuf.py
var BytesProgram string

const (
	bytesPort  = 18730 // of a node's first GPU
	bytesSize  = 1 << 20
	bytesLimit = 2 * time.Minute // for one GPU: Python alone takes seconds when emulated
	// clientLeft lets a client give its reason after its server.
	clientLeft = 5 * time.Second
	// maxKernelMessage is long enough for the kernel's refusal of DMA between two devices, which names both.
	maxKernelMessage = 240 // characters
	// refusedDMA is in that refusal.
	refusedDMA    = "peer-to-peer DMA"
	fixRefusedDMA = "path: pix in the lab file: the node's kernel lets DMA between devices pass only host bridges " +
		"that it knows (drivers/pci/p2pdma.c)"
)

// gpuBytes lets a NIC of the next node write to the memory of each GPU and read it back, and the GPU's own node compare
// the bytes. Nodes without Python are left out.
func gpuBytes(ctx context.Context, l *lab.Lab, gpus []gpuState, known []finding.Finding, r Reader) []finding.Finding {
	perNode := make([][]finding.Finding, len(l.Nodes))
	able := slices.DeleteFunc(slices.Clone(l.Nodes), func(n lab.Node) bool {
		return !n.ConnectX() || len(n.NICs) == 0 || !n.HasDisk()
	})
	parallel(len(l.Nodes), func(i int) {
		for _, s := range gpus {
			n := l.Nodes[i]
			k := slices.IndexFunc(able, func(other lab.Node) bool { return other.Name == n.Name })
			if s.Node != n.Name || k < 0 || ctx.Err() != nil {
				continue
			}
			c := bytesCheck{lab: l, gpu: s, server: n, client: able[(k+1)%len(able)], r: r}
			if f, ok := c.finding(ctx, known); ok {
				perNode[i] = append(perNode[i], f)
			}
		}
	})
	return slices.Concat(perNode...)
}

type bytesCheck struct {
	lab            *lab.Lab
	gpu            gpuState
	server, client lab.Node
	r              Reader
}

func (c *bytesCheck) finding(ctx context.Context, known []finding.Finding) (f finding.Finding, ok bool) {
	f = finding.Finding{ID: IDGPUBytes, Subject: c.gpu.subject() + " <- " + c.client.Name, Status: finding.OK,
		Want:     "the bytes that were written",
		Evidence: "in the nodes: ibv_reg_dmabuf_mr of memory of the GPU, RDMA writes and reads, and a look by the CPU"}
	outcome := func(status finding.Status, have, fix string) (finding.Finding, bool) {
		f.Status, f.Have, f.Fix = status, have, fix
		return f, true
	}
	const fixUnread = "rackless ls shows whether the nodes run"
	// NICs of one number are on one network.
	i := slices.IndexFunc(c.server.NICs, func(nic lab.NIC) bool { return nic.Name == c.gpu.Beside })
	if i < 0 || i >= len(c.client.NICs) {
		return f, false
	}
	for n, dev := range map[*lab.Node]string{&c.server: c.server.NICs[i].Name, &c.client: c.client.NICs[i].Name} {
		if why, bad := obstacle(known, *n, dev); bad {
			return outcome(finding.Unknown, fmt.Sprintf("not sent: %s: %s: %s", why.Subject, cmp.Or(why.Title, why.ID),
				why.Have), why.Fix)
		}
	}
	far, err := c.farDevice(ctx, c.client.NICs[i].Name)
	nic := c.gpu.nic()
	switch {
	case err != nil:
		return outcome(finding.Unknown, err.Error(), fixUnread)
	case far == "" || nic == nil || nic.rdma == "-":
		return outcome(finding.Unknown, "not sent: no RDMA device", "rackless verify --only rdma-port says why")
	}
	late := fmt.Errorf("no end within %v", bytesLimit)
	limited, cancel := context.WithTimeoutCause(ctx, bytesLimit, late)
	defer cancel()
	start := time.Now()
	said, err := c.exchange(limited, nic.rdma, far, c.server.NICs[i].Addr.Addr().String())
	switch {
	case errors.Is(err, errNoPython):
		return f, false
	case err != nil && ctx.Err() == nil && errors.Is(context.Cause(limited), late):
		return outcome(finding.Failed, late.Error(), c.fix())
	case err != nil:
		return outcome(finding.Unknown, err.Error(), fixUnread)
	case said != "":
		f.Consequence = "GPUDirect RDMA with this GPU fails"
		f.Evidence += "; cause, by rackless gpu ls: " + c.gpu.text()
		line := c.kernel(ctx, time.Since(start))
		if line != "" {
			f.Evidence += "; dmesg: " + line
		}
		if strings.Contains(line, refusedDMA) {
			return outcome(finding.Failed, said, fixRefusedDMA)
		}
		return outcome(finding.Failed, said, c.fix())
	}
	f.Have = fmt.Sprintf("%d KiB written and read by %s of %s by way of %s, and compared", bytesSize>>10, far,
		c.client.Name, nic.rdma)
	return f, true
}

func (c *bytesCheck) fix() string {
	return cmp.Or(c.gpu.clear(c.lab), "rackless logs --daemon "+c.lab.Name+" and dmesg in the node say what failed")
}

func (c *bytesCheck) farDevice(ctx context.Context, netdev string) (string, error) {
	out, err := c.r.Exec(ctx, c.client.Name, []string{"sh", "-c", "ls /sys/class/net/" + netdev +
		"/device/infiniband 2>/dev/null | head -n 1"})
	return strings.TrimSpace(string(out.Stdout)), err
}

// kernel returns the first message of the node's driver of GPUs within a time from now back, or the refusal of DMA
// between the GPU and its NIC, which the kernel logs only once.
func (c *bytesCheck) kernel(ctx context.Context, since time.Duration) string {
	out, err := c.r.Exec(ctx, c.server.Name, []string{"sh", "-c",
		"read -r u _ </proc/uptime; echo $u; dmesg | grep -F -e '[virtio_gpu]' -e '" + refusedDMA + "' | tail -n 8"})
	if err != nil {
		return ""
	}
	first, rest, _ := strings.Cut(string(out.Stdout), "\n")
	now, err := strconv.ParseFloat(first, 64)
	for line := range strings.Lines(rest) {
		stamp, _, ok := strings.Cut(strings.TrimPrefix(line, "["), "]")
		at, notTime := strconv.ParseFloat(strings.TrimSpace(stamp), 64)
		recent := ok && err == nil && notTime == nil && at > now-since.Seconds()-1
		if recent || c.refuses(line) {
			text := []rune(strings.TrimSpace(line))
			return string(text[:min(len(text), maxKernelMessage)])
		}
	}
	return ""
}

// refuses reports whether a message of the node's kernel refuses DMA between the GPU and its NIC.
func (c *bytesCheck) refuses(line string) bool {
	nic := c.gpu.nic()
	return nic != nil && strings.Contains(line, refusedDMA) && strings.Contains(line, nic.pci.String()) &&
		strings.Contains(line, c.gpu.seen.pci.String())
}

var errNoPython = errors.New("no Python")

func (c *bytesCheck) exchange(ctx context.Context, near, far, addr string) (said string, err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	port := "DMABUF_PORT=" + strconv.Itoa(bytesPort+c.gpu.Number)
	run := func(node, device string, args ...string) (bench.Output, error) {
		return c.r.Exec(ctx, node, append([]string{"env", port, "DMABUF_DEVICE=" + device, "python3", "-c",
			BytesProgram},
			args...))
	}
	var server, client bench.Output
	var serverErr, clientErr error
	var wg sync.WaitGroup
	clientEnds := make(chan struct{})
	wg.Go(func() {
		server, serverErr = run(c.server.Name, near, "serve", c.gpu.memory(), strconv.Itoa(bytesSize))
		if serverErr != nil || server.ExitCode != 0 {
			select {
			case <-clientEnds:
			case <-time.After(clientLeft): // it may wait for the server
				stop()
			}
		}
	})
	client, clientErr = run(c.client.Name, far, "client", addr)
	close(clientEnds)
	if clientErr != nil || client.ExitCode == noPython {
		stop()
	}
	wg.Wait()
	switch {
	case server.ExitCode == noPython || client.ExitCode == noPython:
		return "", errNoPython
	case clientErr == nil && client.ExitCode != 0: // its error caused the server's
		return c.client.Name + ": " + failure(client), nil
	case serverErr == nil && server.ExitCode != 0:
		return c.server.Name + ": " + failure(server), nil
	}
	if errors.Is(clientErr, context.Canceled) && serverErr != nil { // the server failed first
		return "", serverErr
	}
	return "", cmp.Or(clientErr, serverErr)
}

// noPython is env's exit status for a missing program.
const noPython = 127

var completionStatus = regexp.MustCompile(`status ([0-9]+)$`)

// failure names the status of a completion.
func failure(o bench.Output) string {
	last := lastLine(string(o.Stdout))
	if text, ok := strings.CutPrefix(last, "FAILED: "); ok {
		if m := completionStatus.FindStringSubmatch(text); m != nil {
			number, _ := strconv.Atoi(m[1]) // digits
			if code, ok := finding.FindCode(finding.CompletionStatus, number); ok {
				text += " (" + code.Short + ")"
			}
		}
		return text
	}
	return fmt.Sprintf("exit status %d%s", o.ExitCode, said(o.Stderr, o.Stdout))
}
