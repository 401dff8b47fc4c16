package inspect

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/lazyregexp"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/machine/dump/esxi"
	"github.com/rackless/rackless/machine/dump/hwlocxml"
	"github.com/rackless/rackless/machine/dump/lspci"
	"github.com/rackless/rackless/machine/dump/nccl"
	"github.com/rackless/rackless/machine/dump/smi"
	"github.com/rackless/rackless/machine/dump/texts"
	"github.com/rackless/rackless/machine/dump/where"
	"github.com/rackless/rackless/machine/dump/xmltree"
	"github.com/rackless/rackless/machine/inspect/tree"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/machine/topology/compare"
)

// Kinds that are also whole machines, or that the machine reader reads.
var (
	kindHostJSON = &texts.Kind{Name: "JSON of rackless inspect", Key: "pci", Parse: parseHostJSON}
	kindLspci    = &texts.Kind{Name: "lspci", Heads: []string{""}, Hints: []string{":", "roup "}, Parse: lspci.Parse,
		Command: texts.Command(`lspci(?:.* -\w*s ?((?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[01][0-9a-f]\.[0-7]))?`),
		Form:    lspci.Line}
	kindSMI = &texts.Kind{Name: "nvidia-smi topo -m", Heads: []string{"GPU", "NIC"}, Parse: smi.Parse,
		Form:    lazyregexp.New(`^(?:GPU|NIC)[0-9]+\s.*(?:CPU\s+Affinity|\s(?:X|NV[0-9]+|PIX|PXB|PHB|NODE|SYS|SOC)\s)`),
		Command: texts.Command(`nvidia-smi topo`)}
	kindESXi   = &texts.Kind{Name: "host of vSphere (govc object.save)", Parse: esxi.Parse}
	kindHwloc  = &texts.Kind{Name: "hwloc XML", Element: "topology", Parse: hwlocxml.Parse}
	kindLstopo = &texts.Kind{Name: "lstopo", Heads: []string{"Machine", "System"}, Form: hwlocxml.ConsoleLine,
		Parse: hwlocxml.ParseConsole, Command: texts.Command(`(?:lstopo|lstopo-no-graphics|hwloc-ls)(?: .*)?`)}
	kindNCCL   = &texts.Kind{Name: "NCCL topology XML", Element: "system", Parse: nccl.Parse}
	kindDomain = &texts.Kind{Name: "domain XML", Element: "domain", Many: true, Parse: parseDomainText,
		Fragments: []string{"vcpu", "cputune", "vcpupin", "numatune", "memoryBacking", "hostdev"},
		More: append([]string{"emulatorpin", "name", "memory", "currentMemory", "iothreads", "cpu", "devices"},
			partsOfDevices...)}
	kindCmdline = &texts.Kind{Name: "/proc/cmdline", Parse: procFile("proc/cmdline"),
		Command: texts.Command(`cat /proc/cmdline`),
		Heads:   []string{"BOOT_IMAGE=", "root=", "initrd=", "["}, Form: lazyregexp.New(
			`^(?:\[ *[\d.]+\] (?:Kernel c|C)ommand line: )?(?:BOOT_IMAGE|root|initrd)=\S+(?: |$)`)}
	kindCPUInfo = &texts.Kind{Name: "/proc/cpuinfo", Parse: procFile("proc/cpuinfo"),
		Command: texts.Command(`cat /proc/cpuinfo`),
		Heads:   []string{"processor"}, Form: lazyregexp.New(`^processor\s*: 0$`)}
	kindMeminfo = &texts.Kind{Name: "/proc/meminfo", Parse: procFile("proc/meminfo"),
		Command: texts.Command(`cat /proc/meminfo`),
		Heads:   []string{"MemTotal:", "HugePages_Total:", "AnonHugePages:"}}
)

// textKinds has the kind first whose facts count in a conflict.
func textKinds() []*texts.Kind {
	return slices.Concat([]*texts.Kind{kindHostJSON, kindHwloc, kindLspci, kindLstopo, kindNCCL, kindCPUInfo,
		kindMeminfo,
		kindCmdline},
		texts.Kinds,
		[]*texts.Kind{kindSMI, kindDomain})
}

var partsOfDevices = []string{"hostdev", "interface", "controller", "disk"}

// wholeDomain adds the root around copied elements.
func wholeDomain(b []byte) (whole []byte, fragment bool) {
	text := bytes.TrimSpace(b)
	if bytes.HasPrefix(text, []byte("<domain")) {
		return b, false
	}
	if bytes.HasPrefix(text, []byte("<vcpupin")) {
		return slices.Concat([]byte("<domain><cputune>"), b, []byte("</cputune></domain>")), true
	}
	for _, name := range partsOfDevices {
		if bytes.HasPrefix(text, []byte("<"+name)) {
			return slices.Concat([]byte("<domain><devices>"), b, []byte("</devices></domain>")), true
		}
	}
	return slices.Concat([]byte("<domain>"), b, []byte("</domain>")), true
}

// parseDomainText makes a machine with one tenant.
func parseDomainText(b []byte, name string) (*topology.Host, error) {
	h := &topology.Host{Provenance: topology.Provenance{Kind: topology.SourceTexts, Name: name}}
	b, cut := xmltree.Closed(b)
	whole, fragment := wholeDomain(b)
	fragment = fragment || cut
	t, problems := parseDomain(whole)
	if t != nil && fragment {
		// Facts outside the fragment are unknown.
		if !bytes.Contains(b, []byte("<cpu ")) {
			t.GuestNodes = nil
		}
		if !bytes.Contains(b, []byte("<controller ")) {
			t.GuestSwitches, t.GuestExpanders = nil, nil
		}
	}
	if t == nil {
		return nil, &where.Error{File: name, Err: errors.Join(problems...)}
	}
	if cut {
		t.Cut = true
		problems = append(problems, errors.New("the text is cut off: what would follow is not known"))
	}
	for _, err := range problems {
		h.Unread = append(h.Unread, topology.Unread{Path: cmp.Or(name, "domain XML"), Why: err.Error()})
	}
	t.Name = cmp.Or(t.Name, "a domain without a name")
	h.Tenants = []topology.Tenant{*t}
	return h, nil
}

func procFile(path string) func(b []byte, name string) (*topology.Host, error) {
	return func(b []byte, name string) (*topology.Host, error) {
		b = bytes.TrimSpace(b)
		if path == kernelLine {
			b, _, _ = bytes.Cut(b, []byte("\n"))
			if _, line, ok := bytes.Cut(b, []byte("ommand line: ")); ok {
				b = line
			}
		}
		var files tree.Builder
		if err := files.File(path, b); err != nil {
			return nil, err
		}
		h := &topology.Host{Provenance: topology.Provenance{Kind: topology.SourceTexts, Name: name}}
		r := &reader{ctx: context.Background(), fs: files.Mem(), h: h}
		if path == kernelLine {
			r.readKernel()
		} else {
			r.readSystem()
			r.readCPUs()
			r.readMemory()
		}
		return h, nil
	}
}

const kernelLine = "proc/cmdline"

func kindNames(list []texts.Text) string {
	var names []string
	for _, t := range list {
		names = lists.Add(names, t.Kind.Name)
	}
	return strings.Join(names, ", ")
}

// isNew reports whether texts must be read piece by piece, because one is a part of a machine or their kinds differ.
func isNew(list []texts.Text) bool {
	var first *texts.Kind
	for _, t := range list {
		whole := slices.ContainsFunc(formats, func(f format) bool { return f.Kind == t.Kind && f.Kind != kindHostJSON })
		if !whole || first != nil && first != t.Kind {
			return true
		}
		first = t.Kind
	}
	return false
}

// parts puts unreadable texts into Unread, or into the error if no text is readable.
func parts(list []texts.Text) ([]compare.Part, error) {
	kinds := textKinds()
	slices.SortStableFunc(list, func(a, b texts.Text) int {
		return cmp.Compare(slices.Index(kinds, a.Kind), slices.Index(kinds, b.Kind))
	})
	var out []compare.Part
	var failed []error
	for _, t := range list {
		h, err := t.Read()
		if err != nil {
			failed = append(failed, err)
			continue
		}
		out = append(out, compare.Part{Source: fmt.Sprintf("%s (%s)", t.Kind.Name, t.File), Host: h})
	}
	if len(out) == 0 {
		return nil, errors.Join(failed...)
	}
	for _, err := range failed {
		out[0].Host.Unread = append(out[0].Host.Unread, topology.Unread{Path: "texts", Why: err.Error()})
	}
	return out, nil
}

// ReadTogether reads texts of one machine, with at most one whole machine.
func ReadTogether(ctx context.Context, paths []string) (*topology.Host, error) {
	var list []texts.Text
	var whole, rest []compare.Part
	for _, path := range paths {
		o, err := Open(path)
		if err != nil {
			return nil, err
		}
		list = append(list, o.texts...)
		if o.texts == nil {
			h, err := o.Read(ctx)
			if err := errors.Join(err, o.Close()); err != nil {
				return nil, err
			}
			whole = append(whole, compare.Part{Source: o.Format + " (" + path + ")", Host: h})
		}
	}
	if len(list) > 0 {
		var err error
		if rest, err = parts(list); err != nil {
			return nil, err
		}
	}
	return compare.Join(append(whole, rest...)), nil
}

const maxTogether = 64

func things(t texts.Text) []string {
	h, err := t.Read()
	if err != nil {
		return nil
	}
	var out []string
	for i := range h.NICs {
		out = append(out, t.Kind.Name+" "+h.NICs[i].ID())
	}
	for i := range h.PCI {
		out = append(out, t.Kind.Name+" "+h.PCI[i].Address.String())
	}
	for i := range h.Tenants {
		out = append(out, t.Kind.Name+" "+h.Tenants[i].Name)
	}
	return out
}

// OneMachine reports whether files seem to be one machine: texts of different kinds, or one whole machine with parts.
// Two files of one kind are two machines, unless they describe different devices.
func OneMachine(paths []string) bool {
	if len(paths) < 2 || len(paths) > maxTogether {
		return false
	}
	seen := map[string]bool{}
	wholes, partial := 0, false
	for _, path := range paths {
		o, err := Open(path)
		if err != nil {
			return false
		}
		o.Close()
		if o.texts == nil {
			wholes++
			continue
		}
		file := map[string]bool{}
		for _, t := range o.texts {
			partial = partial || isNew([]texts.Text{t})
			if t.Kind == kindHwloc {
				wholes++
			} else if t.Kind.Many {
				for _, thing := range things(t) {
					file[thing] = true
				}
			} else {
				file[t.Kind.Name] = true
			}
		}
		for name := range file {
			if seen[name] {
				return false
			}
			seen[name] = true
		}
	}
	return wholes == 0 || wholes == 1 && partial
}
