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

// nvidiaProc is what the driver says of itself and of each GPU. It is readable by everybody and
// answers while nvidia-smi hangs.
const nvidiaProc = "proc/driver/nvidia"

// readNVIDIA reads what NVIDIA's driver says: in /proc, and through nvidia-smi where there are commands.
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

const nvidiaVendor = "NVIDIA Corporation" // as pci.ids has it

// parseNVRM finds the driver's version in the first line of its version file, and whether it is the
// open kernel module. Before the version stands the architecture, which can have digits too; behind
// it a date.
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

// nvidiaDMABuf reports whether the driver can lend GPU memory to an RDMA device as a dma-buf; nil
// where that is not known. Only the open kernel module does, from release 515, and it needs Linux
// 5.12 or a kernel into which that was ported back: the release does not tell.
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

// atLeast reports whether a version starts with numbers of at least major.minor.
func atLeast(version string, major, minor int) bool {
	first, rest, _ := strings.Cut(version, ".")
	second, _, _ := strings.Cut(rest, ".")
	a, errA := strconv.Atoi(first)
	b, errB := strconv.Atoi(second)
	return errA == nil && (a > major || a == major && errB == nil && b >= minor)
}

// readInformation reads the file "information" of a GPU: lines of "Key: <tab> value". A GPU that
// nobody has used yet, or that is lost, has question marks where the driver does not know.
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
				g.Name = "nvidia" + strconv.FormatUint(n, 10) // as the device file is called
			}
		}
	}
}

// readNUMAStatus reads the NUMA node that a GPU's memory is, on machines where the CPU reaches it
// coherently (POWER9, Grace). The size is hexadecimal without 0x.
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

// Fields of nvidia-smi --query-gpu. One that a release does not know fails the whole query, so
// newer fields are asked for first, and left out if that fails: compute_cap came with release 510,
// mig.mode.current with 450. What PCI knows better (links, BARs) is not asked.
var (
	oldFields = []string{"index", "pci.bus_id", "name", "uuid", "memory.total", "driver_version", "vbios_version",
		"persistence_mode"}
	newFields = append(slices.Clip(oldFields), "mig.mode.current", "compute_cap")
)

// queryNVIDIA reads what nvidia-smi says of each GPU. It reports whether the tool answered.
func (r *reader) queryNVIDIA(found gpus) bool {
	for _, fields := range [][]string{newFields, oldFields} {
		argv := []string{"nvidia-smi", "--query-gpu=" + strings.Join(fields, ","), "--format=csv,noheader,nounits"}
		out, err := r.output(argv...)
		// The complaint about a field comes on the standard output, with an exit status that has
		// not always been an error.
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

// parseGPUQuery parses the output of nvidia-smi --query-gpu with --format=csv,noheader,nounits: a
// line for each GPU, the fields in the order asked for, memory in MiB. Values that it does not know
// or that a GPU does not have are in brackets: "[N/A]", "[Not Supported]". GPUs before a line that
// is wrong are returned with the error.
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

// setGPUField puts a value of the query into g.
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

// countNVLinks reads how many NVLinks of each GPU are in use. It reports whether the tool still answers.
func (r *reader) countNVLinks(found gpus) bool {
	argv := []string{"nvidia-smi", "nvlink", "--status"}
	out, err := r.output(argv...)
	if errors.Is(err, errHangs) {
		r.commandFailed(err, nil, argv...)
		return false
	}
	if err != nil {
		return true // GPUs without NVLink make it fail
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

// readMatrix reads the matrix of nvidia-smi topo -m: what it says of paths goes into Host.Reported,
// by the IDs that GPUs and NICs have here.
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
	ids := map[string]string{} // of the matrix to ours
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
	seen := map[[2]string]bool{} // two RDMA devices, each with a column, may be one NIC
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

// hasRDMA reports whether the NIC has the RDMA device.
func hasRDMA(n *topology.NIC, device string) bool {
	return slices.ContainsFunc(n.Devices, func(d topology.RDMADevice) bool { return d.Name == device })
}

// commandTime is how long a command may take. nvidia-smi needs seconds where no persistence daemon
// keeps the driver loaded.
const commandTime = 10 * time.Second

// errHangs is the error of a command that does not end.
var errHangs = errors.New("no answer within " + commandTime.String())

// A runFunc runs a command and returns what it printed: see Source.Run.
type runFunc = func(ctx context.Context, argv ...string) ([]byte, error)

// output runs a command and returns what it printed.
func (r *reader) output(argv ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(r.ctx, commandTime, errHangs)
	defer cancel()
	return runUntil(ctx, r.run, argv)
}

// runUntil runs a command until ctx ends. It does not wait for one that hangs: a process that is stuck
// in a driver cannot be killed.
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

// commandFailed notes that a command did not say what it was asked, unless it is not there at all.
// What it printed may say why.
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
