package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rackless/rackless/machine/dump/smi"
	"github.com/rackless/rackless/machine/dump/texts"
	"github.com/rackless/rackless/machine/dump/where"
	"github.com/rackless/rackless/machine/topology"
)

// nvidiaProc is world-readable and works even if nvidia-smi hangs.
const nvidiaProc = "proc/driver/nvidia"

func (r *reader) readNVIDIA(found gpus) {
	version, open := parseNVRM(r.word(nvidiaProc + "/version"))
	dmaBuf := nvidiaDMABuf(version, open, r.h.Kernel.Release)
	version = cmp.Or(version, r.word("sys/module/nvidia/version"))
	names := r.dir(nvidiaProc + "/gpus")
	for _, name := range names {
		a, err := topology.ParsePCIAddr(name)
		if err != nil {
			r.unread(nvidiaProc+"/gpus/"+name, err.Error())
			continue
		}
		g := found.at(a)
		g.Vendor, g.DriverVer, g.DMABuf = nvidiaVendor, version, dmaBuf
		p := nvidiaProc + "/gpus/" + name
		readInformation(g, r.word(p+"/information"))
		r.readNUMAStatus(g, p+"/numa_status")
	}
	if r.run == nil || len(names) == 0 && version == "" && !r.exists("sys/module/nvidia") {
		return
	}
	if r.queryNVIDIA(found) && r.countNVLinks(found) {
		r.readMatrix(found)
	}
}

const nvidiaVendor = "NVIDIA Corporation" // as in pci.ids

// parseNVRM finds the driver's version, and whether it is the open kernel module. Before the version is the
// architecture, which may contain digits; after it a date.
//
//	NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.12  Wed Sep 20 09:35:17 UTC 2023
//	NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.14  Release Build  (...)  Thu Feb 22 ...
func parseNVRM(s string) (version string, open bool) {
	line, _, _ := strings.Cut(s, "\n")
	line, ok := strings.CutPrefix(line, "NVRM version:")
	if !ok {
		return "", false
	}
	for word := range strings.FieldsSeq(line) {
		if strings.Contains(word, ".") && strings.Trim(word, "0123456789.") == "" && strings.Trim(word, ".") == word {
			return word, strings.Contains(line, "Open Kernel Module")
		}
	}
	return "", false
}

// nvidiaDMABuf reports whether the driver can lend GPU memory as a dma-buf, or nil. Only the open kernel module can,
// from release 515, with Linux 5.12 or an older kernel with a backport, which its release does not reveal.
//
// Source: "GPUDirect RDMA", section on dma-buf, of the GPU operator's documentation.
func nvidiaDMABuf(version string, open bool, kernel string) *bool {
	switch {
	case version == "":
		return nil
	case !open:
		return new(false)
	case atLeast(version, 515, 0) && atLeast(kernel, 5, 12):
		return new(true)
	default:
		return nil
	}
}

func atLeast(version string, major, minor int) bool {
	first, rest, _ := strings.Cut(version, ".")
	second, _, _ := strings.Cut(rest, ".")
	a, errA := strconv.Atoi(first)
	b, errB := strconv.Atoi(second)
	return errA == nil && (a > major || a == major && errB == nil && b >= minor)
}

// readInformation skips the question marks of a GPU that is lost or unused since boot.
func readInformation(g *topology.GPU, s string) {
	for line := range strings.Lines(s) {
		key, value, ok := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		if !ok || value == "" || strings.Contains(value, "??") {
			continue
		}
		switch strings.TrimSpace(key) {
		case "Model":
			if value != "Unknown" {
				g.Model = value
			}
		case "GPU UUID":
			g.UUID = value
		case "Video BIOS":
			g.VBIOS = value
		case "Device Minor":
			if n, err := strconv.ParseUint(value, 10, 16); err == nil {
				g.Name = "nvidia" + strconv.FormatUint(n, 10) // name of the device file
			}
		}
	}
}

// readNUMAStatus is for coherent memory (POWER9, Grace). The size is hexadecimal without 0x.
func (r *reader) readNUMAStatus(g *topology.GPU, p string) {
	text := r.word(p)
	if n, ok := parseNUMAStatus(text); ok {
		g.MemoryNode = &n
	}
	size, _ := lineAfter(text, "Size:")
	if n, err := strconv.ParseUint(size, 16, 64); err == nil && n > 0 {
		g.MemoryBytes = &n
	}
}

// One unknown field fails the whole query of nvidia-smi, so newer fields are left out if it fails: compute_cap came
// with release 510, mig.mode.current with 450. Links and BARs come from PCI.
var (
	oldFields = []string{"index", "pci.bus_id", "name", "uuid", "memory.total", "driver_version", "vbios_version",
		"persistence_mode"}
	newFields = append(slices.Clip(oldFields), "mig.mode.current", "compute_cap")
)

// queryNVIDIA reports whether the tool answered.
func (r *reader) queryNVIDIA(found gpus) bool {
	for _, fields := range [][]string{newFields, oldFields} {
		argv := []string{"nvidia-smi", "--query-gpu=" + strings.Join(fields, ","), "--format=csv,noheader,nounits"}
		out, err := r.output(argv...)
		// The error is on standard output, and older releases exit with status 0.
		if strings.Contains(string(out), "is not a valid field") && len(fields) > len(oldFields) {
			continue
		}
		if err != nil {
			r.commandFailed(err, out, argv...)
			return false
		}
		all, err := parseGPUQuery(string(out), fields)
		if err != nil {
			r.commandFailed(err, nil, argv...)
		}
		for i := range all {
			q := &all[i]
			g := found.at(*q.Address)
			g.Index = q.Index
			g.Vendor = nvidiaVendor
			g.Model = cmp.Or(q.Model, g.Model)
			g.UUID = cmp.Or(q.UUID, g.UUID)
			g.MemoryBytes = cmp.Or(q.MemoryBytes, g.MemoryBytes)
			g.DriverVer = cmp.Or(q.DriverVer, g.DriverVer)
			g.VBIOS = cmp.Or(q.VBIOS, g.VBIOS)
			g.PersistMode, g.MIG, g.ComputeArch = q.PersistMode, q.MIG, q.ComputeArch
		}
		return len(all) > 0
	}
	return false
}

// parseGPUQuery parses nvidia-smi --query-gpu with --format=csv,noheader,nounits, with memory in MiB. Unknown values
// are in brackets: "[N/A]". With an error it returns the GPUs before the wrong line.
func parseGPUQuery(s string, fields []string) ([]topology.GPU, error) {
	var out []topology.GPU
	number := 0
	for line := range strings.Lines(s) {
		number++
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "No devices were found") {
			continue
		}
		values := strings.Split(line, ",")
		if len(values) != len(fields) {
			return out, fmt.Errorf("line %d: %q has %d fields; %d were asked for", number, where.Clip(line),
				len(values), len(fields))
		}
		var g topology.GPU
		for i, v := range values {
			v = strings.TrimSpace(v)
			if v == "" || v[0] == '[' || v == "N/A" {
				continue
			}
			if err := setGPUField(&g, fields[i], v); err != nil {
				return out, fmt.Errorf("line %d: %s: %w", number, fields[i], err)
			}
		}
		if g.Address == nil {
			return out, fmt.Errorf("line %d: %q has no PCI address", number, where.Clip(line))
		}
		out = append(out, g)
	}
	return out, nil
}

func setGPUField(g *topology.GPU, field, v string) error {
	if text := map[string]*string{"name": &g.Model, "uuid": &g.UUID, "driver_version": &g.DriverVer,
		"vbios_version": &g.VBIOS, "mig.mode.current": &g.MIG}[field]; text != nil {
		*text = v
	}
	switch field {
	case "index":
		n, err := strconv.ParseUint(v, 10, 16)
		if err != nil {
			return fmt.Errorf("%q is not the number of a GPU", where.Clip(v))
		}
		g.Index = new(int(n))
	case "pci.bus_id":
		a, err := topology.ParsePCIAddr(v)
		if err != nil {
			return err
		}
		g.Address = &a
	case "memory.total":
		n, err := strconv.ParseUint(v, 10, 43) // MiB
		if err != nil {
			return fmt.Errorf("%q is not a number of MiB", where.Clip(v))
		}
		g.MemoryBytes = new(n << 20)
	case "persistence_mode":
		g.PersistMode = new(v == "Enabled")
	case "compute_cap": // "9.0"
		g.ComputeArch = "sm_" + strings.ReplaceAll(v, ".", "")
	}
	return nil
}

// countNVLinks reports whether the tool still answers.
func (r *reader) countNVLinks(found gpus) bool {
	argv := []string{"nvidia-smi", "nvlink", "--status"}
	out, err := r.output(argv...)
	if errors.Is(err, errHangs) {
		r.commandFailed(err, nil, argv...)
		return false
	}
	if err != nil {
		return true // fails without NVLink
	}
	links := texts.NVLinks(string(out))
	for _, g := range found {
		if g.Index == nil {
			continue
		}
		if n, ok := links[*g.Index]; ok {
			g.NVLinks = &n
		}
	}
	return true
}

// readMatrix puts paths into Host.Reported, with the Host's IDs.
func (r *reader) readMatrix(found gpus) {
	argv := []string{"nvidia-smi", "topo", "-m"}
	out, err := r.output(argv...)
	if err != nil {
		r.commandFailed(err, out, argv...)
		return
	}
	matrix, err := smi.Parse(out, "nvidia-smi topo -m")
	if err != nil {
		r.commandFailed(err, nil, argv...)
		return
	}
	ids := map[string]string{} // by the matrix's IDs
	for i := range matrix.GPUs {
		m := &matrix.GPUs[i]
		for _, g := range found {
			if m.Index == nil || g.Index == nil || *m.Index != *g.Index {
				continue
			}
			ids[m.ID()] = g.ID()
			g.CPUAffinity = m.CPUAffinity
			g.MemoryNode = cmp.Or(g.MemoryNode, m.MemoryNode)
			g.NVLinks = cmp.Or(g.NVLinks, m.NVLinks)
		}
	}
	for i := range matrix.NICs {
		m := &matrix.NICs[i]
		for j := range r.h.NICs {
			if len(m.RDMA) == 1 && hasRDMA(&r.h.NICs[j], m.RDMA[0]) {
				ids[m.ID()] = r.h.NICs[j].ID()
			}
		}
	}
	seen := map[[2]string]bool{} // two RDMA devices may be one NIC
	for _, p := range matrix.Reported {
		a, okA := ids[p.A]
		b, okB := ids[p.B]
		if !okA || !okB || a == b || seen[[2]string{a, b}] {
			continue
		}
		seen[[2]string{a, b}], seen[[2]string{b, a}] = true, true
		p.A, p.B = a, b
		r.h.Reported = append(r.h.Reported, p)
	}
	r.h.Unread = append(r.h.Unread, matrix.Unread...)
}

func hasRDMA(n *topology.NIC, device string) bool {
	return slices.ContainsFunc(n.Devices, func(d topology.RDMADevice) bool { return d.Name == device })
}

// nvidia-smi needs seconds if no persistence daemon keeps the driver loaded.
const commandTime = 10 * time.Second

var errHangs = errors.New("no answer within " + commandTime.String())

// A runFunc is as in Source.Run.
type runFunc = func(ctx context.Context, argv ...string) ([]byte, error)

func (r *reader) output(argv ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(r.ctx, commandTime, errHangs)
	defer cancel()
	return runUntil(ctx, r.run, argv)
}

// runUntil does not wait for a hanging command, because a process stuck in a driver cannot be killed.
func runUntil(ctx context.Context, run runFunc, argv []string) (out []byte, err error) {
	done := make(chan struct{})
	var printed []byte
	var failed error
	go func() {
		defer close(done)
		printed, failed = run(ctx, argv...)
	}()
	select {
	case <-done:
		if failed != nil && ctx.Err() != nil {
			failed = context.Cause(ctx)
		}
		return printed, failed
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// commandFailed ignores missing commands. The reason may be in the output.
func (r *reader) commandFailed(err error, out []byte, argv ...string) {
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	why := err.Error()
	if line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n"); line != "" {
		why += ": " + strconv.Quote(where.Clip(strings.TrimSpace(line)))
	}
	r.h.Unread = append(r.h.Unread, topology.Unread{Path: strings.Join(argv, " "), Why: why})
}
